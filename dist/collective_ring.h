// CollectiveRing records the last collectives of this rank in the order in which its program
// enqueued them. The order is the same on all ranks. The heartbeat reports from it what the rank is
// doing. A rank that is aborted by others writes it to the run's directory.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/stream.h"

namespace lockstep {

// Activity is what a rank is doing now. Collectives are numbered from 1 in the order in which every
// rank of the job enters them. Texts longer than their arrays are truncated: nothing is allocated.
struct Activity {
  using Name = std::array<char, 48>;
  std::int64_t step = 0;
  std::uint64_t collectives = 0;  // number of collectives entered
  bool inside = false;            // whether the last one entered is still unfinished
  std::uint64_t progress = 0;     // counter: any change shows that the rank is alive
  Name collective{}, unit{};      // of the last collective entered

  static Name name(std::string_view text);
  static std::string text(const Name& name);
};

class CollectiveRing {
 public:
  static constexpr std::size_t kEntries = 1024;

  // Set the step and the FSDP unit of the collectives that follow.
  void begin_step(std::int64_t step);
  void about(std::string_view unit);
  class Aside {  // sets another unit during its lifetime; `ring` may be null
   public:
    Aside(CollectiveRing* ring, std::string_view unit);
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside();

   private:
    CollectiveRing* ring_;
    Activity::Name before_{};
  };

  // begin() and end() enclose the call that enqueues a collective. begin() returns its number, from
  // 1. The collective is entered when `before` is done, and left when `after` is done.
  std::uint64_t begin(std::string_view collective, std::string_view group, std::int64_t bytes,
                      Event before);
  void add_bytes(std::uint64_t number, std::int64_t bytes);
  void end(std::uint64_t number, Event after);

  // Call this before the streams of recorded events are destroyed. It drops the events; their
  // collectives count as left.
  void forget_events();

  // Returns what this rank is doing now: it is at the first collective that it has not left.
  Activity activity();
  // Returns a table of the collectives not left yet and the last ones left, newest last.
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
  static void look(Entry& entry);  // updates `entered` and `left`
  void advance();                  // moves first_open_ to the first collective not left

  std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::uint64_t begun_ = 0;       // number of the last collective begun
  std::uint64_t first_open_ = 1;  // all before this number are left
  std::int64_t step_ = 0;
  Activity::Name unit_{};
};

}  // namespace lockstep
