// Supervised runs: agents, their leader, causes and restarts.
#include "tests/sim/fleet.h"

#include <array>
#include <cmath>
#include <ranges>

#include "tests/sim/seeds.h"

namespace lockstep::sim::fleet_test {
namespace {

constexpr Micros kBound = 120 * kSecond;  // from the last fault until training, with its loading

// Runs until the job trains.
bool await_training(Kernel& kernel, const Fleet& fleet, Micros bound = kBound) {
  kernel.run(kernel.now() + bound, [&] { return fleet.trains() || fleet.over(); });
  if (!kernel.failed() && !fleet.trains() && !fleet.over())
    kernel.violate(5, "no step is done in ", bound / kSecond, " s");
  if (!kernel.failed() && fleet.over()) kernel.violate(7, "the run ended: ", fleet.over()->why);
  return !kernel.failed();
}

int host_that_trains(Kernel& kernel, const Fleet& fleet, int hosts) {
  for (;;)
    if (const auto host = static_cast<int>(kernel.random.below(static_cast<std::uint64_t>(hosts)));
        fleet.trains_on(host))
      return host;
}

// One verdict, which names a host of `injected`, or no host if `may_be_unknown`.
void check_verdicts(Kernel& kernel, const Fleet& fleet, std::size_t before,
                    const std::set<int>& injected, bool may_be_unknown) {
  const auto& judged = fleet.judged();
  if (judged.size() != before + 1)
    return kernel.violate(4, judged.size() - before, " verdicts about one fault");
  const auto& hosts = judged.back().hosts;
  if (hosts.empty() && !may_be_unknown)
    return kernel.violate(4, "the verdict names no host: ", judged.back().cause);
  for (const auto& host : hosts)
    if (!injected.contains(std::stoi(host.substr(1))))
      return kernel.violate(4, "the verdict names ", host, ": ", judged.back().cause);
}

void check_exclusions(Kernel& kernel, const Fleet& fleet, const std::set<int>& injected) {
  for (const auto& host : fleet.excluded())
    if (!injected.contains(std::stoi(host.substr(1))))
      kernel.violate(6, "host ", host, " had no fault and is excluded");
}

void run_rank_faults(Kernel& kernel, FleetOptions options) {
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  std::set<int> faulty;
  for (int i = 0; i < 3; ++i) {
    kernel.run(kernel.now() + kernel.random.between(61, 300) * kSecond);
    const int host = host_that_trains(kernel, fleet, options.hosts);
    const auto before = fleet.judged().size();
    const auto fault = kernel.random.below(5);
    const bool is_network = fault == 3;
    faulty.insert(host);
    switch (fault) {
      case 0: fleet.fail_rank(host, RankFault::crash); break;
      case 1: fleet.fail_rank(host, RankFault::gpu); break;
      case 2: fleet.fail_rank(host, RankFault::hang); break;
      case 3: fleet.fail_rank(host, RankFault::network); break;
      default: fleet.power_off(host, kernel.random.between(5, 200) * kSecond);
    }
    kernel.run(kernel.now() + kSecond);
    if (!await_training(kernel, fleet, kBound + 60 * kSecond)) return;
    check_verdicts(kernel, fleet, before, {host}, is_network);
    if (kernel.failed()) return;
  }
  check_exclusions(kernel, fleet, faulty);
}

TEST(FleetSimulation, a_fault_of_a_host_is_named_and_the_run_goes_on) {
  for_seeds(100, [](Kernel& kernel) { run_rank_faults(kernel, {.hosts = 8}); });
}
TEST(FleetSimulation, full_a_fault_of_a_host_is_named_and_the_run_goes_on) {
  for_seeds(
      2'000, [](Kernel& kernel) { run_rank_faults(kernel, {.hosts = 8}); }, 1'000);
}

// Faults of agents and leaders, which must not disturb the ranks.
void run_agent_faults(Kernel& kernel) {
  const FleetOptions options{.hosts = 6};
  auto& random = kernel.random;
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  for (int i = 0; i < 5; ++i) {
    kernel.run(kernel.now() + random.between(1, 20) * kSecond);
    const auto any = static_cast<int>(random.below(6));
    const auto leader = std::max(fleet.leader(), 0);
    const auto outage = random.chance(0.5) ? Outage::hang : Outage::errors;
    switch (random.below(6)) {
      case 0: fleet.pause_agent(leader, 20 * kSecond); break;
      case 3: fleet.restart_agent(random.chance(0.5) ? leader : any); break;
      case 1: fleet.pause_agent(any, random.between(1, 30) * kSecond); break;
      case 2: fleet.lose_records(random.between(1, 300) * kSecond, outage); break;
      case 4: fleet.lose_records(random.between(1, 300) * kSecond, outage, leader); break;
      default:
        fleet.cut(any, leader);
        if (random.chance(0.5)) fleet.cut(leader, any);
        kernel.run(kernel.now() + random.between(1, 15) * kSecond);
        fleet.heal();
    }
  }
  kernel.run(kernel.now() + 40 * kSecond);
  if (!fleet.judged().empty() || fleet.starts() != 1 || !fleet.trains())
    kernel.violate(4, "the ranks were disturbed without a fault of theirs");
  check_exclusions(kernel, fleet, {});
}

TEST(FleetSimulation, agents_and_leaders_come_and_go_while_the_ranks_train) {
  for_seeds(150, run_agent_faults);
}
TEST(FleetSimulation, full_agents_and_leaders_come_and_go_while_the_ranks_train) {
  for_seeds(5'000, run_agent_faults, 1'000);
}

// A leader without ranks loses power after it started an attempt, while its records of it wait for
// the storage or were lost by errors.
void run_lost_records(Kernel& kernel) {
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 7, .load = 5 * kSecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  while (!kernel.failed() && (fleet.leader() < 0 || fleet.trains_on(fleet.leader()))) {
    if (fleet.leader() >= 0) fleet.restart_agent(fleet.leader());
    kernel.run(kernel.now() + 10 * kSecond);
  }
  kernel.run(kernel.now() + 10 * kSecond);
  const int leader = fleet.leader(), host = host_that_trains(kernel, fleet, options.hosts);
  const auto outage = random.chance(0.5) ? Outage::hang : Outage::errors;
  const auto fault = random.below(4);
  const bool is_first = random.chance(0.5);
  if (is_first) fleet.lose_records(600 * kSecond, outage, leader);
  switch (fault) {
    case 0: fleet.fail_rank(host, RankFault::crash); break;
    case 1: fleet.fail_rank(host, RankFault::gpu); break;
    case 2: fleet.fail_rank(host, RankFault::network); break;
    default: fleet.drain(host);
  }
  if (!is_first) {
    kernel.run(kernel.now() + random.between(0, 6'000) * kMillisecond);
    fleet.lose_records(600 * kSecond, outage, leader);
  }
  kernel.run(kernel.now() + kSecond);
  if (!await_training(kernel, fleet)) return;
  kernel.run(kernel.now() + random.between(0, 20'000) * kMillisecond);
  if (fleet.trains_on(leader))  // in place of another host
    fleet.restart_agent(leader);
  else
    fleet.power_off(leader, 600 * kSecond);
  kernel.run(kernel.now() + 60 * kSecond);
  if (kernel.failed()) return;
  if (fleet.starts() != 2 || !fleet.trains() || fleet.judged().size() != (fault == 3 ? 0 : 1))
    return kernel.violate(10, "the ranks were disturbed by a change of the leader");
  if (fleet.leader() < 0) return kernel.violate(5, "no agent leads");
  const auto before = fleet.judged().size();
  const int next = host_that_trains(kernel, fleet, options.hosts);
  fleet.fail_rank(next, RankFault::crash);
  kernel.run(kernel.now() + kSecond);
  if (await_training(kernel, fleet)) check_verdicts(kernel, fleet, before, {next}, false);
}

TEST(FleetSimulation, ranks_continue_if_the_records_of_their_start_are_lost) {
  for_seeds(200, run_lost_records);
}
TEST(FleetSimulation, full_ranks_continue_if_the_records_of_their_start_are_lost) {
  for_seeds(5'000, run_lost_records, 1'000);
}

// Half of the hosts cannot reach the leader. If its storage hangs too, another one leads.
void run_halves(Kernel& kernel) {
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 6, .load = 5 * kSecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  kernel.run(kernel.now() + 5 * kSecond);
  const int leader = fleet.leader();
  const auto time = random.between(1, 60) * kSecond;
  const bool is_one_way = random.chance(0.5), hangs = random.chance(0.5);
  for (int host = 0; host < options.hosts; ++host)
    if (host != leader && host % 2 != leader % 2) {
      fleet.cut(host, leader);
      if (!is_one_way) fleet.cut(leader, host);
    }
  if (hangs) fleet.lose_records(time, Outage::hang, leader);
  kernel.run(kernel.now() + time);
  if (!hangs && fleet.leader() != leader)
    kernel.violate(10, "the leader of the other half changed");
  fleet.heal();
  kernel.run(kernel.now() + 20 * kSecond);
  if (!fleet.judged().empty() || fleet.starts() != 1 || !fleet.trains())
    kernel.violate(10, "the ranks were disturbed without a fault of theirs");
  if (kernel.failed()) return;
  const int host = host_that_trains(kernel, fleet, options.hosts);
  fleet.fail_rank(host, RankFault::crash);
  kernel.run(kernel.now() + kSecond);
  if (await_training(kernel, fleet)) check_verdicts(kernel, fleet, 0, {host}, false);
}

TEST(FleetSimulation, ranks_continue_if_half_of_the_hosts_cannot_reach_the_leader) {
  for_seeds(200, run_halves);
}

// Stragglers are reported, while the leader may change.
void run_stragglers(Kernel& kernel) {
  auto& random = kernel.random;
  const int spares = static_cast<int>(random.below(3));
  const FleetOptions options{.hosts = 4 + spares, .load = 5 * kSecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  kernel.run(kernel.now() + random.between(5, 90) * kSecond);
  const auto any = [&] { return host_that_trains(kernel, fleet, options.hosts); };
  const std::set<int> slow = random.chance(0.7) ? std::set{any()} : std::set{any(), any()};
  const auto trained = fleet.trained();
  for (int report = 0; report < 3; ++report) {
    fleet.report_slow(any(), {slow.begin(), slow.end()});
    kernel.run(kernel.now() + random.between(0, 5'000) * kMillisecond);
    if (report == 0 && fleet.leader() >= 0 && random.chance(0.5))
      fleet.restart_agent(fleet.leader());
    kernel.run(kernel.now() + 15 * kSecond);
    if (!await_training(kernel, fleet)) return;
  }
  const bool is_replaced = spares > 0 && slow.size() == 1;
  if (fleet.starts() != (is_replaced ? 2 : 1) || !fleet.judged().empty())
    kernel.violate(10, "the stragglers caused ", fleet.starts(), " starts");
  if (is_replaced == fleet.trains_on(*slow.begin()))
    kernel.violate(6, is_replaced ? "the straggler trains" : "the straggler was left out");
  if (fleet.excluded().size() != (is_replaced ? 1 : 0))
    kernel.violate(6, fleet.excluded().size(), " hosts are excluded");
  if (fleet.trained() < trained) kernel.violate(6, "steps are repeated");
  check_exclusions(kernel, fleet, slow);
}

TEST(FleetSimulation, a_straggler_is_replaced_if_there_is_a_spare) {
  for_seeds(200, run_stragglers);
}

// All ranks get errors from the storage. The last time, agents cannot read the records either.
void run_storage_errors(Kernel& kernel) {
  constexpr std::array<Micros, 5> kPauses{5, 5, 15, 60, 300};  // seconds, by starts without a save
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 5, .load = 5 * kSecond, .tick = 500 * kMillisecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  std::size_t without_save = 0;
  for (std::size_t fault = 1; fault <= 6; ++fault) {
    const bool saves = random.chance(0.3), is_out = fault == 6;
    kernel.run(kernel.now() + (saves ? random.between(61, 90) : random.between(1, 50)) * kSecond);
    without_save = saves ? 0 : without_save + 1;
    const auto failed = kernel.now();
    fleet.fail_rank(host_that_trains(kernel, fleet, options.hosts), RankFault::storage);
    if (is_out)
      fleet.lose_records(random.between(1, 60) * kSecond,
                         random.chance(0.5) ? Outage::hang : Outage::errors);
    kernel.run(kernel.now() + kSecond);
    if (without_save == kPauses.size()) {
      kernel.run(kernel.now() + 20 * kSecond);
      const bool ends = fleet.over() && fleet.over()->exit_code == 1;
      if (!ends && !is_out) kernel.violate(7, "the run restarts though five starts saved nothing");
      return;
    }
    if (!await_training(kernel, fleet, 400 * kSecond)) return;
    const auto pause = kernel.now() - failed - options.load;
    const auto least = is_out ? kPauses[0] : kPauses[without_save];
    if (pause < least * kSecond || (!is_out && pause > (least + 10) * kSecond))
      return kernel.violate(7, "a pause of ", pause / kSecond, " s instead of ", least);
    const auto& judged = fleet.judged();
    if (judged.size() != fault || judged.back().cause != "storage" || !judged.back().hosts.empty())
      return kernel.violate(4, "cause ", judged.back().cause);
  }
  check_exclusions(kernel, fleet, {});
}

TEST(FleetSimulation, errors_of_the_storage_cause_restarts_with_pauses) {
  for_seeds(200, run_storage_errors);
}

// The kernel kills ranks twice because memory is short: on one host or two, within an hour or not.
void run_memory_kills(Kernel& kernel) {
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 5, .load = 5 * kSecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  const int first = host_that_trains(kernel, fleet, options.hosts);
  const int second = random.chance(0.5) ? first : host_that_trains(kernel, fleet, options.hosts);
  fleet.fail_rank(first, RankFault::memory);
  kernel.run(kernel.now() + kSecond);
  if (!await_training(kernel, fleet)) return;
  kernel.run(kernel.now() + random.between(1, 60) * kSecond);
  const int leader = fleet.leader();
  if (leader != first && leader != second && random.chance(0.5)) fleet.restart_agent(leader);
  kernel.run(kernel.now() + 20 * kSecond);
  const bool is_later = random.chance(0.3);
  if (is_later) fleet.jump(kHour);
  kernel.run(kernel.now() + kSecond);
  fleet.fail_rank(second, RankFault::memory);
  kernel.run(kernel.now() + kSecond);
  kernel.run(kernel.now() + kBound, [&] { return fleet.trains() || fleet.over(); });
  const bool ends = second == first && !is_later;
  if (fleet.over().has_value() != ends)
    return kernel.violate(7, "over: ", fleet.over().has_value());
  if (ends && fleet.over()->exit_code != kConfiguration)
    kernel.violate(7, "exit code ", fleet.over()->exit_code);
  if (!ends && !fleet.trains()) kernel.violate(5, "no step is done");
  for (const auto& judged : fleet.judged())
    if (judged.cause != "host memory") kernel.violate(4, "cause ", judged.cause);
  check_exclusions(kernel, fleet, {});
}

TEST(FleetSimulation, a_host_whose_memory_is_short_twice_ends_the_run) {
  for_seeds(200, run_memory_kills);
}

// Neighbouring hosts lose power at once, and come back later.
void run_rack(Kernel& kernel) {
  auto& random = kernel.random;
  FleetOptions options{.hosts = 9, .load = 5 * kSecond, .tick = 500 * kMillisecond};
  options.leader.need = 7;
  options.leader.least = 5;
  options.leader.rejoin = Milliseconds(120'000);
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  kernel.run(kernel.now() + random.between(1, 100) * kSecond);
  const int first = 3 * static_cast<int>(random.below(3));
  const std::set<int> rack{first, first + 1, first + 2};
  const auto away = random.between(10, 300) * kSecond;
  for (const int host : rack)
    fleet.power_off(host, away);
  const auto lost = kernel.now();
  kernel.run(kernel.now() + kSecond);
  if (!await_training(kernel, fleet, kBound + 120 * kSecond)) return;
  // If the rack is back within `rejoin`, the run has waited for it.
  const auto took = kernel.now() - lost;
  const auto hosts = std::ranges::count_if(std::views::iota(0, options.hosts),
                                           [&](int host) { return fleet.trains_on(host); });
  if (took < std::min(away, 120 * kSecond) + options.load)
    kernel.violate(6, "it started after ", took / kSecond, " s without enough hosts");
  if ((away < 120 * kSecond && hosts != 7) || (away > 150 * kSecond && hosts != 6))
    kernel.violate(6, hosts, " hosts train");
  check_verdicts(kernel, fleet, 0, rack, false);
  kernel.run(kernel.now() + away + 30 * kSecond);
  if (!fleet.trains() || fleet.starts() != 2)
    kernel.violate(10, "hosts that came back disturbed the ranks");
  if (!fleet.excluded().empty()) kernel.violate(6, "a host is excluded after its first fault");
}

TEST(FleetSimulation, a_rack_loses_power_and_comes_back) {
  for_seeds(150, run_rack);
}

// All agents are asked to stop at any time, while the leader changes or its storage hangs.
void run_stops(Kernel& kernel) {
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 6};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  kernel.run(kernel.now() + random.between(0, 100'000) * kMillisecond);
  const auto harm = [&] {
    const int leader = fleet.leader();
    if (leader < 0) return;
    switch (random.below(5)) {
      case 0: fleet.pause_agent(leader, random.between(1, 20) * kSecond); break;
      case 1: fleet.power_off(leader, kHour); break;
      case 2:
        fleet.lose_records(random.between(1, 30) * kSecond,
                           random.chance(0.5) ? Outage::hang : Outage::errors);
        break;
      case 3:
        if (fleet.trains()) fleet.fail_rank(fleet.host_of_rank_0(), RankFault::crash);
        break;
      default: break;
    }
  };
  if (random.chance(0.5)) harm();
  kernel.run(kernel.now() + random.between(0, 5'000) * kMillisecond);
  const auto trained = fleet.trained();
  const bool trains = fleet.trains();
  const bool leaves = random.chance(0.5);
  for (int host = 0; host < options.hosts; ++host)
    fleet.ask_stop(host, leaves);
  kernel.run(kernel.now() + random.between(0, 5'000) * kMillisecond);
  const auto before = fleet.starts();
  if (random.chance(0.5)) harm();
  kernel.run(kernel.now() + 120 * kSecond);
  for (int host = 0; host < options.hosts; ++host)
    if (fleet.has_agent(host))
      return kernel.violate(5, "the agent of host ", host, " does not end");
  if (fleet.trains() || fleet.starts() > before) kernel.violate(7, "the run continues");
  if (fleet.over() && fleet.over()->exit_code != kTemporary)
    kernel.violate(7, "exit code ", fleet.over()->exit_code);
  if (trains && fleet.trained() < trained / options.save_every * options.save_every)
    kernel.violate(6, "steps are lost");
  check_exclusions(kernel, fleet, {});
}

TEST(FleetSimulation, a_request_to_stop_ends_the_run_at_any_time) {
  for_seeds(200, run_stops);
}

// Hosts shut down in order, one after the other, and boot again. The run continues.
void run_leaves(Kernel& kernel) {
  auto& random = kernel.random;
  const FleetOptions options{.hosts = 6};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  kernel.run(kernel.now() + random.between(2'000, 100'000) * kMillisecond);
  for (int i = 0; i < 4; ++i) {
    const int host = random.chance(0.5) && fleet.leader() >= 0
                         ? fleet.leader()
                         : static_cast<int>(random.below(options.hosts));
    fleet.ask_stop(host, true);
    kernel.run(kernel.now() + random.between(1, 20) * kSecond);
    if (random.chance(0.3) && fleet.leader() >= 0)
      fleet.pause_agent(fleet.leader(), random.between(1, 10) * kSecond);
    kernel.run(kernel.now() + 40 * kSecond);
    if (fleet.has_agent(host))
      return kernel.violate(5, "the agent of host ", host, " does not end");
    if (!await_training(kernel, fleet, 120 * kSecond)) return;
    if (fleet.trains_on(host)) return kernel.violate(7, "host ", host, " still trains");
    fleet.power_off(host, random.between(1, 60) * kSecond);
    kernel.run(kernel.now() + 90 * kSecond);
  }
  if (fleet.over()) kernel.violate(7, "the run ends");
  check_exclusions(kernel, fleet, {});
}

TEST(FleetSimulation, hosts_that_shut_down_leave_the_run) {
  for_seeds(100, run_leaves);
}
TEST(FleetSimulation, full_hosts_that_shut_down_leave_the_run) {
  for_seeds(2'000, run_leaves);
}

// The hosts of the leader and of rank 0 are lost at any moment, also during a restart.
void run_losses(Kernel& kernel) {
  auto& random = kernel.random;
  Fleet fleet(kernel, {.hosts = 8});
  fleet.start_agents();
  kernel.run(kernel.now() + random.between(0, 60) * kSecond);
  for (int i = 0; i < 4; ++i) {
    const int leader = fleet.leader(), first = fleet.host_of_rank_0();
    if (leader >= 0) fleet.power_off(leader, random.between(10, 60) * kSecond);
    if (first >= 0 && random.chance(0.5)) fleet.power_off(first, random.between(10, 60) * kSecond);
    kernel.run(kernel.now() + random.between(0, 40'000) * kMillisecond);
  }
  kernel.run(kernel.now() + 60 * kSecond);
  await_training(kernel, fleet, 400 * kSecond);
}

TEST(FleetSimulation, the_leader_and_rank_0_are_lost_at_any_time) {
  for_seeds(150, run_losses);
}
TEST(FleetSimulation, full_the_leader_and_rank_0_are_lost_at_any_time) {
  for_seeds(5'000, run_losses, 1'000);
}

// The leader is killed or loses power while it judges a fault, or while ranks save for a drain.
void run_leader_faults(Kernel& kernel) {
  auto& random = kernel.random;
  FleetOptions options{.hosts = 7, .load = 5 * kSecond, .save_every = 10 * kSecond};
  options.leader.policy.most_an_hour = 1000;
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  for (int i = 0; i < 8; ++i) {
    kernel.run(kernel.now() + random.between(11, 60) * kSecond);
    const int host = host_that_trains(kernel, fleet, options.hosts);
    switch (random.below(4)) {
      case 0: fleet.fail_rank(host, RankFault::crash); break;
      case 1: fleet.fail_rank(host, RankFault::network); break;
      case 2: fleet.drain(host); break;
      default: fleet.power_off(host, random.between(5, 60) * kSecond);
    }
    kernel.run(kernel.now() + random.between(0, 10'000) * kMillisecond);
    if (const int leader = fleet.leader(); leader >= 0) {
      if (random.chance(0.7))
        fleet.restart_agent(leader);
      else
        fleet.power_off(leader, random.between(5, 60) * kSecond);
    }
    // Ranks wait a minute for those of a host that was lost before it started them.
    if (!await_training(kernel, fleet, 80 * kSecond)) return;
  }
}

TEST(FleetSimulation, the_leader_is_lost_while_it_judges) {
  for_seeds(200, run_leader_faults);
}
TEST(FleetSimulation, full_the_leader_is_lost_while_it_judges) {
  for_seeds(5'000, run_leader_faults, 1'000);
}

// The run is complete, while agents and hosts are lost.
void run_ends(Kernel& kernel) {
  auto& random = kernel.random;
  FleetOptions options{.hosts = 6, .load = 5 * kSecond};
  Fleet fleet(kernel, options);
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  int killed = 0;  // agents; the second one may cost a start
  for (int i = 0; i < 3; ++i)
    if (random.chance(0.3)) {
      ++killed;
      fleet.restart_agent(static_cast<int>(random.below(6)));
      kernel.run(kernel.now() + random.between(0, 20) * kSecond);
    }
  bool lost = killed > 1;
  for (int tries = 0; tries < 5 && !fleet.over(); ++tries) {
    fleet.finish();
    kernel.run(kernel.now() + random.between(0, 45'000) * kMillisecond);
    const auto host = static_cast<int>(random.below(6));
    switch (tries == 0 ? random.below(4) : 3) {
      case 0:
        fleet.restart_agent(host);
        lost = lost || killed > 0;
        break;
      case 1:
        fleet.pause_agent(host, random.between(1, 30) * kSecond);
        lost = lost || killed > 0;
        break;
      case 2:
        if (fleet.over()) break;  // an agent that starts later begins the run again
        fleet.power_off(host, random.between(5, 60) * kSecond);
        lost = true;
        break;
      default: break;
    }
    kernel.run(kernel.now() + 150 * kSecond, [&] { return fleet.trains() || fleet.over(); });
    if (!fleet.trains() && !fleet.over()) return kernel.violate(5, "the run does not end");
    if (fleet.trains() && !lost) return kernel.violate(7, "a complete run restarts");
  }
  if (!fleet.over() || fleet.over()->exit_code != 0)
    return kernel.violate(7, "exit code ", fleet.over() ? fleet.over()->exit_code : -1);
  check_exclusions(kernel, fleet, {});
  // Agents that were started meanwhile do not begin the run again.
  const int starts = fleet.starts();
  kernel.run(kernel.now() + 400 * kSecond);
  if (fleet.starts() != starts || fleet.over()->exit_code != 0)
    kernel.violate(7, "a complete run begins again");
}

TEST(FleetSimulation, a_complete_run_ends_once) {
  for_seeds(200, run_ends);
}
TEST(FleetSimulation, full_a_complete_run_ends_once) {
  for_seeds(5'000, run_ends, 1'000);
}

// A host that loses power every 90 s, without a spare.
TEST(FleetSimulation, a_host_that_fails_again_and_again_is_not_used_any_more) {
  for_seeds(10, [](Kernel& kernel) {
    FleetOptions options{.hosts = 4};
    options.leader.least = 3;
    options.leader.rejoin = Milliseconds(45'000);
    Fleet fleet(kernel, options);
    fleet.start_agents();
    if (!await_training(kernel, fleet)) return;
    const auto flapping = static_cast<int>(kernel.random.below(4));
    int lost = 0;
    for (int i = 0; i < 4 * 40; ++i) {
      lost += fleet.trains_on(flapping) ? 1 : 0;
      fleet.power_off(flapping, 30 * kSecond);
      kernel.run(kernel.now() + 90 * kSecond);
      if (!await_training(kernel, fleet)) return;
    }
    if (lost > 4) kernel.violate(6, "the host ended ", lost, " attempts");
    if (!fleet.excluded().contains(Fleet::name(flapping)))
      kernel.violate(6, "the host is not excluded");
    check_exclusions(kernel, fleet, {flapping});
  });
}

// A directory of the run whose listing is old on some hosts, as a network file system shows it.
void run_stale_listings(Kernel& kernel) {
  auto& random = kernel.random;
  Fleet fleet(kernel, {.hosts = 8});
  fleet.start_agents();
  if (!await_training(kernel, fleet)) return;
  for (int i = 0; i < 4; ++i) {
    for (int host = 0; host < 8; ++host)
      if (random.chance(0.5)) fleet.freeze_listing(host, random.between(1, 60) * kSecond);
    const int leader = std::max(fleet.leader(), 0);
    switch (random.below(3)) {
      case 0: fleet.pause_agent(leader, 20 * kSecond); break;
      case 1: fleet.power_off(leader, random.between(10, 60) * kSecond); break;
      default: fleet.restart_agent(leader);
    }
    kernel.run(kernel.now() + random.between(1, 40) * kSecond);
    if (kernel.failed()) return;
  }
  kernel.run(kernel.now() + 70 * kSecond);
  await_training(kernel, fleet, 400 * kSecond);
}

TEST(FleetSimulation, old_listings_of_the_records_delay_a_leader_but_harm_nothing) {
  for_seeds(100, run_stale_listings);
}

TEST(FleetSimulation, full_old_listings_of_the_records_delay_a_leader_but_harm_nothing) {
  for_seeds(3'000, run_stale_listings, 1'000);
}

TEST(FleetSimulation, an_error_of_all_ranks_excludes_no_host) {
  for_seeds(30, [](Kernel& kernel) {
    Fleet fleet(kernel, {.hosts = 4});
    fleet.start_agents();
    for (int i = 0; i < 2; ++i) {
      if (!await_training(kernel, fleet)) return;
      kernel.run(kernel.now() + 30 * kSecond);
      fleet.fail_rank(0, RankFault::all);
      kernel.run(kernel.now() + 10 * kSecond);
    }
    if (!fleet.over() || fleet.over()->exit_code != 1) kernel.violate(7, "the run restarts");
    check_exclusions(kernel, fleet, {});
  });
}

TEST(FleetSimulation, an_error_that_follows_the_data_ends_the_run_with_its_samples) {
  for (const bool skips : {false, true})
    for (const int hosts : {4, 6})
      for_seeds(10, [=](Kernel& kernel) {
        FleetOptions options{.hosts = hosts};
        options.lag = static_cast<Micros>(kernel.random.below(2)) * kSecond;
        options.leader.policy.skips = skips;
        Fleet fleet(kernel, options);
        fleet.start_agents();
        if (!await_training(kernel, fleet)) return;
        fleet.poison(150 * kSecond);
        fleet.fail_rank(fleet.host_of_rank_0(), RankFault::network);  // it starts with this data
        kernel.run(kernel.now() + 30 * 60 * kSecond, [&] { return fleet.over().has_value(); });
        if (fleet.over().has_value() == skips)
          return kernel.violate(7, "over: ", fleet.over().has_value());
        if (!skips && fleet.over()->exit_code != 1)
          kernel.violate(7, "exit code ", fleet.over()->exit_code);
        if (!skips && fleet.why().find("samples of step 151") == std::string::npos)
          kernel.violate(4, fleet.why());
        if (fleet.judged().size() != 4) kernel.violate(7, fleet.judged().size(), " starts failed");
        check_exclusions(kernel, fleet, {});
      });
}

TEST(FleetSimulation, an_error_that_follows_a_host_excludes_it) {
  for (const int hosts : {4, 5})
    for_seeds(10, [=](Kernel& kernel) {
      FleetOptions options{.hosts = hosts};
      options.leader.least = 3;
      options.leader.rejoin = Milliseconds(20'000);
      Fleet fleet(kernel, options);
      fleet.make_fragile(1);
      fleet.start_agents();
      if (!await_training(kernel, fleet)) return;
      kernel.run(kernel.now() + 1'000 * kSecond);
      if (!await_training(kernel, fleet)) return;
      if (fleet.trains_on(1)) kernel.violate(6, "the host still trains");
      if (hosts == 4 && !fleet.excluded().contains("h1"))
        kernel.violate(6, "the host is not excluded");
      check_exclusions(kernel, fleet, {1});
    });
}

TEST(FleetSimulation, an_error_of_the_program_ends_the_run_at_the_second_host) {
  for_seeds(30, [](Kernel& kernel) {
    Fleet fleet(kernel, {.hosts = 6});
    fleet.start_agents();
    if (!await_training(kernel, fleet)) return;
    for (int i = 0; i < 2 && !fleet.over(); ++i) {
      const int first = fleet.host_of_rank_0();
      int host = 0;
      while (!fleet.trains_on(host) || (i == 1) == (host == first))
        ++host;
      kernel.run(kernel.now() + 30 * kSecond);
      fleet.fail_rank(host, RankFault::program);
      kernel.run(kernel.now() + kSecond);
      kernel.run(kernel.now() + kBound, [&] { return fleet.trains() || fleet.over(); });
    }
    if (!fleet.over()) return kernel.violate(7, "the run restarts after the same error");
    if (fleet.over()->exit_code != 1) kernel.violate(7, "exit code ", fleet.over()->exit_code);
  });
}

TEST(FleetSimulation, a_spare_that_fails_its_check_is_not_used) {
  for_seeds(30, [](Kernel& kernel) {
    Fleet fleet(kernel, {.hosts = 7});
    fleet.start_agents();
    if (!await_training(kernel, fleet)) return;
    int spare = 0, used = 0;
    while (fleet.trains_on(spare))
      ++spare;
    while (!fleet.trains_on(used))
      ++used;
    fleet.break_host(spare);
    fleet.power_off(used, 600 * kSecond);
    kernel.run(kernel.now() + kSecond);
    if (!await_training(kernel, fleet)) return;
    if (fleet.trains_on(spare)) kernel.violate(6, "a faulty spare trains");
    check_exclusions(kernel, fleet, {spare, used});
  });
}

TEST(FleetSimulation, notices_a_leader_that_does_not_wait_for_the_evidence) {
  expect_violation(4, 60, [](Kernel& kernel) {
    FleetOptions options{.hosts = 8};
    options.leader.evidence = Milliseconds(0);
    run_rank_faults(kernel, options);
  });
}

// Days of a large job, with the causes and the rate of Llama 3's 54 days: 419 failures on 2,048
// hosts. Returns the share of the time that trained (ETTR).
double run_days(Kernel& kernel, int hosts, double days, double failures) {
  auto& random = kernel.random;
  FleetOptions options{.hosts = hosts + hosts / 64};
  options.leader.need = options.leader.least = hosts;
  options.leader.slots = 8;
  options.load = kSecond;
  options.save_every = 60 * kSecond;
  options.tick = 500 * kMillisecond;
  Fleet fleet(kernel, options);
  fleet.start_agents();
  const auto end = static_cast<Micros>(days * 24 * static_cast<double>(kHour));
  const auto between = static_cast<double>(end) / failures;
  auto next = static_cast<Micros>(-std::log(1 - random.share()) * between);
  std::size_t faults = 0;
  while (kernel.now() < end) {
    if (!await_training(kernel, fleet, 900 * kSecond)) return 0;
    fleet.load_longer(44 * kSecond);
    kernel.run(kernel.now() + 2 * kSecond);
    if (next > kernel.now()) fleet.jump(std::min(next, end) - kernel.now());
    if (kernel.now() >= end || !fleet.trains()) continue;
    const int host = host_that_trains(kernel, fleet, options.hosts);
    // Unscheduled causes: GPU and memory 239, software 54, network 35, maintenance 32, silent 6.
    const auto cause = random.below(419);
    const auto before = fleet.judged().size();
    ++faults;
    if (cause < 239)
      fleet.fail_rank(host, RankFault::gpu);
    else if (cause < 239 + 54)
      fleet.fail_rank(host, RankFault::crash);
    else if (cause < 239 + 54 + 35)
      fleet.fail_rank(host, RankFault::network);
    else if (cause < 239 + 54 + 35 + 6)
      fleet.fail_rank(host, RankFault::corruption);
    else if (cause < 239 + 54 + 35 + 6 + 20)
      fleet.fail_rank(host, RankFault::hang);
    else
      fleet.power_off(host, random.between(5, 120) * 60 * kSecond);
    next = kernel.now() + static_cast<Micros>(-std::log(1 - random.share()) * between);
    kernel.run(kernel.now() + kSecond);
    if (!await_training(kernel, fleet, 900 * kSecond)) return 0;
    check_verdicts(kernel, fleet, before, {host}, 239 + 54 <= cause && cause < 239 + 54 + 35);
    if (kernel.failed()) return 0;
  }
  const auto share = static_cast<double>(fleet.trained()) / static_cast<double>(kernel.now());
  const auto goodput =
      goodput_of(fleet.ledger()).productive_seconds * kSecond / static_cast<double>(kernel.now());
  if (std::abs(goodput - share) > 0.01)
    kernel.violate(9, "the ledger says ", goodput, " instead of ", share);
  std::printf("%d hosts, %.1f days: %zu failures, %d starts, trained %.2f %% of the time\n", hosts,
              days, faults, fleet.starts(), 100 * share);
  return share;
}

TEST(FleetSimulation, a_day_of_256_hosts) {
  for_seeds(1, [](Kernel& kernel) {
    if (run_days(kernel, 256, 1, 20) < 0.9) kernel.violate(6, "too little training");
  });
}

TEST(FleetSimulation, full_54_days_of_16384_ranks) {
  for_seeds(1, [](Kernel& kernel) {
    if (run_days(kernel, 2'048, 54, 419) < 0.99) kernel.violate(6, "too little training");
  });
}

TEST(FleetSimulation, full_a_day_of_131072_ranks) {
  for_seeds(1, [](Kernel& kernel) {
    if (run_days(kernel, 16'384, 1, 8 * 419 / 54.0) < 0.94)
      kernel.violate(6, "too little training");
  });
}

}  // namespace
}  // namespace lockstep::sim::fleet_test
