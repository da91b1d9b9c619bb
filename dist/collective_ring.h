// CollectiveRing: the last collectives of this rank, in the order in which its program enqueued
// them, which is the same on all ranks. Its heartbeat says from it what the rank does; a rank that
// is ended by others leaves it in the run's directory.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/stream.h"

namespace lockstep {

// What a rank does now. Collectives are numbered from 1 in the order in which every rank of the job
// enters them. Texts longer than their arrays are cut: nothing is allocated.
struct Activity {
  using Name = std::array<char, 48>;
  std::int64_t step = 0;
  std::uint64_t collectives = 0;  // how many were entered
  bool inside = false;            // the last of them has not ended
  std::uint64_t progress = 0;     // any change shows that the rank is alive
  Name collective{}, unit{};      // of the last one

  static Name name(std::string_view text);
  static std::string text(const Name& name);
};

class CollectiveRing {
 public:
  static constexpr std::size_t kEntries = 1024;

  // What the collectives that follow are for.
  void begin_step(std::int64_t step);
  void about(std::string_view unit);
  class Aside {  // while it lives they are for another unit; `ring` may be absent
   public:
    Aside(CollectiveRing* ring, std::string_view unit);
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside();

   private:
    CollectiveRing* ring_;
    Activity::Name before_{};
  };

  // Around what enqueues one; its number, from 1. It is entered when `before` is done, and left
  // when `after` is.
  std::uint64_t begin(std::string_view collective, std::string_view group, std::int64_t bytes,
                      Event before);
  void add_bytes(std::uint64_t number, std::int64_t bytes);
  void end(std::uint64_t number, Event after);

  // Before streams go that events are of: what they are of counts as left.
  void forget_events();

  // What this rank does now: it is at the first collective that it has not left.
  Activity activity();
  // A table of those that are not left and the last that are, newest last.
  std::string in_words();

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::int64_t step = 0, bytes = 0;
    Activity::Name collective{}, group{}, unit{};
    Event before, after;
    bool enqueued = false, entered = false, left = false;
  };

  Entry& at(std::uint64_t number) { return entries_[number % kEntries]; }
  static void look(Entry& entry);  // whether it is entered and left now
  void advance();                  // to the first that is not left

  std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::uint64_t begun_ = 0;       // the last one
  std::uint64_t first_open_ = 1;  // all before it are left
  std::int64_t step_ = 0;
  Activity::Name unit_{};
};

}  // namespace lockstep
