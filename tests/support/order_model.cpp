#include "tests/support/order_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

using What = OrderEntry::What;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// OrderRuns runs a program, entry by entry. Stream s of rank r has number r * width + s.
class OrderRuns {
 public:
  OrderRuns(const OrderProgram& program, const OrderOptions& options);
  std::string mismatch() const;
  std::string search() { return search(State(streams_.size())); }
  OrderTimes times() const;

 private:
  // For each stream, twice the number of entries that ended, plus one if the next one has begun.
  using State = std::vector<std::uint32_t>;
  struct Node {
    std::size_t stream = 0;
    std::uint32_t index = 0;    // in its stream
    std::size_t number = 0;     // collective: of the calls of its group on its rank
    std::size_t event = kNone;  // wait: the entry that records the event
    std::size_t before_in_stream = kNone, before_in_group = kNone, launched_before = kNone;
  };

  const OrderEntry& entry(std::size_t e) const { return program_.entries[e]; }
  std::size_t next(const State& state, std::size_t stream) const {
    const auto& entries = streams_[stream];
    return state[stream] / 2 < entries.size() ? entries[state[stream] / 2] : kNone;
  }
  bool has_begun(const State& state, std::size_t e) const {
    return e == kNone || state[nodes_[e].stream] > 2 * nodes_[e].index;
  }
  bool has_ended(const State& state, std::size_t e) const {
    return e == kNone || state[nodes_[e].stream] > 2 * nodes_[e].index + 1;
  }
  bool is_collective(std::size_t e) const { return entry(e).what == What::collective; }
  bool needs_slots(std::size_t e) const { return is_collective(e) && !entry(e).uses_copy_engines; }
  // The entries of a call, one for each rank of its group.
  std::vector<std::size_t> call_of(std::size_t e) const {
    if (!is_collective(e)) return {e};
    std::vector<std::size_t> call;
    for (const int rank : program_.groups[static_cast<std::size_t>(entry(e).group)].ranks)
      call.push_back(calls_.at({entry(e).group, rank})[nodes_[e].number]);
    return call;
  }
  bool is_complete(const State& state, std::size_t e) const {
    const auto call = call_of(e);
    return std::all_of(call.begin(), call.end(), [&](auto c) { return has_begun(state, c); });
  }
  // The next entry of its stream may begin as soon as its slots are free.
  bool is_ready(const State& state, std::size_t e) const {
    const Node& node = nodes_[e];
    return !has_begun(state, e) && has_ended(state, node.event) &&
           has_ended(state, node.before_in_group) && has_begun(state, node.launched_before);
  }
  // The next entries of a rank's streams that need slots: those that hold them, or are ready.
  std::vector<std::size_t> next_of(const State& state, int rank, bool holding) const {
    std::vector<std::size_t> found;
    for (int s = 0; s < width_; ++s)
      if (const auto e = next(state, static_cast<std::size_t>(rank * width_ + s));
          e != kNone && needs_slots(e))
        if (holding ? has_begun(state, e) : is_ready(state, e)) found.push_back(e);
    return found;
  }
  bool has_slots(const State& state, std::size_t e) const {
    int slots = entry(e).slots;
    for (const auto holder : next_of(state, entry(e).rank, true))
      slots += entry(holder).slots;
    return slots <= options_.slots || !needs_slots(e);
  }
  bool has_enough(int rank) const;
  bool is_finished(const State& state) const {
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (next(state, s) != kNone) return false;
    return true;
  }

  std::string search(State state);
  void begin(State& state, std::size_t e);
  void settle(State& state, int held = -1);
  std::vector<std::size_t> choices_in(const State& state);
  std::string name_of(std::size_t e) const;
  std::string waits_in(const State& state) const;

  const OrderProgram& program_;
  const OrderOptions& options_;
  std::vector<Node> nodes_;
  std::vector<std::vector<std::size_t>> streams_;  // entries of each
  int width_ = 0, ranks_ = 0;
  std::map<std::pair<int, int>, std::vector<std::size_t>> calls_;  // of a group on a rank
  std::set<State> seen_;
  std::vector<std::size_t> begun_;  // the entries that need slots, in their order
};

OrderRuns::OrderRuns(const OrderProgram& program, const OrderOptions& options)
    : program_(program), options_(options), nodes_(program.entries.size()) {
  for (const auto& it : program.entries) {
    width_ = std::max(width_, it.stream + 1);
    ranks_ = std::max(ranks_, it.rank + 1);
  }
  streams_.resize(static_cast<std::size_t>(ranks_ * width_));
  std::map<std::pair<int, std::int64_t>, std::size_t> recorded;
  std::map<int, std::size_t> launched;
  for (std::size_t e = 0; e < nodes_.size(); ++e) {
    const auto& [rank, group, name, what, stream, seconds, slots, copies, event] = entry(e);
    Node& node = nodes_[e];
    node.stream = static_cast<std::size_t>(rank * width_ + stream);
    auto& entries = streams_[node.stream];
    node.index = static_cast<std::uint32_t>(entries.size());
    if (!entries.empty()) node.before_in_stream = entries.back();
    entries.push_back(e);
    if (what == What::wait) node.event = recorded.try_emplace({rank, event}, kNone).first->second;
    if (what == What::record)
      LOCKSTEP_CHECK(recorded.emplace(std::pair(rank, event), e).second, "event ", event,
                     " of rank ", rank, " is recorded after a wait for it, or twice");
    if (what != What::collective) continue;
    auto& calls = calls_[{group, rank}];
    node.number = calls.size();
    if (!calls.empty()) node.before_in_group = calls.back();
    calls.push_back(e);
    auto& last = launched.try_emplace(rank, kNone).first->second;
    if (options.launch_order) node.launched_before = last;
    if (!copies) last = e;
  }
}

// A rank has slots for one collective of each of its streams at once.
bool OrderRuns::has_enough(int rank) const {
  int sum = 0;
  for (int s = 0; s < width_; ++s) {
    int most = 0;
    for (const auto e : streams_[static_cast<std::size_t>(rank * width_ + s)])
      if (needs_slots(e)) most = std::max(most, entry(e).slots);
    sum += most;
  }
  return sum <= options_.slots;
}

std::string place_of(const OrderProgram& program, int rank, int stream) {
  const auto s = static_cast<std::size_t>(stream);
  return str("rank ", rank, ", stream ", s < program.streams.size() ? program.streams[s] : str(s));
}

std::string OrderRuns::name_of(std::size_t e) const {
  const auto& it = entry(e);
  const auto name = place_of(program_, it.rank, it.stream);
  if (it.what == What::record) return name + ": a record";
  if (it.what == What::wait) return name + ": a wait";
  if (it.what == What::compute) return name + ": " + it.name;
  return str(name, ": ", it.name, ", call ", nodes_[e].number, " of ",
             program_.groups[static_cast<std::size_t>(it.group)].name);
}

std::string OrderRuns::mismatch() const {
  for (const auto& [of, calls] : calls_) {
    const auto& group = program_.groups.at(static_cast<std::size_t>(of.first));
    if (std::count(group.ranks.begin(), group.ranks.end(), of.second) != 1)
      return str("mismatch: rank ", of.second, " is not in ", group.name);
    for (const int rank : group.ranks) {
      const auto found = calls_.find({of.first, rank});
      for (std::size_t n = 0; n < calls.size(); ++n) {
        if (found == calls_.end() || n >= found->second.size())
          return str("mismatch: ", name_of(calls[n]), " is not called by rank ", rank);
        if (entry(found->second[n]).name != entry(calls[n]).name)
          return str("mismatch: ", name_of(calls[n]), "; ", name_of(found->second[n]));
      }
    }
  }
  return "";
}

std::string OrderRuns::waits_in(const State& state) const {
  std::string words;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const auto e = next(state, s);
    if (e == kNone) continue;
    words += "\n  " + name_of(e);
    const Node& node = nodes_[e];
    if (has_begun(state, e)) {
      words += " has begun, waits for";
      for (const auto other : call_of(e))
        if (!has_begun(state, other)) words += str(" rank ", entry(other).rank);
    } else if (!has_ended(state, node.event)) {
      words += str(" for ", name_of(node.event));
    } else if (!has_ended(state, node.before_in_group)) {
      words += str(" waits for the end of ", name_of(node.before_in_group));
    } else if (!has_begun(state, node.launched_before)) {
      words += str(" waits in launch order for ", name_of(node.launched_before));
    } else {
      words += " waits for slots of";
      for (const auto holder : next_of(state, entry(e).rank, true))
        words += " " + entry(holder).name;
    }
  }
  return words;
}

void OrderRuns::begin(State& state, std::size_t e) {
  ++state[nodes_[e].stream];
  if (needs_slots(e)) begun_.push_back(e);
}

// Takes all steps that never keep another step from happening. With a held rank it takes all that
// can happen before a collective that needs slots begins there, and more: slots of other ranks do
// not count.
void OrderRuns::settle(State& state, int held) {
  const auto begins = [&](std::size_t e) {
    if (!is_ready(state, e)) return false;
    if (!needs_slots(e)) return true;
    const int rank = entry(e).rank;
    if (held >= 0) return rank != held;
    return has_slots(state, e) && (options_.launch_order || has_enough(rank));
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t s = 0; s < streams_.size(); ++s)
      for (std::size_t e = next(state, s); e != kNone; e = next(state, s)) {
        if (!has_begun(state, e)) {
          if (!begins(e)) break;
          begin(state, e);
          moves = true;
        }
        if (!is_complete(state, e)) break;
        ++state[s];
        moves = true;
      }
  }
}

// Begins of collectives from which the search has to try each.
std::vector<std::size_t> OrderRuns::choices_in(const State& state) {
  std::vector<std::size_t> all, fewest;
  for (int rank = 0; rank < ranks_; ++rank) {
    auto choices = next_of(state, rank, false);
    std::erase_if(choices, [&](auto e) { return !has_slots(state, e); });
    all.insert(all.end(), choices.begin(), choices.end());
    if (choices.empty() || (!fewest.empty() && choices.size() >= fewest.size())) continue;
    State later = state;
    const auto begun = begun_.size();
    settle(later, rank);
    begun_.resize(begun);
    if (next_of(later, rank, false) == choices) fewest = choices;
  }
  return fewest.empty() ? all : fewest;
}

// Returns the deadlock of a run from `state`, or "". Only the begin of a collective that needs
// slots can disable another step: such a begin of the same rank. All other steps commute with every
// step, so one order of them stands for all. With launch order, only one such collective of a rank
// can be next; with slots for one of each stream, none disables another. Otherwise the search tries
// each begin of one rank, if no other collective can need its slots before one of them begins; such
// begins are a persistent set (Godefroid 1996). Else it tries those of all ranks. No run reaches a
// state twice, so it suffices to follow persistent sets to find every deadlock.
std::string OrderRuns::search(State state) {
  settle(state);
  if (!seen_.insert(state).second) return "";
  LOCKSTEP_CHECK(seen_.size() <= options_.most_states, "a search of more than ",
                 options_.most_states, " states");
  const auto choices = choices_in(state);
  const auto begun = begun_.size();
  for (const auto e : choices) {
    State after = state;
    begun_.resize(begun);
    begin(after, e);
    if (auto found = search(std::move(after)); !found.empty()) return found;
  }
  if (!choices.empty() || is_finished(state)) return "";
  std::string words = "deadlock:" + waits_in(state) + "\nafter the begins of";
  for (const auto e : begun_)
    words += "\n  " + name_of(e);
  return words;
}

OrderTimes OrderRuns::times() const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto n = nodes_.size();
  OrderTimes times{.begin = std::vector(n, kNever), .end = std::vector(n, kNever), .path = {}};
  std::vector<std::size_t> completed_by(n);  // the entry of the call that began last
  std::vector<std::pair<std::size_t, const char*>> reasons(n);  // of the begin of an entry
  std::map<int, std::size_t> freed;                             // slots of a rank, by their holder
  State state(streams_.size());
  double now = 0;
  const auto reason_of = [&](std::size_t e) -> std::pair<std::size_t, const char*> {
    const Node& node = nodes_[e];
    const auto ended = [&](std::size_t other) { return other != kNone && times.end[other] == now; };
    if (ended(node.event)) return {completed_by[node.event], "event"};
    if (ended(node.before_in_stream)) return {completed_by[node.before_in_stream], "stream"};
    if (ended(node.before_in_group)) return {completed_by[node.before_in_group], "group"};
    if (node.launched_before != kNone && times.begin[node.launched_before] == now)
      return {node.launched_before, "launch order"};
    const auto holder = freed.find(entry(e).rank);
    if (holder != freed.end() && ended(holder->second))
      return {completed_by[holder->second], "slots"};
    return {kNone, ""};
  };
  const auto move = [&](std::size_t e) {
    if (is_ready(state, e) && has_slots(state, e)) {
      times.begin[e] = now;
      reasons[e] = reason_of(e);
      ++state[nodes_[e].stream];
      if (!is_complete(state, e)) return true;
      for (const auto other : call_of(e)) {
        times.end[other] = now + entry(other).seconds;
        completed_by[other] = e;
      }
      return true;
    }
    if (!has_begun(state, e) || times.end[e] > now) return false;
    if (needs_slots(e)) freed[entry(e).rank] = e;
    ++state[nodes_[e].stream];
    return true;
  };
  for (double later = 0; later < kNever;) {
    now = std::exchange(later, kNever);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t s = 0; s < streams_.size(); ++s)
        if (const auto e = next(state, s); e != kNone) moves = move(e) || moves;
    }
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (const auto e = next(state, s); e != kNone && has_begun(state, e))
        later = std::min(later, times.end[e]);
  }
  LOCKSTEP_CHECK(is_finished(state), "deadlock:", waits_in(state));
  const auto last = std::max_element(times.end.begin(), times.end.end()) - times.end.begin();
  for (auto e = completed_by[static_cast<std::size_t>(last)]; e != kNone; e = reasons[e].first) {
    const auto& it = entry(e);
    if (is_collective(e) || it.what == What::compute)
      times.path.push_back(
          {it.rank, it.stream, it.name, times.begin[e], times.end[e], reasons[e].second});
    else if (it.what == What::wait && !times.path.empty())
      times.path.back().after = reasons[e].second;
  }
  std::reverse(times.path.begin(), times.path.end());
  return times;
}

}  // namespace

std::string find_deadlock(const OrderProgram& program, const OrderOptions& options) {
  OrderRuns runs(program, options);
  const auto mismatch = runs.mismatch();
  return mismatch.empty() ? runs.search() : mismatch;
}

OrderTimes critical_path(const OrderProgram& program, const OrderOptions& options) {
  const OrderRuns runs(program, options);
  const auto mismatch = runs.mismatch();
  LOCKSTEP_CHECK(mismatch.empty(), mismatch);
  return runs.times();
}

std::string in_words(const OrderProgram& program, const OrderTimes& times) {
  std::string words;
  for (const auto& [rank, stream, name, begin, end, after] : times.path)
    words +=
        str("\n", place_of(program, rank, stream), ": ", name, " ", begin, "-", end, " ", after);
  return words;
}

}  // namespace lockstep
