// BackgroundSave is a thread that saves checkpoints while training continues, one at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/stream.h"

namespace lockstep {

class BackgroundSave {
 public:
  struct Save {
    std::int64_t step = 0;
    Event copied;  // done when the checkpointer's state holds the values to save
    Json about;
    std::vector<std::int64_t> keep;       // see Checkpointer::save
    std::function<void()> first = [] {};  // called by the thread before it writes; does not throw
  };
  struct Outcome {
    std::int64_t step = 0;
    double seconds = 0;        // since begin()
    std::int64_t bytes = 0;    // at rank 0
    std::exception_ptr error;  // same type on all ranks; nullptr: success
  };

  // Both arguments must outlive this object.
  BackgroundSave(Checkpointer& checkpointer, World& world);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  // waits for a running save

  // Starts a save and returns at once. No other save may be running.
  void begin(Save save);
  // The outcome of a finished save, once; nullopt while it runs and if none was started.
  std::optional<Outcome> poll();
  // Same as poll(), but all ranks wait for the save. A rank that delays the others is then visible
  // as the one that is late in the world's collectives (dist/collective_ring.h).
  std::optional<Outcome> wait();

 private:
  enum class State : std::uint8_t { idle, under_way, ended };
  void run();

  Checkpointer& checkpointer_;
  World& world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;  // tells who may use the next five members
  int acts_ = 0;               // see Checkpointer::kActs
  Save next_;
  Outcome outcome_;
  std::chrono::steady_clock::time_point begun_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace lockstep
