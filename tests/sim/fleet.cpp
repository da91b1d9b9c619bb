#include "tests/sim/fleet.h"

#include <csignal>
#include <deque>

namespace lockstep::sim {
namespace {

constexpr Micros kKeepTerm = 500 * kMillisecond;
constexpr Micros kUnreachable = kSecond;
constexpr Micros kSilence = 5'500 * kMillisecond;  // until the ranks' failure detection ends them

double seconds(Micros time) {
  return static_cast<double>(time) / static_cast<double>(kSecond);
}

}  // namespace

struct Fleet::Host {
  int number = 0;
  HostClock clock{};
  bool is_up = true;
  int lives = 0;  // processes of its agent so far
  std::optional<Agent> agent{};
  bool is_paused = false;
  std::deque<std::function<void()>> deferred{};  // while it is paused
  std::shared_ptr<Link> link{};
  std::int64_t ranks = 0;  // attempt of the ranks that run here; 0: none
  std::optional<Leader> leader{};
  std::optional<Term> stale{};  // the newest term in its listing
  std::int64_t noted_step = 0;  // of its ranks
  int life_of_ranks = 0;        // of the agent that started them
  int place = 0;                // in their attempt
  std::int64_t term = 0;
  Micros next_keep = 0;
};

// Link is a connection of an agent to a leader. Messages that a cut holds back arrive later.
struct Fleet::Link {
  int agent = 0, leader = 0;
  int agent_life = 0, leader_life = 0;
  std::string id{};
  bool is_open = true;
  struct Message {
    bool to_leader = false;
    std::function<void()> act{};
  };
  std::deque<Message> arriving{};
};

Fleet::Fleet(Kernel& kernel, FleetOptions options) : kernel_(kernel), options_(std::move(options)) {
  for (int host = 0; host < options_.hosts; ++host) {
    auto& made = *hosts_.emplace_back(std::make_unique<Host>());
    made.number = host;
    made.clock = HostClock::draw(kernel.random);
  }
}

Fleet::~Fleet() = default;

Deadline Fleet::local(const Host& host) const {
  return host.clock.of(kernel_.now());
}

void Fleet::start_agents() {
  for (int host = 0; host < options_.hosts; ++host)
    kernel_.after(kernel_.random.between(0, kSecond), [this, host] { start_agent(host); });
}

void Fleet::start_agent(int number) {
  auto& host = at(number);
  if (!host.is_up) return;
  ++host.lives;
  host.is_paused = false;
  host.deferred.clear();
  Join join;
  join.id = str(name(number), "-", host.lives);
  join.host = name(number);
  join.slots = options_.leader.slots;
  if (host.ranks != 0) join.running = {host.ranks, host.place, options_.leader.need};
  host.agent.emplace(AgentOptions{.join = join}, local(host));
  tick(number, host.lives);
}

void Fleet::when_awake(int number, std::function<void()> act) {
  auto& host = at(number);
  if (!host.agent) return;
  if (host.is_paused)
    host.deferred.push_back(std::move(act));
  else
    act();
}

void Fleet::tick(int number, int life) {
  auto& host = at(number);
  if (!host.agent || host.lives != life) return;
  if (!host.is_paused) carry_out(number, host.agent->time(local(host)));
  kernel_.after(options_.tick, [this, number, life] { tick(number, life); });
}

void Fleet::carry_out(int number, AgentActions actions) {
  auto& host = at(number);
  const int life = host.lives;
  const auto later = [&](Micros pause, std::function<void()> act) {
    kernel_.after(pause, [this, number, life, act = std::move(act)] {
      if (at(number).lives == life) when_awake(number, act);
    });
  };
  for (const auto& action : actions) {
    if (std::holds_alternative<Look>(action)) {
      later(5 * latency(), [this, number] {
        auto& here = at(number);
        carry_out(number, here.agent->looked(read_records(number), local(here)));
      });
    } else if (const auto* claim = std::get_if<ClaimTerm>(&action)) {
      later(5 * latency(), [this, number, term = claim->number] {
        auto& here = at(number);
        const bool won = kernel_.now() >= records_from_ && newest_.number < term;
        if (won) {
          auto options = options_.leader;
          options.term = term;
          options.takes_over = term > 1 && alive_ != "over";
          newest_ = {.number = term, .id = str(number), .host = name(number)};
          alive_ = str(term, " ", ++kept_);
          kernel_.trace("host ", number, " leads, term ", term);
          kernel_.note(static_cast<std::uint64_t>(number));
          here.leader.emplace(options, local(here));
          here.term = term;
          carry_out_as_leader(number,
                              here.leader->begin(log_, seconds(kernel_.now()), local(here)));
          here.next_keep = kernel_.now();
          lead_tick(number, here.lives);
        }
        carry_out(number, here.agent->claimed(won, local(here)));
      });
    } else if (const auto* to = std::get_if<ConnectTo>(&action)) {
      const int leader = std::stoi(to->term.host.substr(1));
      const auto is_cut = [this, number, leader] {
        return cuts_.contains({number, leader}) || cuts_.contains({leader, number});
      };
      later(latency(), [this, number, leader, is_cut, term = to->term.number] {
        auto& here = at(number);
        auto& there = at(leader);
        const bool is_silent = !there.is_up || is_cut() || there.is_paused;
        if (is_silent || !there.leader || there.term != term) {
          kernel_.after(is_silent ? kUnreachable : latency(), [this, number, life = here.lives] {
            if (at(number).lives == life)
              when_awake(number, [this, number] {
                carry_out(number, at(number).agent->disconnected(local(at(number))));
              });
          });
          return;
        }
        here.link = std::make_shared<Link>(Link{.agent = number,
                                                .leader = leader,
                                                .agent_life = here.lives,
                                                .leader_life = there.lives,
                                                .id = str(name(number), "-", here.lives)});
        links_.push_back(here.link);
        carry_out(number, here.agent->connected(local(here)));
      });
    } else if (std::holds_alternative<Disconnect>(action)) {
      if (host.link) close(host.link, false);
    } else if (const auto* sent = std::get_if<SendToLeader>(&action)) {
      const auto link = host.link;
      if (!link) continue;
      deliver(link, true, [this, link, message = sent->message] {
        auto& there = at(link->leader);
        if (there.leader)
          carry_out_as_leader(link->leader, there.leader->message(link->id, message, local(there)));
      });
    } else if (const auto* check = std::get_if<CheckHost>(&action)) {
      later(check->prepare.check ? 2 * kSecond : 10 * kMillisecond,
            [this, number, attempt = check->prepare.attempt] {
              auto& here = at(number);
              const Ready ready{.attempt = attempt,
                                .fault = broken_.contains(number) ? "its GPU is slow" : "",
                                .addresses = {name(number)},
                                .port = 1};
              carry_out(number, here.agent->checked(ready, local(here)));
            });
    } else if (const auto* start = std::get_if<StartRanks>(&action)) {
      start_ranks(number, start->start);
    } else if (std::holds_alternative<StopRanks>(action)) {
      if (host.ranks != 0) stop_ranks(number, attempts_.at(host.ranks));
    } else if (const auto* end = std::get_if<EndAgent>(&action)) {
      kernel_.trace("the agent of host ", number, " ends: ", end->why);
      ++host.lives;
      host.agent.reset();
      return;
    }
  }
}

void Fleet::lead_tick(int number, int life) {
  auto& host = at(number);
  if (!host.leader || host.lives != life) return;
  if (!host.is_paused) {
    if (kernel_.now() >= host.next_keep && kernel_.now() >= records_from_) {
      host.next_keep = kernel_.now() + kKeepTerm;
      if (read_records(number).newest.number > host.term) return end_leader(number);
      if (!over_ && newest_.number == host.term) alive_ = str(host.term, " ", ++kept_);
    }
    carry_out_as_leader(number, host.leader->time(local(host)));
  }
  kernel_.after(options_.tick, [this, number, life] { lead_tick(number, life); });
}

void Fleet::end_leader(int number) {
  kernel_.trace("host ", number, " does not lead any more");
  at(number).leader.reset();
  for (const auto& link : std::vector(links_))
    if (link->leader == number) close(link, true);
}

void Fleet::carry_out_as_leader(int number, LeaderActions actions) {
  auto& host = at(number);
  for (const auto& action : actions) {
    if (const auto* to = std::get_if<SendTo>(&action)) {
      // Only an agent that has a link is told.
      std::shared_ptr<Link> link;
      const int agent = std::stoi(to->agent.substr(1));
      if (at(agent).link && at(agent).link->leader == number && at(agent).link->id == to->agent)
        link = at(agent).link;
      if (!link) continue;
      deliver(link, false, [this, link, message = to->message] {
        auto& there = at(link->agent);
        if (there.link == link && there.agent)
          carry_out(link->agent, there.agent->message(message, local(there)));
      });
    } else if (std::holds_alternative<ReadProgress>(action)) {
      kernel_.after(10 * latency(), [this, number, life = host.lives] {
        auto& here = at(number);
        if (!here.leader || here.lives != life || kernel_.now() < records_from_) return;
        const int end_code = ended_ >= 0 && kernel_.now() - ended_ < 60 * kSecond ? 0 : -1;
        carry_out_as_leader(
            number,
            here.leader->progress(saved_ > 0 ? saved_ / kSecond : -1,
                                  last_ > options_.lag ? (last_ - options_.lag) / kSecond : -1,
                                  end_code, local(here)));
      });
    } else if (const auto* record = std::get_if<Record>(&action)) {
      kernel_.trace("leader: ", record->line.dump());
      const auto& event = record->line.at("event").as_string();
      kernel_.note(std::hash<std::string>()(event));
      auto& line = log_.emplace_back(record->line);
      line.set("time", seconds(kernel_.now()));
      if (event == "preparing") {
        const auto id = record->line.at("attempt").as_integer();
        attempts_[id] = {.number = id, .places = texts_at(record->line, "hosts")};
      }
      // A leader that cannot read the records may not know that another one leads.
      if (newest_.number > host.term) continue;
      if (event == "judged") {
        why_ = text_at(line, "why");
        Judged judged{.cause = record->line.at("cause").as_string(),
                      .restarts = record->line.at("restarts").as_bool()};
        for (const auto& one : record->line.at("hosts").as_array())
          judged.hosts.push_back(one.as_string());
        judged_.push_back(std::move(judged));
      }
      if (event == "excluded") excluded_.insert(record->line.at("host").as_string());
    } else if (const auto* over = std::get_if<RunOver>(&action)) {
      if (newest_.number > host.term) continue;
      kernel_.trace("the run is over: ", over->why);
      over_ = *over;
      alive_ = "over";
    }
  }
}

void Fleet::deliver(const std::shared_ptr<Link>& link, bool to_leader, std::function<void()> act) {
  if (!link->is_open) return;
  link->arriving.push_back({to_leader, std::move(act)});
  kernel_.after(latency(), [this, link] { pump(link); });
}

// Each direction is in order; a message that is held back holds the later ones of both.
void Fleet::pump(const std::shared_ptr<Link>& link) {
  while (link->is_open && !link->arriving.empty()) {
    const bool to_leader = link->arriving.front().to_leader;
    const int from = to_leader ? link->agent : link->leader;
    const int to = to_leader ? link->leader : link->agent;
    if (cuts_.contains({from, to}) || at(to).is_paused || !at(to).is_up) return;
    const auto message = std::move(link->arriving.front());
    link->arriving.pop_front();
    message.act();
  }
}

void Fleet::close(std::shared_ptr<Link> link, bool tells_agent) {
  if (!std::exchange(link->is_open, false)) return;
  std::erase(links_, link);
  auto& agent = at(link->agent);
  if (agent.link == link) agent.link.reset();
  kernel_.after(latency(), [this, link, tells_agent] {
    if (tells_agent && at(link->agent).lives == link->agent_life)
      when_awake(link->agent, [this, link] {
        auto& there = at(link->agent);
        if (!there.link) carry_out(link->agent, there.agent->disconnected(local(there)));
      });
    auto& leader = at(link->leader);
    if (!tells_agent && leader.leader && leader.lives == link->leader_life)
      when_awake(link->leader, [this, link] {
        auto& there = at(link->leader);
        if (there.leader)
          carry_out_as_leader(link->leader, there.leader->closed(link->id, local(there)));
      });
  });
}

void Fleet::start_ranks(int number, const Start& start) {
  auto& host = at(number);
  const auto id = host.ranks = start.place.attempt;
  host.place = start.place.number;
  const auto& places = attempts_.at(id).places;
  if (places.at(static_cast<std::size_t>(host.place)) != name(number) ||
      static_cast<int>(places.size()) != start.place.hosts)
    kernel_.violate(1, "host ", number, " starts ranks of another host");
  host.noted_step = start.noted_step;
  host.life_of_ranks = host.lives;
  ended_ = -1;
  if (start.skip_step == poison_ / kSecond + 1) poison_ = 0;
  const int count = ++started_[id];
  if (count == 1) {  // ranks that do not come are reported after a minute
    kernel_.after(60 * kSecond, [this, id] {
      const auto& started = attempts_.at(id);
      if (training_ == id || failing_.contains(id)) return;
      for (const auto& place : started.places)
        if (const int missing = std::stoi(place.substr(1)); at(missing).ranks != id)
          return break_attempt(started, missing, "did not connect", 0);
    });
  }
  if (count == start.place.hosts) kernel_.after(options_.load, [this, id] { begin_training(id); });
}

void Fleet::begin_training(std::int64_t id) {
  const auto& attempt = attempts_.at(id);
  for (const auto& place : attempt.places)
    if (const auto& host = at(std::stoi(place.substr(1))); host.ranks != id || !host.is_up) return;
  if (failing_.contains(id)) return;
  if (training_ != 0) kernel_.violate(1, "attempts ", training_, " and ", id, " train");
  kernel_.trace("attempt ", id, " trains");
  ++starts_;
  training_ = id;
  last_ = saved_;  // the steps since the last save are repeated
  began_ = kernel_.now();
  ledger_.push_back({.kind = LedgerLine::Kind::start,
                     .time_seconds = seconds(began_ - options_.load),
                     .step = last_ / kSecond,
                     .ranks = options_.leader.need});
  if (poison_ > last_)
    crash_at(id, poison_, [this, id] { return std::stoi(attempts_.at(id).places[1].substr(1)); });
  if (fragile_ >= 0) crash_at(id, last_ + 5 * kSecond, [this] { return fragile_; });
}

void Fleet::crash_at(std::int64_t id, Micros trained, std::function<int()> host) {
  kernel_.after(trained - last_, [this, id, host = std::move(host)] {
    if (training_ == id && trains_on(host())) fail_rank(host(), RankFault::crash);
  });
}

void Fleet::write_ledger(std::vector<LedgerLine>& lines, Micros until) const {
  constexpr std::int64_t kLine = 10;  // seconds
  for (auto step = kLine; began_ + step * kSecond <= until; step += kLine)
    lines.push_back({.kind = LedgerLine::Kind::steps,
                     .time_seconds = seconds(began_ + step * kSecond),
                     .first = last_ / kSecond + step - kLine + 1,
                     .last = last_ / kSecond + step,
                     .step_seconds = kLine});
}

std::vector<LedgerLine> Fleet::ledger() const {
  auto lines = ledger_;
  if (training_ != 0) write_ledger(lines, kernel_.now());
  return lines;
}

void Fleet::end_training(Micros until) {
  if (training_ == 0) return;
  training_ = 0;
  write_ledger(ledger_, until);
  const auto from = last_;
  last_ += until - began_;
  saved_ = from + (until - began_) / options_.save_every * options_.save_every;
}

Micros Fleet::trained() const {
  return training_ == 0 ? saved_ : last_ + kernel_.now() - began_;
}

void Fleet::end_ranks(int number, std::int64_t attempt, std::vector<RankEnd> ends,
                      std::vector<int> xids, Micros when) {
  kernel_.at(when, [this, number, attempt, ends = std::move(ends), xids = std::move(xids)] {
    auto& host = at(number);
    if (host.ranks != attempt || !host.is_up) return;
    host.ranks = 0;
    Ended ended{attempt, ends, xids, true};
    for (auto& end : ended.ranks)
      if (end.rank == 0 && end.exit_code == 0) ended_ = kernel_.now();
    if (host.life_of_ranks != host.lives)  // only their parent knows how they ended
      for (auto& end : ended.ranks)
        end = {.rank = end.rank, .exit_code = 75, .unwatched = true, .error = "no agent watched"};
    when_awake(number, [this, number, ended] {
      carry_out(number, at(number).agent->ended(ended, local(at(number))));
    });
  });
}

void Fleet::stop_ranks(int number, const Attempt& attempt) {
  if (training_ == attempt.number) end_training(kernel_.now());
  failing_.insert(attempt.number);
  end_ranks(number, attempt.number, {}, {}, kernel_.now() + 500 * kMillisecond);
}

// Ranks of `host` are lost. The others end after a time; rank 0 names the host.
void Fleet::break_attempt(const Attempt& attempt, int host, const std::string& why, Micros after) {
  if (training_ == attempt.number) end_training(kernel_.now());
  failing_.insert(attempt.number);
  const int first = std::stoi(attempt.places.front().substr(1));
  for (std::size_t place = 0; place < attempt.places.size(); ++place) {
    const int other = std::stoi(attempt.places[place].substr(1));
    RankEnd end{.rank = static_cast<int>(place) * options_.leader.slots,
                .exit_code = 75,
                .error = str("rank on ", name(host), " ", why)};
    if (host >= 0 && (other == first || first == host)) end.lost = {name(host)};
    end_ranks(other, attempt.number, {end}, {},
              kernel_.now() + after + kernel_.random.between(50, 900) * kMillisecond);
  }
}

void Fleet::power_off(int number, Micros time) {
  auto& host = at(number);
  if (!host.is_up) return;
  kernel_.trace("host ", number, " has no power");
  host.is_up = false;
  ++host.lives;
  host.agent.reset();
  host.leader.reset();
  for (const auto& link : std::vector(links_))
    if (link->agent == number || link->leader == number) {
      link->is_open = false;  // the other side gets no packet
      std::erase(links_, link);
      if (link->agent == number) host.link.reset();
    }
  if (const auto id = std::exchange(host.ranks, 0); id != 0 && !failing_.contains(id))
    break_attempt(attempts_.at(id), number, "stopped answering", kSilence);
  returns_.emplace(kernel_.now() + time, number);
  kernel_.after(time, [this] { return_hosts(); });
}

void Fleet::return_hosts() {
  while (!returns_.empty() && returns_.begin()->first <= kernel_.now()) {
    const int number = returns_.begin()->second;
    returns_.erase(returns_.begin());
    at(number).is_up = true;
    start_agent(number);
  }
}

void Fleet::fail_rank(int number, RankFault fault) {
  auto& host = at(number);
  const auto id = host.ranks;
  if (id == 0 || failing_.contains(id)) return;
  const auto attempt = attempts_.at(id);
  kernel_.trace("fault ", static_cast<int>(fault), " of a rank on host ", number);
  const auto place =
      static_cast<int>(std::ranges::find(attempt.places, name(number)) - attempt.places.begin());
  RankEnd end{.rank = place * options_.leader.slots, .exit_code = 128 + SIGSEGV};
  std::vector<int> xids;
  auto named = number;
  Micros after = 200 * kMillisecond;
  switch (fault) {
    case RankFault::crash: break;
    case RankFault::gpu:
      end.exit_code = 1;
      end.error = "CUDA error";
      xids = {79};
      break;
    case RankFault::hang:
      end = {.rank = end.rank, .exit_code = 75, .error = "a rank made no progress"};
      after = 50 * kSecond;
      break;
    case RankFault::program:
      end = {.rank = end.rank, .exit_code = 1, .error = "loss is not a number"};
      break;
    case RankFault::all:
      end = {.rank = end.rank, .exit_code = 1, .error = "loss is not a number"};
      break;
    case RankFault::network:
      end = {.rank = end.rank, .exit_code = 75, .error = "connections broke"};
      named = -1;
      break;
    case RankFault::corruption:
      end = {.rank = end.rank, .exit_code = 70, .error = "wrong sums", .faulty = {name(number)}};
      break;
  }
  const auto step = trained() / kSecond + 1;
  if (step == host.noted_step || step == host.noted_step + 1) {
    end.step = step;
    end.samples = str("samples of step ", step);
  }
  if (fault == RankFault::all) {
    failing_.insert(id);
    end_training(kernel_.now());
    for (std::size_t p = 0; p < attempt.places.size(); ++p) {
      end.rank = static_cast<int>(p) * options_.leader.slots;
      end_ranks(std::stoi(attempt.places[p].substr(1)), id, {end}, {},
                kernel_.now() + kernel_.random.between(1, 500) * kMillisecond);
    }
    return;
  }
  if (fault != RankFault::hang)
    end_ranks(number, id, {end}, xids, kernel_.now() + 20 * kMillisecond);
  break_attempt(attempt, named, end.error.empty() ? "died" : end.error, after);
}

void Fleet::pause_agent(int number, Micros time) {
  auto& host = at(number);
  if (!host.agent || host.is_paused) return;
  kernel_.trace("the agent of host ", number, " stops for ", time / kSecond, " s");
  host.is_paused = true;
  kernel_.after(time, [this, number, life = host.lives] {
    auto& here = at(number);
    if (here.lives != life) return;
    here.is_paused = false;
    while (!here.deferred.empty() && here.agent) {
      const auto act = std::move(here.deferred.front());
      here.deferred.pop_front();
      act();
    }
    for (const auto& link : std::vector(links_))
      if (link->agent == number || link->leader == number) pump(link);
  });
}

void Fleet::restart_agent(int number) {
  auto& host = at(number);
  if (!host.agent) return;
  kernel_.trace("the agent of host ", number, " is killed");
  ++host.lives;
  host.agent.reset();
  host.leader.reset();
  host.is_paused = false;
  host.deferred.clear();
  for (const auto& link : std::vector(links_))
    if (link->agent == number || link->leader == number) close(link, link->leader == number);
  kernel_.after(kernel_.random.between(1, 3) * kSecond, [this, number] { start_agent(number); });
}

void Fleet::heal() {
  cuts_.clear();
  for (const auto& link : std::vector(links_))
    pump(link);
}

void Fleet::lose_records(Micros time) {
  records_from_ = kernel_.now() + time;
}

void Fleet::drain(int host) {
  const int number = leader();
  if (number >= 0 && !at(number).is_paused)
    carry_out_as_leader(number, at(number).leader->drain(name(host), "drained", local(at(number))));
}

void Fleet::finish() {
  const auto id = training_;
  if (id == 0) return;
  end_training(kernel_.now());
  saved_ = last_;
  failing_.insert(id);
  const auto attempt = attempts_.at(id);
  Micros last = 0;
  for (auto place = attempt.places.size(); place-- > 0;) {
    const auto rank = static_cast<int>(place) * options_.leader.slots;
    const auto after = kernel_.random.between(0, 700) * kMillisecond;
    last = std::max(last, after);
    end_ranks(std::stoi(attempt.places[place].substr(1)), id, {{.rank = rank}}, {},
              kernel_.now() +
                  (place == 0 ? last + kernel_.random.between(0, 700) * kMillisecond : after));
  }
}

void Fleet::freeze_listing(int number, Micros time) {
  at(number).stale = newest_;
  kernel_.after(time, [this, number] { at(number).stale.reset(); });
}

// A file that is opened is new, as NFS promises. A listing may be old.
Records Fleet::read_records(int number) const {
  const auto& host = at(number);
  Records records{.newest = host.stale.value_or(newest_),
                  .alive = alive_,
                  .exit_code = over_ ? over_->exit_code : 0,
                  .readable = kernel_.now() >= records_from_};
  if (records.newest.number != newest_.number) records.alive.clear();
  return records;
}

int Fleet::leader() const {
  for (const auto& host : hosts_)
    if (host->leader && host->term == newest_.number) return host->number;
  return -1;
}

int Fleet::host_of_rank_0() const {
  return training_ == 0 ? -1 : std::stoi(attempts_.at(training_).places.front().substr(1));
}

bool Fleet::trains_on(int host) const {
  return training_ != 0 && at(host).ranks == training_;
}

void Fleet::load_longer(Micros time) {
  jump(time);
  began_ += time;
}

// All agents beat at the end of the time. Hosts that have power again meanwhile start then.
void Fleet::jump(Micros time) {
  kernel_.jump(time);
  return_hosts();
  for (const auto& link : links_) {
    auto& there = at(link->leader);
    auto& here = at(link->agent);
    if (!there.leader || !here.agent) continue;
    for (const auto& action : there.leader->message(link->id, AgentBeat(), local(there)))
      if (const auto* to = std::get_if<SendTo>(&action))
        carry_out(link->agent, here.agent->message(to->message, local(here)));
  }
}

}  // namespace lockstep::sim
