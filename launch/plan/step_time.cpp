#include "launch/plan/step_time.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr auto kNone = std::numeric_limits<std::size_t>::max();

// Player simulates a log: each stream runs its own entries in order.
class Player {
 public:
  Player(const StepProgram& program, const StreamCosts& costs)
      : entries_(program.log->entries()), costs_(costs) {
    streams_.resize(program.log->streams().size());
    std::size_t launched_before = kNone;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      streams_[entries_[i].stream].entries.push_back(i);
      last_event_ = std::max(last_event_, entries_[i].event);
      if (entries_[i].what == OpLog::What::op) host_ += costs.launch_seconds(entries_[i].op);
      issued_.push_back(host_);
      const Op& op = entries_[i].op;
      const bool is_call = op.kind == Op::Kind::collective && !op.is_nothing();
      launched_before_.push_back(is_call ? launched_before : kNone);
      if (is_call && costs.extends_order(op)) launched_before = i;
    }
    has_begun_.resize(entries_.size());
    done_.resize(static_cast<std::size_t>(last_event_) + 1);
    for (const auto& stream : streams_)
      for (const std::size_t i : stream.entries)
        if (entries_[i].what == OpLog::What::record)
          done_[static_cast<std::size_t>(entries_[i].event)] = Event{.is_known = true};
  }

  // Runs until compute has done its entries before `end`.
  void play_to(std::size_t end) {
    for (;;) {
      while (settle()) {
      }
      Track& compute = streams_.front();
      if (compute.at == compute.entries.size() || compute.entries[compute.at] >= end) return;
      advance();
    }
  }

  const StepTime& time() const { return time_; }
  // Compute time since the last collective at which ranks wait for each other, and the number of
  // these collectives.
  double alone() const { return alone_; }
  std::int64_t meetings() const { return meetings_; }
  void add_alone(double seconds) { alone_ += seconds; }

 private:
  struct Event {
    bool is_known = false;  // recorded in this step; other events are done already
    bool is_done = false;
    Component behind = Component::other;  // the last component of its stream before it
  };
  struct Track {
    std::vector<std::size_t> entries;
    std::size_t at = 0;
    bool runs = false;
    double left = 0;  // remaining seconds of the running call, if it ran alone
    double slower = 1;
    Component last = Component::other;

    std::size_t entry() const { return entries[at]; }
  };

  bool is_collective(const Track& track) const {
    return entries_[track.entry()].op.kind == Op::Kind::collective;
  }

  bool waits_for_launch(std::size_t entry) const {
    const auto before = launched_before_[entry];
    return before != kNone && !has_begun_[before];
  }

  bool may_begin(const Track& track, std::size_t entry) const {
    if (!costs_.host_computes) return issued_[entry] <= now_ * (1 + 1e-12);
    const Track& compute = streams_.front();
    return &track == &compute || compute.at == compute.entries.size() ||
           compute.entries[compute.at] > entry;
  }

  // Processes entries that take no time. Returns false if there were none.
  bool settle() {
    bool any = false;
    for (Track& track : streams_) {
      while (!track.runs && track.at < track.entries.size()) {
        const auto& entry = entries_[track.entries[track.at]];
        auto& event = done_[static_cast<std::size_t>(entry.event)];
        if (!may_begin(track, track.entries[track.at])) break;
        if (entry.what == OpLog::What::wait && event.is_known && !event.is_done) break;
        if (waits_for_launch(track.entry())) break;
        if (entry.what == OpLog::What::op) {
          has_begun_[track.entry()] = true;
          track.runs = true;
          track.left = costs_.seconds(entry.op) + wait_for_others(entry.op);
          track.last = component_of(entry.op, entry.within);
          any = true;
          break;
        }
        if (entry.what == OpLog::What::record)
          event = {.is_known = true, .is_done = true, .behind = track.last};
        ++track.at;
        any = true;
      }
    }
    return any;
  }

  // Ranks wait for each other at the collectives that launch/preflight/rank_waits.cpp measures.
  double wait_for_others(const Op& op) {
    const bool waits = op.group == Group::tensor || op.group == Group::all;
    if (!waits || op.kind != Op::Kind::collective || op.is_nothing()) return 0;
    ++meetings_;
    return costs_.wait_share * std::exchange(alone_, 0);
  }

  // Advances to the end of a call, or to the time when the host launches the next one.
  void advance() {
    const bool computes = streams_.front().runs;
    double beside = 1;
    for (std::size_t s = 1; s < streams_.size(); ++s)
      if (streams_[s].runs)
        beside = std::max(beside, costs_.compute_beside(entries_[streams_[s].entry()].op));
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      Track& track = streams_[s];
      if (track.runs) {
        track.slower = (s == 0 ? beside : (computes ? costs_.other_beside : 1.0)) * network_wait(s);
        next = std::min(next, track.left * track.slower);
      } else if (!costs_.host_computes && track.at < track.entries.size() &&
                 issued_[track.entries[track.at]] > now_) {
        next = std::min(next, issued_[track.entries[track.at]] - now_);
      }
    }
    LOCKSTEP_CHECK(next < std::numeric_limits<double>::infinity(),
                   "streams of a recorded step wait for each other");
    now_ += next;
    time_[waits_for()] += next;
    if (computes && !is_collective(streams_.front())) alone_ += next;
    for (Track& track : streams_) {
      if (!track.runs) continue;
      track.left -= next / track.slower;
      if (track.left > 1e-15) continue;
      track.runs = false;
      ++track.at;
    }
  }

  double network_share(const Track& track) const {
    return track.runs && is_collective(track) ? costs_.network_share(entries_[track.entry()].op)
                                              : 0.0;
  }
  // Slowdown factor of a stream's call by calls of other streams on the same NIC.
  double network_wait(std::size_t s) const {
    const double share = network_share(streams_[s]);
    if (share == 0) return 1;
    double others = 0;
    for (const Track& other : streams_)
      if (&other != &streams_[s]) others += network_share(other);
    return 1 + share * others;
  }

  // The component that compute runs or waits for.
  Component waits_for() const {
    const Track& compute = streams_.front();
    if (compute.runs) return compute.last;
    if (compute.at == compute.entries.size()) return Component::other;
    if (!may_begin(compute, compute.entry())) return Component::other;
    if (waits_for_launch(compute.entry()))
      return component_of(entries_[launched_before_[compute.entry()]].op.group);
    const auto& entry = entries_[compute.entry()];
    if (entry.what != OpLog::What::wait) return Component::other;
    for (const Track& track : streams_)  // the stream that records the event
      for (std::size_t i = track.at; i < track.entries.size(); ++i) {
        const auto& next = entries_[track.entries[i]];
        if (next.what == OpLog::What::record && next.event == entry.event)
          return component_before(track, i);
        if (track.entries[i] > compute.entries[compute.at]) break;
      }
    return Component::other;
  }

  // The component of the last collective or copy of a stream before its entry i.
  Component component_before(const Track& track, std::size_t i) const {
    while (i-- > 0) {
      const auto& entry = entries_[track.entries[i]];
      if (entry.what == OpLog::What::op &&
          (entry.op.kind == Op::Kind::collective || entry.op.kind == Op::Kind::transfer))
        return component_of(entry.op, entry.within);
    }
    return Component::other;
  }

  const std::vector<OpLog::Entry>& entries_;
  const StreamCosts& costs_;
  std::vector<Track> streams_;
  std::vector<double> issued_;                // time at which the host launches each entry
  std::vector<std::size_t> launched_before_;  // the last collective that extends the launch order
  std::vector<bool> has_begun_;               // each entry
  double host_ = 0, now_ = 0;
  double alone_ = 0;
  std::int64_t meetings_ = 0;
  std::int64_t last_event_ = 0;
  std::vector<Event> done_;
  StepTime time_;
};

}  // namespace

StepTime step_time(const StepProgram& program, const StreamCosts& costs) {
  Player player(program, costs);
  const auto& ends = program.micro_ends;
  StepTime repeated;  // a middle micro-batch
  const auto more = static_cast<double>(program.micro_batches) - static_cast<double>(ends.size());
  for (std::size_t m = 0; m < ends.size(); ++m) {
    const StepTime before = player.time();
    const double alone = player.alone();
    const auto meetings = player.meetings();
    player.play_to(ends[m]);
    if (ends.size() != 3 || m != 1) continue;
    for (std::size_t p = 0; p < kComponents; ++p)
      repeated.seconds[p] = player.time().seconds[p] - before.seconds[p];
    if (player.meetings() == meetings) player.add_alone(more * (player.alone() - alone));
  }
  player.play_to(program.log->entries().size());
  StepTime time = player.time();
  for (std::size_t p = 0; p < kComponents; ++p)
    time.seconds[p] += more * repeated.seconds[p];
  return time;
}

}  // namespace lockstep
