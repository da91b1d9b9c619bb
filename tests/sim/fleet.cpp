#include "tests/sim/fleet.h"

#include <csignal>
#include <cstdlib>

namespace lockstep::sim {
namespace {

constexpr Micros kKeepTerm = 500 * kMillisecond;
constexpr Micros kUnreachable = kSecond;
constexpr Micros kAgentEnd = 8 * kSecond;          // for the leader of an agent that ends
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
  // The storage, as this host sees it, responds again then.
  Micros storage_from = 0;
  Outage outage = Outage::hang;
  std::shared_ptr<Thread> files{};                     // of the agent
  std::shared_ptr<Thread> files_of_leader{}, alive{};  // as in LeaderServer
  std::vector<Json> lines{};                           // that wait in the leader's process
  bool is_writing = false, is_keeping = false;
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
  host.files = std::make_shared<Thread>();
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
      store(number, host.files, [this, number](bool works) {
        auto records = works ? read_records(number) : Records();
        records.readable = works;
        if (at(number).agent)
          carry_out(number, at(number).agent->looked(records, local(at(number))));
      });
    } else if (const auto* term = std::get_if<ClaimTerm>(&action)) {
      store(number, host.files,
            [this, number, term = term->number](bool works) { claim(number, term, works); });
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
    } else if (const auto* stop = std::get_if<StopRanks>(&action)) {
      if (host.ranks != 0) stop_ranks(number, stop->save);
    } else if (const auto* end = std::get_if<EndAgent>(&action)) {
      kernel_.trace("the agent of host ", number, " ends: ", end->why);
      host.agent.reset();
      if (host.link) close(host.link, false);
      // The leader of a run that is over serves agents that join later.
      kernel_.after(kAgentEnd, [this, number, life] {
        if (at(number).lives != life || over_) return;
        if (at(number).leader) end_leader(number);
        end_process(number);
      });
      return;
    }
  }
}

void Fleet::store(int number, const std::shared_ptr<Thread>& thread, Work work) {
  thread->push_back(std::move(work));
  if (thread->size() == 1) serve(number, thread);
}

void Fleet::serve(int number, const std::shared_ptr<Thread>& thread) {
  const auto& host = at(number);
  const bool hangs = kernel_.now() < host.storage_from && host.outage == Outage::hang;
  const auto responds = hangs ? host.storage_from : kernel_.now();
  kernel_.at(responds + 5 * latency(), [this, number, thread, life = host.lives] {
    auto& here = at(number);
    if (here.lives != life) return;  // the process has ended
    const bool is_out = kernel_.now() < here.storage_from;
    if (is_out && here.outage == Outage::hang) return serve(number, thread);
    if (here.is_paused) return here.deferred.push_back([=, this] { serve(number, thread); });
    const auto work = std::move(thread->front());
    work(!is_out);
    thread->pop_front();
    if (!thread->empty() && here.lives == life) serve(number, thread);
  });
}

void Fleet::claim(int number, std::int64_t term, bool works) {
  auto& host = at(number);
  if (!host.agent) return;
  const auto before = read_records(number);
  const bool won = works && newest_.number < term;
  if (won) {
    auto options = options_.leader;
    options.term = term;
    options.takes_over = options.is_same_start = term > 1 && before.alive != "over";
    newest_ = {.number = term, .id = str(number), .host = name(number)};
    kernel_.trace("host ", number, " leads, term ", term);
    kernel_.note(static_cast<std::uint64_t>(number));
    host.leader.emplace(options, local(host));
    host.term = term;
    host.files_of_leader = std::make_shared<Thread>();
    host.alive = std::make_shared<Thread>();
    host.lines.clear();
    host.is_writing = host.is_keeping = false;
    host.next_keep = kernel_.now();
    carry_out_as_leader(number,
                        host.leader->begin(options.takes_over ? events() : std::vector<Json>(),
                                           seconds(kernel_.now()), local(host)));
    lead_tick(number, host.lives);
  }
  carry_out(number, host.agent->claimed(won, local(host)));
}

void Fleet::lead_tick(int number, int life) {
  auto& host = at(number);
  if (!host.leader || host.lives != life) return;
  if (!host.is_paused) {
    if (kernel_.now() >= host.next_keep && host.leader->phase() != Leader::Phase::over)
      keep_term(number);
    carry_out_as_leader(number, host.leader->time(local(host)));
    if (!host.is_writing && !host.lines.empty()) write_records(number);
  }
  kernel_.after(options_.tick, [this, number, life] { lead_tick(number, life); });
}

void Fleet::keep_term(int number) {
  auto& host = at(number);
  host.next_keep = kernel_.now() + kKeepTerm;
  if (std::exchange(host.is_keeping, true)) return;
  store(number, host.alive, [this, number, term = host.term](bool works) {
    auto& here = at(number);
    const bool leads = here.leader && here.term == term;
    if (works) alive_ = str(term, " ", ++kept_);
    if (leads) here.is_keeping = false;
    if (works && leads && read_records(number).newest.number > term) end_leader(number);
  });
}

void Fleet::write_records(int number) {
  auto& host = at(number);
  host.is_writing = true;
  store(number, host.files_of_leader,
        [this, number, term = host.term, lines = std::exchange(host.lines, {})](bool works) {
          if (works) log_.insert(log_.end(), lines.begin(), lines.end());
          if (at(number).term == term) at(number).is_writing = false;
        });
}

// Lines that its threads write may follow.
void Fleet::end_leader(int number) {
  kernel_.trace("host ", number, " does not lead any more");
  at(number).leader.reset();
  at(number).lines.clear();
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
      store(number, host.files_of_leader, [this, number, term = host.term](bool works) {
        auto& here = at(number);
        if (!here.leader || here.term != term) return;
        const auto step = [&](Micros of) { return !works ? kUnknown : of > 0 ? of / kSecond : -1; };
        const int end_code = works && ended_ >= 0 && kernel_.now() - ended_ < 60 * kSecond ? 0 : -1;
        carry_out_as_leader(
            number, here.leader->progress(step(saved(kernel_.now())),
                                          step(computed() - options_.lag), end_code, local(here)));
      });
    } else if (const auto* record = std::get_if<Record>(&action)) {
      kernel_.trace("leader: ", record->line.dump());
      const auto& event = record->line.at("event").as_string();
      kernel_.note(std::hash<std::string>()(event));
      auto& line = host.lines.emplace_back(record->line);
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
      store(number, host.alive, [this, term = host.term, code = over->exit_code](bool works) {
        if (works) alive_ = str(term, " over ", code);
      });
      if (newest_.number > host.term) continue;
      kernel_.trace("the run is over: ", over->why);
      over_ = *over;
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
  saved_ = saved(until);
  training_ = 0;
  write_ledger(ledger_, until);
  last_ += until - began_;
}

Micros Fleet::computed() const {
  return training_ == 0 ? last_ : last_ + kernel_.now() - began_;
}

Micros Fleet::saved(Micros until) const {
  if (training_ == 0) return saved_;
  return last_ + (until - began_) / options_.save_every * options_.save_every;
}

Micros Fleet::trained() const {
  return training_ == 0 ? saved_ : computed();
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

// If one rank is told to save and stop, all do so.
void Fleet::stop_ranks(int number, bool saves) {
  const auto id = at(number).ranks;
  const bool trains = training_ == id;
  if (trains && id > may_stop_)
    kernel_.violate(10, "ranks of host ", number, " train and are stopped");
  if (trains) end_training(kernel_.now());
  const bool is_first = failing_.insert(id).second;
  if (!saves) return end_ranks(number, id, {}, {}, kernel_.now() + 500 * kMillisecond);
  if (!is_first) return;
  if (trains) saved_ = last_;
  const auto saved_at = kernel_.now() + kernel_.random.between(1, 5) * kSecond;
  const auto& places = attempts_.at(id).places;
  for (std::size_t place = 0; place < places.size(); ++place)
    end_ranks(std::stoi(places[place].substr(1)), id,
              {{.rank = static_cast<int>(place) * options_.leader.slots, .exit_code = 75}}, {},
              saved_at + kernel_.random.between(0, 500) * kMillisecond);
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
  end_process(number);
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
    case RankFault::storage:
      end = {.rank = end.rank, .exit_code = kStorage, .error = "cannot write a file"};
      break;
    case RankFault::memory:
      end = {.rank = end.rank, .exit_code = 128 + SIGKILL, .out_of_memory = true};
      break;
  }
  const auto step = trained() / kSecond + 1;
  if (step == host.noted_step || step == host.noted_step + 1) {
    end.step = step;
    end.samples = str("samples of step ", step);
  }
  if (fault == RankFault::all || fault == RankFault::storage) {
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

void Fleet::end_process(int number) {
  auto& host = at(number);
  ++host.lives;
  host.agent.reset();
  host.leader.reset();
  host.is_paused = false;
  host.deferred.clear();
}

void Fleet::restart_agent(int number) {
  auto& host = at(number);
  if (!host.agent) return;
  kernel_.trace("the agent of host ", number, " is killed");
  end_process(number);
  for (const auto& link : std::vector(links_))
    if (link->agent == number || link->leader == number) close(link, link->leader == number);
  kernel_.after(kernel_.random.between(1, 3) * kSecond, [this, number] { start_agent(number); });
}

void Fleet::heal() {
  cuts_.clear();
  for (const auto& link : std::vector(links_))
    pump(link);
}

void Fleet::lose_records(Micros time, Outage outage, int number) {
  kernel_.trace("the storage of host ", number, outage == Outage::hang ? " hangs" : " fails",
                " for ", time / kSecond, " s");
  at(number).storage_from = kernel_.now() + time;
  at(number).outage = outage;
}

void Fleet::lose_records(Micros time, Outage outage) {
  for (int host = 0; host < options_.hosts; ++host)
    lose_records(time, outage, host);
}

void Fleet::ask_stop(int number, bool leaves) {
  may_stop_ = INT64_MAX;
  when_awake(number, [this, number, leaves] {
    carry_out(number,
              at(number).agent->stop({.why = "a signal", .leaves = leaves}, local(at(number))));
  });
}

void Fleet::report_slow(int by, const std::vector<int>& hosts) {
  may_stop_ = newest_attempt();
  Slow slow;
  for (const int host : hosts)
    slow.hosts.push_back(name(host));
  when_awake(by, [this, by, slow] { carry_out(by, at(by).agent->slow(slow, local(at(by)))); });
}

void Fleet::drain(int host) {
  const int number = leader();
  may_stop_ = newest_attempt();
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
  Records records{.newest = at(number).stale.value_or(newest_), .alive = alive_};
  const auto term = str(records.newest.number, " "), over = term + "over ";
  if (!records.alive.starts_with(term)) records.alive.clear();
  if (!records.alive.starts_with(over)) return records;
  records.exit_code = std::atoi(records.alive.c_str() + over.size());
  records.alive = "over";
  return records;
}

// As SuperviseRecords::events().
std::vector<Json> Fleet::events() const {
  std::vector<Json> events;
  std::int64_t newest = 0;
  for (const auto& line : log_) {
    events.push_back(line);
    const auto term = line.at("term").as_integer();
    newest = std::max(newest, term);
    if (text_at(line, "event") == "over" && term == newest) events.clear();
  }
  return events;
}

bool Fleet::has_agent(int host) const {
  return at(host).agent.has_value();
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
