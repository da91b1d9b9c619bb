#include "dist/job/failure_detector.h"

#include <algorithm>

#include "dist/job/rank_consistency.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostMessageOfRank = 4096;  // bytes, in a verdict that all ranks get

// Twice the number of entered collectives, minus one while inside the last. It grows with progress.
std::uint64_t position(const Activity& activity) {
  return 2 * activity.collectives - (activity.inside ? 1 : 0);
}

std::string last_collective(const Activity& activity) {
  const auto unit = Activity::text(activity.unit);
  return str(Activity::text(activity.collective), " ", activity.collectives,
             unit.empty() ? "" : " of unit ", unit);
}

// Sentences about several ranks in one line. Only the first eight are composed: if a switch fails,
// thousands of ranks may be silent.
class Sentences {
 public:
  template <class Compose>
  void add(const Compose& compose) {
    if (++count_ <= kMost) text_ += str(text_.empty() ? "" : "; ", compose());
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return count_ <= kMost ? text_ : str(text_, "; and ", count_ - kMost, " more ranks");
  }

 private:
  static constexpr int kMost = 8;
  int count_ = 0;
  std::string text_;
};

}  // namespace

Bytes encode(const Beat& beat) {
  const auto& activity = beat.activity;
  return BodyWriter()
      .number(activity.step)
      .number(activity.collectives)
      .number(activity.progress)
      .number(static_cast<std::int64_t>(beat.still.count()))
      .number(static_cast<std::uint8_t>(activity.inside))
      .number(static_cast<std::uint8_t>(beat.watched))
      .text(Activity::text(activity.collective))
      .text(Activity::text(activity.unit))
      .take();
}

Beat decode_beat(std::span<const std::byte> body) {
  BodyReader reader(body);
  Beat beat;
  beat.activity.step = reader.number<std::int64_t>();
  beat.activity.collectives = reader.number<std::uint64_t>();
  beat.activity.progress = reader.number<std::uint64_t>();
  beat.still = Milliseconds(reader.number<std::int64_t>());
  beat.activity.inside = reader.number<std::uint8_t>() != 0;
  beat.watched = reader.number<std::uint8_t>() != 0;
  beat.activity.collective = Activity::name(reader.text());
  beat.activity.unit = Activity::name(reader.text());
  if (!reader.at_end()) throw DataError("a heartbeat has extra bytes at its end");
  if (beat.activity.inside && beat.activity.collectives == 0)
    throw DataError("a heartbeat reports that it is inside collective 0; collectives count from 1");
  return beat;
}

FailureDetector::FailureDetector(int ranks, const Timing& timing)
    : timing_(timing), ranks_(static_cast<std::size_t>(ranks)) {}

void FailureDetector::introduce(int rank, const Peer& peer) {
  ranks_[static_cast<std::size_t>(rank)].peer = peer;
}

void FailureDetector::joined(int rank, Deadline now) {
  auto& at = ranks_[static_cast<std::size_t>(rank)];
  at.state = State::beating;
  at.heard = now;
}

void FailureDetector::beat(int rank, const Beat& beat, Deadline now) {
  auto& at = ranks_[static_cast<std::size_t>(rank)];
  at.beat = beat;
  at.heard = now;
}

bool FailureDetector::closed(int rank) {
  auto& at = ranks_[static_cast<std::size_t>(rank)];
  const bool is_death = at.state == State::beating || at.state == State::absent;
  if (is_death) at.state = State::closed;
  return is_death;
}

void FailureDetector::left(int rank) {
  ranks_[static_cast<std::size_t>(rank)].state = State::left;
}

void FailureDetector::failed(int rank, const std::string& message, int exit_code) {
  auto& at = ranks_[static_cast<std::size_t>(rank)];
  at.state = State::failed;
  at.message = message.substr(0, kMostMessageOfRank);
  at.exit_code = exit_code;
}

void FailureDetector::slept(Milliseconds time, Deadline now) {
  for (auto& at : ranks_)
    at.heard = std::min<Deadline>(at.heard + time, now);
}

std::string FailureDetector::describe(int rank) const {
  const auto& peer = ranks_[static_cast<std::size_t>(rank)].peer;
  return str("rank ", rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

// Last known place of a rank: ", in step 120, before all_gather 4711 of unit layer 7".
std::string FailureDetector::describe_place(const Rank& at) const {
  const auto& own = at.beat.activity;
  if (!at.beat.watched) return ", before its first step";
  std::string place = str(", in step ", own.step);
  if (own.inside) return place + ", inside " + last_collective(own);
  const auto waiting = waiting_for(at);
  if (!waiting.empty()) return place + waiting;
  if (own.collectives > 0) place += ", after " + last_collective(own);
  return place;
}

// The next collective of `at`, if other ranks are inside it already.
std::string FailureDetector::waiting_for(const Rank& at) const {
  const auto own = position(at.beat.activity);
  const Activity* next = nullptr;
  std::vector<int> waiting;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const auto& other = ranks_[r];
    const auto& activity = other.beat.activity;
    if (&other == &at || other.state != State::beating || position(activity) <= own) continue;
    if (activity.inside) waiting.push_back(static_cast<int>(r));
    if (activity.inside && (next == nullptr || position(activity) < position(*next)))
      next = &activity;
  }
  if (next == nullptr) return "";
  return str(", before ", last_collective(*next), ", on which ", rank_list(waiting),
             waiting.size() == 1 ? " waits" : " wait");
}

// Names the silent ranks. If one exceeded the limit, ranks past half of it are named too, because a
// dead host takes down all its ranks.
std::string FailureDetector::deaths(Deadline now, Milliseconds most_silence,
                                    std::vector<int>& lost) const {
  std::vector<int> silent;
  Milliseconds longest{0};
  Sentences said;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const auto& at = ranks_[r];
    const int rank = static_cast<int>(r);
    if (at.state == State::closed) {
      said.add([&] { return str(describe(rank), " died", describe_place(at)); });
      lost.push_back(rank);
    }
    if (at.state != State::beating) continue;
    const auto silence = std::chrono::duration_cast<Milliseconds>(now - at.heard);
    if (2 * silence > most_silence) silent.push_back(rank);
    longest = std::max(longest, silence);
  }
  for (const int rank : silent) {
    if (longest <= most_silence) break;
    const auto& at = ranks_[static_cast<std::size_t>(rank)];
    const auto silence = std::chrono::duration_cast<Milliseconds>(now - at.heard);
    lost.push_back(rank);
    said.add([&] {
      return str(describe(rank), " stopped answering ", seconds_text(silence), " ago",
                 describe_place(at));
    });
  }
  return said.text();
}

// Longer before the first step: libraries and drivers start without reporting progress.
Milliseconds FailureDetector::limit(const Activity& activity) const {
  return activity.step == 0 ? 10 * timing_.stall : timing_.stall;
}

std::string FailureDetector::stalls(std::vector<int>& lost) const {
  std::vector<int> behind;
  std::size_t beating = 0;
  bool watched = false;
  auto least = ~std::uint64_t{0};
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const auto& at = ranks_[r];
    if (at.state != State::beating) continue;
    ++beating;
    watched |= at.beat.watched;
    const auto here = position(at.beat.activity);
    if (here < least) behind.clear();
    if (here <= least) behind.push_back(static_cast<int>(r));
    least = std::min(least, here);
  }
  if (!watched) return "";
  const Rank* latest = nullptr;
  Sentences said;
  for (const int rank : behind) {
    const auto& at = ranks_[static_cast<std::size_t>(rank)];
    if (at.beat.still < limit(at.beat.activity)) return "";  // slow, but not stalled
    if (latest == nullptr || at.beat.still < latest->beat.still) latest = &at;
    said.add([&] {
      return str(describe(rank), " made no progress for ", seconds_text(at.beat.still),
                 describe_place(at));
    });
  }
  if (behind.size() < beating || beating == 1) {
    lost = std::move(behind);
    return said.text();
  }
  // No rank waits for another.
  return str("no rank made progress for ", seconds_text(latest->beat.still),
             describe_place(*latest));
}

std::optional<Verdict> FailureDetector::verdict(Deadline now) const {
  Verdict verdict;
  Sentences failed;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].state != State::failed) continue;
    if (failed.empty()) verdict.exit_code = ranks_[r].exit_code;
    failed.add([&] { return str(describe(static_cast<int>(r)), " failed: ", ranks_[r].message); });
  }
  // An error of one rank may be caused by another that has just died.
  const auto dead =
      deaths(now, (failed.empty() ? timing_.missed : 2) * timing_.interval, verdict.lost);
  verdict.text = str(failed.text(), failed.empty() || dead.empty() ? "" : "; ", dead);
  // A silent rank may be dying, so ranks that wait for it are not reported as stalled.
  std::vector<int> silent;
  const bool all_heard = deaths(now, 2 * timing_.interval, silent).empty();
  if (verdict.text.empty() && timing_.stall.count() > 0 && all_heard)
    verdict.text = stalls(verdict.lost);
  return verdict.text.empty() ? std::nullopt : std::optional(verdict);
}

}  // namespace lockstep
