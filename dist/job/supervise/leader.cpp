#include "dist/job/supervise/leader.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {
namespace {

constexpr Milliseconds kLateTurn{2'000};  // callers take a turn twice a second
constexpr std::int64_t kAttemptsPerTerm = std::int64_t{1} << 20;

const char* words_of(Leader::Phase phase) {
  using enum Leader::Phase;
  switch (phase) {
    case adopt:
    case gather: return "waiting for hosts";
    case prepare: return "checking hosts";
    case run: return "running";
    case judge: return "stopping ranks";
    case over: return "over";
  }
  return "?";
}

}  // namespace

Leader::Leader(LeaderOptions options, Deadline now)
    : options_(std::move(options)),
      policy_(options_.policy),
      until_(now + options_.adopt),
      earliest_(now),
      seen_(now),
      turned_(now) {}

LeaderActions Leader::message(const std::string& agent, const FromAgent& message, Deadline now) {
  if (const auto* join = std::get_if<Join>(&message)) {
    joined(agent, *join, now);
    return std::exchange(actions_, {});
  }
  const auto found = agents_.find(agent);
  if (found == agents_.end()) return {};  // it was refused
  found->second.heard = now;
  if (std::holds_alternative<AgentBeat>(message))
    send(agent, Welcome{options_.term, last_judged_});
  else if (const auto* ready_now = std::get_if<Ready>(&message))
    ready(agent, *ready_now, now);
  else if (const auto* end = std::get_if<Ended>(&message))
    ended(agent, *end, now);
  else if (const auto* stragglers = std::get_if<Slow>(&message))
    slow(*stragglers, now);
  else if (const auto* ask = std::get_if<AskStop>(&message))
    ask->leaves ? ask_to_leave(agent, ask->why, now) : stop_run(ask->why, kTemporary, now);
  return std::exchange(actions_, {});
}

void Leader::joined(const std::string& id, const Join& join, Deadline now) {
  const auto refuse = [&](int exit_code, const std::string& why) {
    send(id, Over{exit_code, why});
  };
  if (phase_ == Phase::over) return refuse(exit_code_, "the run is over");
  if (join.job != options_.job)
    return refuse(kTemporary,
                  str("job ", options_.job, " supervises this run, not job ", join.job));
  if (join.slots != options_.slots)
    return refuse(kConfiguration, str("host ", join.host, " has ", join.slots,
                                      " ranks, but the "
                                      "leader has ",
                                      options_.slots,
                                      "; start the same number on "
                                      "each host"));
  if (const auto other = id_of_.find(join.host); other != id_of_.end() && other->second != id) {
    if (is_heard(agents_.at(other->second), now))
      send(other->second, Over{.exit_code = kTemporary,
                               .why = "another agent started on this host",
                               .keeps_ranks = true});
    agents_.erase(other->second);
  }
  id_of_[join.host] = id;
  Agent& agent = agents_[id];
  agent = {.join = join, .heard = now};
  send(id, Welcome{options_.term, last_judged_});
  record("joined", {{"host", join.host}});
  const auto running = join.running.attempt;
  // This leader has started no ranks yet, so it adopts those that run, however late their agents
  // join: storage may have kept them from finding it.
  if ((phase_ == Phase::adopt || phase_ == Phase::gather) && attempts_ == 0 &&
      running > std::max(attempt_.number, last_judged_)) {
    if (phase_ == Phase::gather) until_ = now + options_.adopt;
    phase_ = Phase::adopt;
    const auto hosts = static_cast<std::size_t>(join.running.hosts);
    attempt_ = {.number = running, .places = std::vector<std::string>(hosts)};
    draining_.clear();  // it was started without that host
    if (known_.number == running) attempt_ = known_;
    evidence_ = {.attempt = attempt_, .slots = options_.slots, .noted_step = noted_step_};
  }
  const auto place = static_cast<std::size_t>(join.running.number);
  if (running != 0 && running == attempt_.number && place < attempt_.places.size() &&
      attempt_.places[place].empty())
    attempt_.places[place] = join.host;
  if (phase_ == Phase::adopt || running == 0) {
    agent.has_ended = running == 0;
  } else if (running == attempt_.number && phase_ != Phase::prepare && phase_ != Phase::gather) {
    agent.has_ended = false;
    if (phase_ == Phase::judge) send(id, Stop{running, false});
  } else {
    agent.has_ended = false;
    send(id, Stop{running, false});
  }
}

LeaderActions Leader::closed(const std::string& id, Deadline now) {
  const auto found = agents_.find(id);
  if (found == agents_.end()) return {};
  found->second.present = false;
  record("agent lost", {{"host", found->second.join.host}});
  if (phase_ == Phase::prepare &&
      std::ranges::find(attempt_.places, found->second.join.host) != attempt_.places.end())
    gather_in(Milliseconds(0), now);
  return std::exchange(actions_, {});
}

LeaderActions Leader::stop(const std::string& why, Deadline now, int exit_code) {
  stop_run(why, exit_code, now);
  return std::exchange(actions_, {});
}

void Leader::stop_run(const std::string& why, int exit_code, Deadline now) {
  if (phase_ == Phase::over) return;
  if (!asked_.empty() && exit_code != kInterrupted) return;
  record("asked to stop", {{"why", why}, {"exit_code", exit_code}});
  asked_code_ = exit_code;  // a user's request counts more than a signal before it
  if (!std::exchange(asked_, why).empty()) return;
  if (phase_ == Phase::run) {
    evidence_.asked = why;
    stop_ranks(true, now);
    until_ = now + options_.save;
  } else if (phase_ != Phase::judge && phase_ != Phase::adopt) {
    over(exit_code, why, now);
  }
}

// A host shuts down, or its pod is evicted. If too few others stay, the run ends.
void Leader::ask_to_leave(const std::string& id, const std::string& why, Deadline now) {
  Agent& agent = agents_.at(id);
  if (std::exchange(agent.leaves, why).empty() && phase_ != Phase::adopt) let_leave(agent, now);
}

void Leader::let_leave(const Agent& agent, Deadline now) {
  if (phase_ == Phase::over) return;
  const auto& host = agent.join.host;
  // Hosts that are absent count, because they may return. While the leader gathers, one other host
  // is enough, because more may join.
  const auto stay = std::ranges::count_if(agents_, [&](const auto& one) {
    const auto& [id, other] = one;
    return other.leaves.empty() && now - other.heard < options_.rejoin &&
           !policy_.is_excluded(other.join.host, now);
  });
  const int least = phase_ == Phase::gather ? 1 : options_.least;
  if (stay < least) return stop_run(agent.leaves, kTemporary, now);
  record("leaves", {{"host", host}, {"why", agent.leaves}});
  if (!agent.has_ended || phase_ == Phase::prepare) leave(host, now);
  if (agent.has_ended) send(agent.join.id, Over{.exit_code = kLeft, .why = agent.leaves});
}

LeaderActions Leader::drain(const std::string& host, const std::string& why, Deadline now) {
  const auto answer = [&](bool is_done, const std::string& text) {
    actions_.emplace_back(DrainAnswer{is_done, text});
    return std::exchange(actions_, {});
  };
  if (at(host) == nullptr) return answer(false, str("no agent runs on host ", host));
  if (!asked_.empty() || phase_ == Phase::over) return answer(false, "the run ends");
  const auto others = std::ranges::count_if(agents_, [&](const auto& one) {
    return one.second.join.host != host && may_train(one.second, now);
  });
  if (others < options_.least)
    return answer(false, str("only ", others, " other hosts are there, but the run needs ",
                             options_.least, "; add a spare host first"));
  policy_.exclude(host, /*broken=*/true, now);
  record("drained", {{"host", host}, {"why", why}});
  leave(host, now);
  return answer(true, draining_ == host ? str("the ranks save and restart without host ", host)
                                        : str("host ", host, " is not used until supervise ends"));
}

void Leader::exclude(const std::string& host, const std::string& why, Deadline now) {
  policy_.exclude(host, false, now);
  record("excluded", {{"host", host}, {"why", why}});
  actions_.emplace_back(BadHost{host, why});
}

// If the host trains, the ranks save and restart without it.
void Leader::leave(const std::string& host, Deadline now) {
  if (std::ranges::find(attempt_.places, host) == attempt_.places.end()) return;
  if (phase_ == Phase::run) {
    draining_ = host;
    stop_ranks(true, now);
    until_ = now + options_.save;
  }
  if (phase_ == Phase::prepare) gather_in(Milliseconds(0), now);
}

// A straggler delays all ranks. If a spare is ready, it takes the place of its host.
void Leader::slow(const Slow& slow, Deadline now) {
  if (phase_ != Phase::run || !asked_.empty() || !draining_.empty() || slow.hosts.size() != 1)
    return;
  const auto& host = slow.hosts.front();
  if (std::ranges::find(attempt_.places, host) == attempt_.places.end()) return;
  const bool has_spare = std::ranges::any_of(agents_, [&](auto& one) {
    return is_usable(one.second, now) && is_checked(one.second, now);
  });
  if (!has_spare) return;
  exclude(host, "it is a straggler", now);
  leave(host, now);
}

LeaderActions Leader::time(Deadline now) {
  // Late: this process was stopped, and received nothing meanwhile.
  if (const auto late = now - turned_; late > kLateTurn) {
    seen_ += late;
    for (auto& [id, agent] : agents_)
      agent.heard = std::min<Deadline>(agent.heard + late, now);
  }
  turned_ = now;
  switch (phase_) {
    case Phase::adopt:
      if (now < until_) break;
      adopt(now);
      for (const auto& [id, agent] : agents_)
        if (is_heard(agent, now) && !agent.leaves.empty()) let_leave(agent, now);
      break;
    case Phase::gather: gather(now); break;
    case Phase::prepare:
      if (attended(now).size() != attempt_.places.size()) {
        gather_in(Milliseconds(0), now);
      } else if (now >= until_) {
        // If no host answers, the hosts are not to blame.
        const auto agents = attended(now);
        const bool any = std::ranges::any_of(agents, [](auto* one) { return one->is_prepared; });
        for (const auto& host : any ? attempt_.places : std::vector<std::string>())
          if (const auto* agent = at(host); agent == nullptr || !agent->is_prepared)
            exclude(host, "it did not answer in time", now);
        gather_in(any ? Milliseconds(0) : options_.readmit, now);
      }
      break;
    case Phase::run:
      if (((!asked_.empty() || !draining_.empty()) && now >= until_) ||
          (finish_ && now >= *finish_)) {
        begin_judging(Milliseconds(0), now);
      } else {
        check_spares(now);
        if (finish_) look_at_ends(now);
        if (phase_ == Phase::run) watch_orphans(now);
      }
      break;
    case Phase::judge: judge(now); break;
    case Phase::over: break;
  }
  return std::exchange(actions_, {});
}

// Continues with the attempt that the agents report, or that the records say runs.
void Leader::adopt(Deadline now) {
  for (const auto& [id, agent] : agents_)
    if (const auto running = agent.join.running.attempt; running != 0 && running != attempt_.number)
      send(id, Stop{running, false});
  if (attempt_.number == 0 && !asked_.empty()) return over(asked_code_, asked_, now);
  if (attempt_.number == 0) return gather_in(Milliseconds(0), now);
  record("adopted", {{"attempt", attempt_.number}, {"hosts", json_list(attempt_.places)}});
  phase_ = Phase::run;
  seen_ = now;
  look_at_ends(now);
  // A host that has booted again ended it. The ranks of the others end by themselves.
  const auto agents = attended(now);
  const auto has_lost_ranks = [&, place_of = places()](const Agent* agent) {
    const int rank = place_of.at(agent->join.host) * options_.slots;
    const auto first = evidence_.ended.lower_bound(rank);
    const bool has_reported = first != evidence_.ended.end() && *first < rank + options_.slots;
    return agent->has_ended && !has_reported;
  };
  if (phase_ == Phase::run && std::ranges::any_of(agents, has_lost_ranks)) {
    finish_ = std::min(finish_.value_or(Deadline::max()), now + options_.orphaned);
    if (std::ranges::all_of(agents, &Agent::has_ended)) begin_judging(options_.evidence, now);
  }
  if ((asked_.empty() && draining_.empty()) || phase_ == Phase::judge) return;
  evidence_.asked = asked_;
  stop_ranks(true, now);
  until_ = now + options_.save;
}

void Leader::gather_in(Milliseconds pause, Deadline now) {
  phase_ = Phase::gather;
  earliest_ = now + pause;
  const bool is_first = attempt_.number == 0 && !options_.is_same_start;
  until_ = earliest_ + (is_first ? options_.gather : options_.rejoin);
}

bool Leader::is_usable(const Agent& agent, Deadline now) const {
  return agent.has_ended && may_train(agent, now);
}

void Leader::gather(Deadline now) {
  if (now < earliest_) return;
  std::vector<std::string> usable, excluded;
  for (const auto& [id, agent] : agents_)
    if (is_usable(agent, now))
      usable.push_back(agent.join.host);
    else if (is_heard(agent, now) && agent.has_ended && agent.leaves.empty())
      excluded.push_back(agent.join.host);
  std::ranges::sort(usable);
  const auto need = static_cast<std::size_t>(options_.need);
  const auto least = static_cast<std::size_t>(options_.least);
  if (usable.size() < least && usable.size() + excluded.size() >= least) {
    if (const auto host = policy_.readmit(excluded, now); !host.empty()) {
      record("readmitted", {{"host", host}, {"why", "there are too few other hosts"}});
      earliest_ = now + options_.readmit;  // it may fail again at once
      return;
    }
  }
  if (usable.size() < need && now < until_) return;
  if (usable.size() < least) {
    return over(kTemporary,
                str("the run needs ", least, " hosts, but only ", usable.size(), " can be used"),
                now);
  }

  // A host that left may have joined again, but is about to shut down.
  if (usable.size() > need) std::erase(usable, draining_);
  // Hosts keep their places, and spares take the others.
  std::vector<std::string> places(std::min(need, usable.size()));
  std::set<std::string> free(usable.begin(), usable.end());
  for (std::size_t place = 0; place < std::min(places.size(), attempt_.places.size()); ++place)
    if (free.erase(attempt_.places[place]) > 0) places[place] = attempt_.places[place];
  for (auto& place : places)
    if (place.empty()) place = free.extract(free.begin()).value();
  prepare(std::move(places), now);
}

void Leader::prepare(std::vector<std::string> places, Deadline now) {
  phase_ = Phase::prepare;
  until_ = now + options_.check;
  root_.reset();
  attempt_ = {.number = options_.term * kAttemptsPerTerm + ++attempts_,
              .places = std::move(places)};
  evidence_ = {.attempt = attempt_, .slots = options_.slots, .noted_step = noted_step_};
  record("preparing", {{"attempt", attempt_.number}, {"hosts", json_list(attempt_.places)}});
  for (auto* agent : attended(now)) {
    agent->is_prepared = false;
    send(agent->join.id, Prepare{.attempt = attempt_.number,
                                 .check = !is_checked(*agent, now),
                                 .leads = agent->join.host == attempt_.places.front()});
  }
}

void Leader::ready(const std::string& id, const Ready& ready, Deadline now) {
  Agent& agent = agents_.at(id);
  const bool is_spare = ready.attempt == 0;
  if (!is_spare && (phase_ != Phase::prepare || ready.attempt != attempt_.number)) return;
  if (is_spare) agent.is_checking = false;
  if (!ready.fault.empty()) {
    exclude(agent.join.host, ready.fault, now);
    if (!is_spare) gather_in(Milliseconds(0), now);
    return;
  }
  if (!is_checked(agent, now)) agent.checked = now;
  if (is_spare) return;
  agent.is_prepared = true;
  if (agent.join.host == attempt_.places.front()) root_ = ready;
  const bool waits = any_waits([&](const Agent* one) {
    return one == nullptr || !is_heard(*one, now) || !one->is_prepared;
  });
  if (!waits) start(now);
}

void Leader::start(Deadline now) {
  using Seconds = std::chrono::duration<double>;
  RestartSeconds restart;
  if (ended_ && judged_)
    restart = {.judge = Seconds(*judged_ - *ended_).count(),
               .prepare = Seconds(now - *judged_).count()};
  ended_.reset();
  for (std::size_t place = 0; place < attempt_.places.size(); ++place) {
    auto* agent = at(attempt_.places[place]);
    agent->has_ended = false;
    send(agent->join.id, Start{.place = {.attempt = attempt_.number,
                                         .number = static_cast<int>(place),
                                         .hosts = static_cast<int>(attempt_.places.size())},
                               .takes_over = options_.takes_over || attempts_ > 1,
                               .addresses = root_->addresses,
                               .port = root_->port,
                               .restart = restart,
                               .noted_step = noted_step_,
                               .skip_step = skip_step_});
  }
  phase_ = Phase::run;
  seen_ = now;
  draining_.clear();
  finish_.reset();
  record("started", {{"attempt", attempt_.number}, {"hosts", json_list(attempt_.places)}});
}

Leader::Agent* Leader::at(const std::string& host) {
  const auto found = id_of_.find(host);
  return found == id_of_.end() ? nullptr : &agents_.at(found->second);
}

std::vector<Leader::Agent*> Leader::attended(Deadline now) {
  std::vector<Agent*> agents;
  for (const auto& host : attempt_.places)
    if (auto* agent = at(host); agent != nullptr && is_heard(*agent, now)) agents.push_back(agent);
  return agents;
}

// Thousands of hosts report one after the other, so the place that was waited for is looked at
// first.
bool Leader::any_waits(FunctionRef<bool(const Agent* agent)> waits) {
  const auto places = attempt_.places.size();
  for (std::size_t i = 0; i < places; ++i) {
    const auto place = (waits_for_ + i) % places;
    if (!waits(at(attempt_.places[place]))) continue;
    waits_for_ = place;
    return true;
  }
  return false;
}

bool Leader::all_ended(Deadline now) {
  return !any_waits([&](const Agent* agent) {
    return agent != nullptr && is_heard(*agent, now) && !agent->has_ended;
  });
}

void Leader::ended(const std::string& id, const Ended& ended, Deadline now) {
  Agent& agent = agents_.at(id);
  if (ended.all) {
    agent.has_ended = true;
    agent.join.running = {};
    if (!agent.leaves.empty()) send(id, Over{.exit_code = kLeft, .why = "its host leaves the run"});
  }
  if (ended.attempt != attempt_.number ||
      (phase_ != Phase::adopt && phase_ != Phase::run && phase_ != Phase::judge))
    return;
  for (const auto& end : ended.ranks)  // an agent that joins again repeats its reports
    evidence_.add(end);
  auto& xids = evidence_.xids[agent.join.host];
  xids.insert(xids.end(), ended.xids.begin(), ended.xids.end());
  if (phase_ == Phase::run) look_at_ends(now);
  if (phase_ == Phase::judge) judge(now);
}

// Judges the attempt if a rank failed or all have ended. A silent host may still train, unless rank
// 0 has ended the run.
void Leader::look_at_ends(Deadline now) {
  const bool is_complete = evidence_.root_code == 0;
  const bool all = is_complete ? all_ended(now) : !any_waits([](const Agent* agent) {
    return agent == nullptr || !agent->has_ended;
  });
  // Ranks of a complete run end together, so this holds for an exit code that no agent saw too.
  const bool saves = !asked_.empty() || !draining_.empty();
  if (evidence_.any_failed || all)
    return begin_judging(saves ? options_.save : options_.evidence, now);
  if (!finish_ && !evidence_.ends.empty()) finish_ = now + options_.finish;
}

// The ranks that are left have `wait` to end by themselves.
void Leader::begin_judging(Milliseconds wait, Deadline now) {
  phase_ = Phase::judge;
  judging_ = Judging::evidence;
  until_ = now + wait;
  ended_ = now;
  record("ended", {{"attempt", attempt_.number}});
}

void Leader::check_spares(Deadline now) {
  for (auto& [id, agent] : agents_)
    if (is_usable(agent, now) && !is_checked(agent, now) && !agent.is_checking) {
      agent.is_checking = true;
      send(id, Prepare{.attempt = 0, .check = true});
    }
}

// Ranks that no agent watches: whether they still train shows in the progress of the run.
void Leader::watch_orphans(Deadline now) {
  if (!all_ended(now)) {
    seen_ = now;
    return;
  }
  // If storage does not answer, the ranks may still train, and agents cannot find this leader.
  if (now - seen_ < options_.orphaned || now - read_ > 2 * options_.progress) {
    if (now >= next_read_) {
      next_read_ = now + options_.progress;
      actions_.emplace_back(ReadProgress());
    }
    return;
  }
  begin_judging(Milliseconds(0), now);
  judge(now);
}

void Leader::stop_ranks(bool save, Deadline now) {
  for (const auto* agent : attended(now))
    if (!agent->has_ended) send(agent->join.id, Stop{attempt_.number, save});
}

// Waits for the evidence, kills the ranks that are left, and asks for the progress of the run.
void Leader::judge(Deadline now) {
  if (judging_ == Judging::progress) {
    if (now >= until_) decide(now);
    return;
  }
  if (!all_ended(now)) {
    if (now < until_) return;
    if (judging_ == Judging::evidence) {
      judging_ = Judging::killed;
      until_ = now + options_.kill;
      for (const auto* agent : attended(now))
        if (!agent->has_ended) evidence_.late.push_back(agent->join.host);
      return stop_ranks(false, now);
    }
    for (const auto* agent : attended(now))
      if (!agent->has_ended) evidence_.stuck.push_back(agent->join.host);
  }
  std::set<std::string> named;
  for (const auto& end : evidence_.ends)
    named.insert(end.lost.begin(), end.lost.end());
  for (const auto& host : attempt_.places) {
    // Only ranks know whether a host that has not joined this leader is lost.
    const auto* agent = at(host);
    if (agent == nullptr ? named.contains(host) : !is_heard(*agent, now))
      evidence_.gone.push_back(host);
  }
  judging_ = Judging::progress;
  until_ = now + options_.progress;
  actions_.emplace_back(ReadProgress());
}

LeaderActions Leader::progress(std::int64_t saved_step, std::int64_t last_step, int end_code,
                               Deadline now) {
  if (last_step != kUnknown) read_ = now;
  if (last_step > seen_step_) {
    seen_step_ = last_step;
    seen_ = now;
  }
  if (phase_ == Phase::judge && judging_ == Judging::progress) {
    evidence_.saved_step = saved_step;
    evidence_.last_step = last_step;
    // No agent saw the exit code of rank 0. Code 75 has several causes.
    auto& ends = evidence_.ends;
    const auto root = std::ranges::find(ends, 0, &RankEnd::rank);
    if (end_code >= 0 && end_code != kTemporary && (root == ends.end() || root->unwatched)) {
      if (root != ends.end()) ends.erase(root);
      ends.push_back({.rank = 0, .exit_code = end_code});
    }
    decide(now);
  }
  return std::exchange(actions_, {});
}

void Leader::decide(Deadline now) {
  judged_ = now;
  evidence_.attempt = attempt_;  // agents that joined have named its hosts
  auto cause = classify(evidence_);
  const bool is_final = cause.kind == CauseKind::done || cause.exit_code == kInterrupted;
  if (!draining_.empty() && asked_.empty() && !is_final) {
    last_judged_ = attempt_.number;
    record("restarting",
           {{"attempt", attempt_.number}, {"why", str("host ", draining_, " is left out")}});
    return gather_in(Milliseconds(0), now);
  }
  if (cause.kind == CauseKind::asked && !asked_.empty() && !is_final) cause.exit_code = asked_code_;
  // Agents repeat a request to stop to each new leader, and this leader received none. So an
  // earlier leader drained a host or let it leave, and the record was lost.
  if (cause.kind == CauseKind::asked && cause.exit_code == kTemporary && asked_.empty() &&
      attempts_ == 0) {
    last_judged_ = attempt_.number;
    record("restarting", {{"attempt", attempt_.number},
                          {"why", "an earlier leader stopped the ranks to leave out a host"}});
    return gather_in(Milliseconds(0), now);
  }
  const auto other = cause.hosts.empty() ? "" : substitute(cause.hosts.front(), now);
  evidence_.can_move = !other.empty();
  const auto decision = policy_.decide(cause, evidence_, now);
  last_judged_ = attempt_.number;
  for (const auto& host : cause.hosts)
    if (auto* agent = at(host); agent != nullptr && cause.kind != CauseKind::process)
      agent->checked.reset();
  record("judged", {{"attempt", attempt_.number},
                    {"cause", str(name(cause.kind))},
                    {"hosts", json_list(cause.hosts)},
                    {"why", decision.why},
                    {"saved_step", evidence_.saved_step},
                    {"last_step", evidence_.last_step},
                    {"restarts", decision.restarts},
                    {"exit_code", cause.exit_code},
                    {"signature", cause.signature},
                    {"step", cause.step},
                    {"can_move", evidence_.can_move}});
  for (const auto& host : decision.exclude) {
    record("excluded", {{"host", host}, {"why", cause.text}, {"cause", str(name(cause.kind))}});
    actions_.emplace_back(BadHost{host, cause.text});
  }
  if (!decision.restarts) return over(decision.exit_code, decision.why, now);
  if (!asked_.empty()) return over(asked_code_, asked_, now);
  follow(decision);
  if (decision.skip_step > 0) record("skipped", {{"step", decision.skip_step}});
  if (!decision.move.empty()) move(decision.move, other);
  gather_in(decision.pause, now);
}

void Leader::follow(const Decision& decision) {
  noted_step_ = decision.noted_step;
  if (skip_step_ <= evidence_.saved_step) skip_step_ = 0;  // a checkpoint has it
  if (decision.skip_step > 0) skip_step_ = decision.skip_step;
}

// Returns the host that computes the ranks of this one in the next attempt: a spare, else another
// host of the attempt; "": none. An error that comes back then shows whether the host causes it.
std::string Leader::substitute(const std::string& host, Deadline now) const {
  std::string best;
  const auto place_of = places();
  for (const auto& [id, agent] : agents_) {
    const auto& other = agent.join.host;
    if (other == host || !is_usable(agent, now)) continue;
    if (!place_of.contains(other)) return other;
    if (best.empty()) best = other;
  }
  return best;
}

void Leader::move(const std::string& host, const std::string& to) {
  record("moved", {{"host", host}, {"to", to}});
  for (auto& place : attempt_.places)
    if (place == host)
      place = to;
    else if (place == to)
      place = host;
}

std::map<std::string, int> Leader::places() const {
  std::map<std::string, int> places;
  for (std::size_t place = 0; place < attempt_.places.size(); ++place)
    places.emplace(attempt_.places[place], static_cast<int>(place));
  return places;
}

void Leader::over(int exit_code, const std::string& why, Deadline now) {
  phase_ = Phase::over;
  exit_code_ = exit_code;
  record("over", {{"exit_code", exit_code}, {"why", why}});
  for (const auto& [id, agent] : agents_)
    if (agent.present) send(id, Over{exit_code, why});
  std::vector<std::string> excluded;
  for (const auto& [id, agent] : agents_)
    if (policy_.is_excluded(agent.join.host, now)) excluded.push_back(agent.join.host);
  actions_.emplace_back(RunOver{exit_code, why, std::move(excluded)});
}

void Leader::send(const std::string& agent, FromLeader message) {
  actions_.emplace_back(SendTo{agent, std::move(message)});
}

Json Leader::status(Deadline now) const {
  Json::Array hosts;
  const auto place_of = places();
  for (const auto& [id, agent] : agents_) {
    const auto& host = agent.join.host;
    const auto found = place_of.find(host);
    const bool is_used = found != place_of.end() && !agent.has_ended;
    hosts.push_back(Json::Object{{"host", host},
                                 {"state", policy_.is_excluded(host, now) ? "excluded"
                                           : !is_heard(agent, now)        ? "silent"
                                           : is_used                      ? "training"
                                                                          : "spare"},
                                 {"place", is_used ? Json(found->second) : Json()}});
  }
  return Json::Object{{"phase", str(words_of(phase_))},
                      {"term", options_.term},
                      {"attempt", attempt_.number},
                      {"hosts", Json(std::move(hosts))}};
}

}  // namespace lockstep
