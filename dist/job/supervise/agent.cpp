#include "dist/job/supervise/agent.h"

#include <utility>

namespace lockstep {

Agent::Agent(AgentOptions options, Deadline now)
    : options_(std::move(options)),
      running_(options_.join.running),
      changed_(now),
      reached_(now),
      next_look_(now),
      next_beat_(now) {}

AgentActions Agent::looked(const Records& records, Deadline now) {
  if (link_ != Link::looking) return {};
  link_ = Link::none;
  next_look_ = now + options_.look;
  if (!records.readable) return {};  // no process can claim a term either
  if (records.newest.number != term_.number || records.alive != alive_) changed_ = now;
  term_ = records.newest;
  alive_ = records.alive;
  if (alive_ == "over" && has_joined_) {  // it missed the leader's message
    if (running_.attempt != 0) actions_.emplace_back(StopRanks{false});
    actions_.emplace_back(EndAgent{records.exit_code, "the run is over"});
    return std::exchange(actions_, {});
  }
  // The leader of a run that has just ended tells this agent so.
  const bool is_over = alive_ == "over" && asked_over_ == term_.number;
  if (alive_ == "over") asked_over_ = term_.number;
  const bool is_vacant = term_.number == 0 || is_over;
  const bool is_dead = now - changed_ >= options_.patience && now - reached_ >= options_.patience;
  if (is_vacant || is_dead) {
    link_ = Link::claiming;
    actions_.emplace_back(ClaimTerm{term_.number + 1});
  } else {
    link_ = Link::connecting;
    actions_.emplace_back(ConnectTo{term_});
  }
  return std::exchange(actions_, {});
}

AgentActions Agent::claimed(bool won, Deadline now) {
  if (link_ != Link::claiming) return {};
  link_ = Link::none;
  changed_ = now;
  next_look_ = won ? now : now + options_.look;
  return {};
}

AgentActions Agent::connected(Deadline now) {
  if (link_ != Link::connecting) return {};
  link_ = Link::joined;
  reached_ = now;
  next_beat_ = now + options_.beat;
  Join join = options_.join;
  join.running = running_.attempt != 0 ? running_ : reported_;
  send(std::move(join));
  for (const auto& ended : reports_)
    send(ended);
  if (asked_) send(*asked_);
  return std::exchange(actions_, {});
}

AgentActions Agent::disconnected(Deadline now) {
  if (link_ == Link::joined) lose_leader(now);
  if (link_ == Link::joined || link_ == Link::connecting) link_ = Link::none;
  prepared_ = 0;
  return {};
}

void Agent::lose_leader(Deadline now) {
  changed_ = next_look_ = now;
  next_stop_ = now + options_.alone;
}

AgentActions Agent::message(const FromLeader& message, Deadline now) {
  if (link_ != Link::joined) return {};
  reached_ = now;
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    has_joined_ = true;
    if (reported_.attempt != 0 && reported_.attempt <= welcome->judged) {
      reported_ = {};
      reports_.clear();
    }
  } else if (const auto* prepare = std::get_if<Prepare>(&message)) {
    if (running_.attempt != 0) {
      send(Ready{.attempt = prepare->attempt, .fault = "ranks of an earlier attempt still run"});
    } else {
      if (prepare->attempt != 0) prepared_ = prepare->attempt;  // 0: a spare
      actions_.emplace_back(CheckHost{*prepare});
    }
  } else if (const auto* start = std::get_if<Start>(&message)) {
    if (start->place.attempt == prepared_ && running_.attempt == 0) {
      running_ = start->place;
      reported_ = {};
      reports_.clear();
      prepared_ = 0;
      actions_.emplace_back(StartRanks{*start});
    }
  } else if (const auto* stop = std::get_if<Stop>(&message)) {
    if (stop->attempt == running_.attempt && running_.attempt != 0)
      actions_.emplace_back(StopRanks{stop->save});
    else
      send(Ended{.attempt = stop->attempt, .all = true});
  } else if (const auto* over = std::get_if<Over>(&message)) {
    if (running_.attempt != 0 && !over->keeps_ranks) actions_.emplace_back(StopRanks{false});
    actions_.emplace_back(EndAgent{over->exit_code, over->why});
  }
  return std::exchange(actions_, {});
}

AgentActions Agent::checked(const Ready& ready, Deadline) {
  const bool is_asked = ready.attempt == 0 || ready.attempt == prepared_;
  if (is_asked && link_ == Link::joined) send(ready);
  if (ready.attempt == prepared_ && !ready.fault.empty()) prepared_ = 0;
  return std::exchange(actions_, {});
}

AgentActions Agent::ended(const Ended& ended, Deadline) {
  if (ended.attempt != running_.attempt) return {};
  reports_.push_back(ended);
  if (link_ == Link::joined) send(ended);
  if (ended.all) reported_ = std::exchange(running_, {});
  if (ended.all && link_ != Link::joined && asked_) end(*asked_);
  return std::exchange(actions_, {});
}

AgentActions Agent::slow(const Slow& slow, Deadline /*now*/) {
  if (link_ == Link::joined) send(slow);
  return std::exchange(actions_, {});
}

AgentActions Agent::stop(const AskStop& ask, Deadline now) {
  asked_ = ask;
  if (link_ == Link::joined)
    send(ask);
  else
    stop_alone(now);
  return std::exchange(actions_, {});
}

AgentActions Agent::time(Deadline now) {
  if (link_ == Link::joined && now - reached_ >= options_.patience) {
    actions_.emplace_back(Disconnect());
    link_ = Link::none;
    prepared_ = 0;
    lose_leader(now);
  }
  if (asked_ && link_ != Link::joined && now >= next_stop_) stop_alone(now);
  if (link_ == Link::none && now >= next_look_) {
    link_ = Link::looking;
    actions_.emplace_back(Look());
  }
  if (link_ == Link::joined && now >= next_beat_) {
    next_beat_ = now + options_.beat;
    send(AgentBeat());
  }
  return std::exchange(actions_, {});
}

// Without a leader.
void Agent::stop_alone(Deadline now) {
  next_stop_ = now + options_.alone;
  if (running_.attempt != 0)
    actions_.emplace_back(StopRanks{true});
  else
    end(*asked_);
}

void Agent::end(const AskStop& ask) {
  actions_.emplace_back(EndAgent{ask.leaves ? kLeft : TransientError("").exit_code(), ask.why});
}

void Agent::send(FromAgent message) {
  actions_.emplace_back(SendToLeader{std::move(message)});
}

}  // namespace lockstep
