// Kernel is the clock of a simulation: one thread, virtual microseconds, a heap of events, and all
// random choices from one seed. Two runs of a seed are equal, event by event, which hash() proves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/mix.h"
#include "dist/job/socket.h"

namespace lockstep::sim {

using Micros = std::int64_t;
inline constexpr Micros kMillisecond = 1'000, kSecond = 1'000'000, kHour = 3'600 * kSecond;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix64(seed + kGolden64)) {}
  std::uint64_t next() { return mix64(state_ += kGolden64); }
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  std::int64_t between(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1)));
  }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  bool chance(double probability) { return share() < probability; }

 private:
  std::uint64_t state_;
};

class Kernel {
 public:
  explicit Kernel(std::uint64_t seed) : random(seed), seed_(seed) {}

  Micros now() const { return now_; }
  void at(Micros when, std::function<void()> act) {
    events_.push_back({std::max(when, now_), next_++, std::move(act)});
    std::push_heap(events_.begin(), events_.end());
  }
  void after(Micros pause, std::function<void()> act) { at(now_ + pause, std::move(act)); }

  // Runs the events until `end`, or until `done()` or the first violation.
  template <class Done>
  void run(Micros end, const Done& done) {
    while (!events_.empty() && events_.front().when <= end && !failed() && !done()) {
      std::pop_heap(events_.begin(), events_.end());
      const auto event = std::move(events_.back());
      events_.pop_back();
      now_ = event.when;
      ++count_;
      event.act();
    }
    if (!failed() && !done()) now_ = std::max(now_, end);
  }
  void run(Micros end) {
    run(end, [] { return false; });
  }

  // Moves the clock and all events by `time`: nothing happens meanwhile.
  void jump(Micros time) {
    for (auto& event : events_)
      event.when += time;
    now_ += time;
  }

  // Adds a fact to the hash, which two runs of a seed must share.
  void note(std::uint64_t fact) {
    hash_ = mix64(hash_ ^ mix64(fact + static_cast<std::uint64_t>(now_)));
  }
  template <class... Args>
  void trace(const Args&... args) {
    if (!tracing_) return;
    std::fprintf(stdout, "%12.6f %s\n", static_cast<double>(now_) / kSecond, str(args...).c_str());
    std::fflush(stdout);
  }
  // Records the first violation of an invariant; the run ends.
  template <class... Args>
  void violate(int invariant, const Args&... args) {
    if (failed()) return;
    violated_ = invariant;
    violation_ = str("seed ", seed_, ": invariant ", invariant, " at ",
                     static_cast<double>(now_) / kSecond, " s: ", args...);
    trace(violation_);
  }

  bool failed() const { return violated_ != 0; }
  int violated() const { return violated_; }
  const std::string& violation() const { return violation_; }
  std::uint64_t hash() const { return hash_; }
  std::int64_t count() const { return count_; }
  std::uint64_t seed() const { return seed_; }
  void set_tracing(bool tracing) { tracing_ = tracing; }

  Random random;

 private:
  struct Event {
    Micros when = 0;
    std::uint64_t number = 0;
    std::function<void()> act{};
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  std::uint64_t seed_;
  Micros now_ = 0;
  std::uint64_t next_ = 0, hash_ = 0;
  std::int64_t count_ = 0;
  std::vector<Event> events_;
  int violated_ = 0;
  std::string violation_;
  bool tracing_ = false;
};

// The clock of a host: an offset, and a rate that differs by up to 200 ppm.
struct HostClock {
  Micros offset = 0;
  std::int64_t ppm = 0;

  static HostClock draw(Random& random) {
    return {random.between(0, kHour), random.between(-200, 200)};
  }
  Deadline of(Micros now) const {
    return Deadline(std::chrono::microseconds(offset + now + now * ppm / 1'000'000));
  }
  Micros until(Deadline when) const {  // the kernel's time
    const auto local =
        std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count() -
        offset;
    return local * 1'000'000 / (1'000'000 + ppm) + 2;  // not before `when` on this clock
  }
};

}  // namespace lockstep::sim
