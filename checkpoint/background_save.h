// BackgroundSave: a thread that saves while training goes on, one checkpoint at a time.
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
    Event copied;  // from then on the checkpointer's state is what is to be saved
    Json about;
    std::vector<std::int64_t> keep;       // see Checkpointer::save
    std::function<void()> first = [] {};  // called by the thread before it writes; does not throw
  };
  struct Outcome {
    std::int64_t step = 0;
    double seconds = 0;        // since begin()
    std::int64_t bytes = 0;    // at rank 0
    std::exception_ptr error;  // the same kind on all ranks; nullptr: it is saved
  };

  // Both outlive this.
  BackgroundSave(Checkpointer& checkpointer, World& world);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  // waits for what was begun

  // Returns at once. None is under way.
  void begin(Save save);
  // How one ended that was not told of yet; nothing while it is under way, or where there is none.
  std::optional<Outcome> poll();
  // Likewise, but waits for it, with all ranks: who keeps the others waiting is then behind them in
  // the world's collectives (dist/collective_ring.h).
  std::optional<Outcome> wait();

 private:
  enum class State : std::uint8_t { idle, under_way, ended };
  void run();

  Checkpointer& checkpointer_;
  World& world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;  // of the next five
  int acts_ = 0;               // see Checkpointer::kActs
  Save next_;
  Outcome outcome_;
  std::chrono::steady_clock::time_point begun_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace lockstep
