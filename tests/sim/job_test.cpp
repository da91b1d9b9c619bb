// Failure detection of a job on a simulated network.
#include "tests/sim/job.h"

#include <set>

#include "tests/sim/seeds.h"

namespace lockstep::sim::job_test {
namespace {

constexpr Micros kBound = 12 * kSecond;  // from a fault until all other ranks have ended
constexpr Micros kStall = 62 * kSecond;  // the same for a rank that makes no progress
// A queue that is full, and for each rank the messages of one read.
constexpr std::size_t kMessage = std::size_t{1} << 20;

std::size_t most_queued_bytes(const Job& job) {
  return ControlProtocol::kMostQueuedBytes + static_cast<std::size_t>(job.ranks()) * 2 * kMessage;
}

enum class Fault : std::uint8_t {
  none,
  rank_dies,
  host_dies,
  rank_0_dies,
  host_of_0_dies,
  rank_0_stops,  // for 20 s
  rank_stops,    // the same
  halves_part,
  nothing_arrives,  // one-way cut, from rank 0's host
  nothing_leaves,   // one-way cut, to rank 0's host
  rank_stalls,
};
constexpr int kFaults = 11;

std::vector<int> places(int hosts) {
  std::vector<int> all;
  for (int host = 0; host < hosts; ++host)
    all.push_back(host);
  return all;
}

// Faulty hosts of an injected fault, and the time that all other ranks may take to end.
struct Injected {
  std::set<int> hosts{};
  Micros at = 0, bound = kBound;
};

Injected inject(Kernel& kernel, Net& net, Job& job, const JobOptions& options, Fault fault) {
  auto& random = kernel.random;
  const int host = static_cast<int>(random.between(1, options.hosts - 1));
  const int rank = host * options.slots + static_cast<int>(random.below(options.slots));
  Injected injected{{host}, kernel.now()};
  kernel.trace("fault ", static_cast<int>(fault), " at host ", host, ", rank ", rank);
  const auto block = [&](int from, int count) {
    for (int h = from; h < from + count; ++h)
      for (int r = h * options.slots; r < (h + 1) * options.slots; ++r)
        job.block(r);
  };
  switch (fault) {
    case Fault::none: injected = {}; break;
    case Fault::rank_dies: job.kill(rank); break;
    case Fault::host_dies: job.power_off(host); break;
    case Fault::rank_0_dies:
      injected.hosts = {0};
      job.kill(0);
      break;
    case Fault::host_of_0_dies:
      injected.hosts = {0};
      job.power_off(0);
      break;
    case Fault::rank_0_stops:
      injected.hosts = {0};
      injected.bound = 20 * kSecond + kBound;  // rank 0 itself continues to its end then
      job.pause(0, 20 * kSecond);
      break;
    case Fault::rank_stops:
      injected.bound = 20 * kSecond + kBound;
      job.pause(rank, 20 * kSecond);
      break;
    case Fault::halves_part: {
      const int half = options.hosts / 2;
      const Net::Hosts near{0, half}, far{half, options.hosts};
      net.cut(near, far);
      net.cut(far, near);
      for (int h = half; h < options.hosts; ++h)
        injected.hosts.insert(h);
      injected.hosts.insert(0);  // for the other half
      block(half, options.hosts - half);
      break;
    }
    case Fault::nothing_arrives:
      injected.hosts.insert(0);
      net.cut({0, 1}, {host, host + 1});
      block(host, 1);
      break;
    case Fault::nothing_leaves:
      net.cut({host, host + 1}, {0, 1});
      block(host, 1);
      injected.hosts.insert(0);
      break;
    case Fault::rank_stalls:
      injected.bound = kStall;
      job.stall(rank);
      break;
  }
  return injected;
}

bool names(const std::string& text, const std::set<int>& hosts) {
  return std::ranges::any_of(
      hosts, [&](int host) { return text.find(str("(host h", host, ",")) != std::string::npos; });
}

void check_queues(Kernel& kernel, const Job& job) {
  if (const auto bytes = job.queued_bytes(); bytes > most_queued_bytes(job))
    kernel.violate(8, bytes, " bytes are queued at rank 0");
}

void check_end(Kernel& kernel, const Job& job, const Injected& injected) {
  if (job.verdicts().size() > 1) return kernel.violate(4, job.verdicts().size(), " verdicts");
  if (!job.verdicts().empty() && !names(job.verdicts().front().text, injected.hosts))
    return kernel.violate(4, "the verdict names no injected host: ", job.verdicts().front().text);
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const auto& end = job.end(rank);
    if (end.at < 0) return kernel.violate(5, "rank ", rank, " has not ended");
    if (end.at > injected.at + injected.bound)
      return kernel.violate(5, "rank ", rank, " ended after ",
                            static_cast<double>(end.at - injected.at) / kSecond, " s");
    // A rank that died has no reason.
    if (!end.why.empty() && !names(end.why, injected.hosts))
      return kernel.violate(4, "rank ", rank, " ended because of no injected host: ", end.why);
  }
}

// Starts a job, injects a fault, and checks how it ends.
void run_fault(Kernel& kernel, JobOptions options, Fault fault) {
  Net net(kernel, options.hosts);
  if (kernel.seed() % 3 == 0) net.set_latency(kMillisecond, 200 * kMillisecond);
  Job job(kernel, net, options, places(options.hosts));
  job.start_all();
  kernel.run(60 * kSecond, [&] { return job.is_training(); });
  if (!job.is_training()) return kernel.violate(5, "the job does not start");
  kernel.run(kernel.now() + kernel.random.between(0, 20 * kSecond));
  if (!job.verdicts().empty() || job.alive() < job.ranks())
    return kernel.violate(4, "a verdict without a fault");
  check_queues(kernel, job);
  const auto injected = inject(kernel, net, job, options, fault);
  kernel.run(kernel.now() + injected.bound + 2 * kSecond, [&] { return job.alive() == 0; });
  check_queues(kernel, job);
  check_end(kernel, job, injected);
}

JobOptions drawn(Kernel& kernel) {
  return {.hosts = static_cast<int>(kernel.random.between(2, 8)),
          .slots = static_cast<int>(kernel.random.between(1, 4))};
}

void run_drawn_fault(Kernel& kernel) {
  const auto options = drawn(kernel);
  run_fault(kernel, options, static_cast<Fault>(1 + kernel.seed() % (kFaults - 1)));
}

TEST(JobSimulation, each_fault_has_one_verdict_that_names_its_host) {
  for_seeds(1'000, run_drawn_fault);
}
TEST(JobSimulation, full_each_fault_has_one_verdict_that_names_its_host) {
  for_seeds(20'000, run_drawn_fault, 2'000);
}

// Short stops, slow links and slow hosts.
TEST(JobSimulation, there_is_no_verdict_without_a_fault) {
  for_seeds(200, [](Kernel& kernel) {
    const auto options = drawn(kernel);
    Net net(kernel, options.hosts);
    net.set_latency(kMillisecond, kernel.random.between(2, 800) * kMillisecond);
    Job job(kernel, net, options, places(options.hosts));
    job.start_all();
    kernel.run(60 * kSecond, [&] { return job.is_training(); });
    for (int i = 0; i < 20; ++i) {
      const auto rank = static_cast<int>(kernel.random.below(job.ranks()));
      const auto stop = kernel.random.between(0, 2'500) * kMillisecond;
      if (kernel.random.chance(0.5))
        job.pause(rank, stop);
      else
        net.set_slow(job.host_of(rank), stop / 4);
      kernel.run(kernel.now() + stop + kernel.random.between(3, 8) * kSecond);
    }
    check_queues(kernel, job);
    if (!job.verdicts().empty())
      return kernel.violate(4, "a verdict without a fault: ", job.verdicts().front().text);
    if (job.alive() < job.ranks()) kernel.violate(5, "a rank ended without a fault");
  });
}

// Ranks send to one that is stopped for a while.
void run_messages(Kernel& kernel, JobOptions options) {
  Net net(kernel, options.hosts);
  Job job(kernel, net, options, places(options.hosts));
  job.start_all();
  kernel.run(60 * kSecond, [&] { return job.is_training(); });
  const int receiver = job.ranks() - 1;
  job.pause(receiver, 4 * kSecond);
  std::size_t sent = 0;
  for (int i = 0; i < 120; ++i, ++sent)
    job.send(static_cast<int>(kernel.random.below(static_cast<std::uint64_t>(receiver))), receiver,
             Bytes(kMessage));
  for (int i = 0; i < 40; ++i) {
    kernel.run(kernel.now() + 200 * kMillisecond);
    check_queues(kernel, job);
  }
  if (job.received(receiver) != sent * kMessage)
    kernel.violate(5, "the receiver has ", job.received(receiver), " of ", sent * kMessage,
                   " bytes");
}

TEST(JobSimulation, queues_for_a_stopped_rank_have_a_limit) {
  for_seeds(2, [](Kernel& kernel) { run_messages(kernel, drawn(kernel)); });
}

// 16,384 ranks, with all bytes.
void start_without(Kernel& kernel, int missing) {
  const JobOptions options{.hosts = 2'048, .slots = 8};
  Net net(kernel, options.hosts);
  Job job(kernel, net, options, places(options.hosts));
  std::set<int> hosts;
  while (std::ssize(hosts) < missing)
    hosts.insert(static_cast<int>(kernel.random.between(1, options.hosts - 1)));
  for (const int host : hosts)
    for (int r = host * options.slots; r < (host + 1) * options.slots; ++r)
      job.reject_start(r);
  job.start_all();
  kernel.run(80 * kSecond, [&] { return job.alive() == 0 && kernel.now() > 2 * kSecond; });
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const auto& end = job.end(rank);
    if (hosts.contains(job.host_of(rank))) continue;
    if (end.at < 0 || end.at > 65 * kSecond)
      return kernel.violate(5, "rank ", rank, " waits for ranks that did not start");
    if (end.why.find("did not connect within 60 s") == std::string::npos)
      return kernel.violate(4, "rank ", rank, " ended: ", end.why);
  }
}

TEST(JobSimulation, ranks_that_do_not_start_are_named_at_16384_ranks) {
  for_seeds(1, [](Kernel& kernel) { start_without(kernel, 20); });
}

TEST(JobSimulation, the_silence_of_half_of_16384_ranks_ends_the_others) {
  for_seeds(1, [](Kernel& kernel) {
    run_fault(kernel, {.hosts = 2'048, .slots = 8}, Fault::halves_part);
  });
}

// The controls.
TEST(JobSimulation, notices_a_detector_without_patience) {
  expect_violation(4, 60, [](Kernel& kernel) {
    auto options = drawn(kernel);
    options.server_timing.missed = 1;
    Net net(kernel, options.hosts);
    Job job(kernel, net, options, places(options.hosts));
    job.start_all();
    kernel.run(60 * kSecond, [&] { return job.is_training(); });
    job.pause(job.ranks() - 1, kernel.random.between(0, 2'500) * kMillisecond);
    kernel.run(kernel.now() + 10 * kSecond);
    if (!job.verdicts().empty())
      kernel.violate(4, "a verdict without a fault: ", job.verdicts().front().text);
  });
}

TEST(JobSimulation, notices_a_server_that_does_not_stop_reading) {
  expect_violation(8, 5, [](Kernel& kernel) {
    auto options = drawn(kernel);
    options.heeds_pauses = false;
    run_messages(kernel, options);
  });
}

TEST(JobSimulation, notices_a_verdict_that_a_rank_does_not_get) {
  expect_violation(4, 60, [](Kernel& kernel) {
    auto options = drawn(kernel);
    options.delivers_verdicts = false;
    run_fault(kernel, options, Fault::rank_stalls);
  });
}

}  // namespace
}  // namespace lockstep::sim::job_test
