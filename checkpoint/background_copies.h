// BackgroundCopies: a thread that copies checkpoints on, from where they are saved to where they
// stay, while training and saving go on. Rank 0 says what is copied when; all ranks do it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/copies.h"

namespace lockstep {

class BackgroundCopies {
 public:
  // From one directory to another; what was copied on the first goes on to the second, and so on.
  struct Hop {
    CheckpointCopies copies;
    Retention retention = {};  // of where it goes to
    // Steps of multiples of this are all copied, also those that an earlier start left; 0: there
    // are none. Of others the newest, when there is time; `milestones_alone`: none.
    std::int64_t milestones = 0;
    bool milestones_alone = false;
  };
  struct Outcome {
    std::int64_t step = 0;
    const std::filesystem::path* to = nullptr;
    double seconds = 0;
    std::exception_ptr error;  // the same kind on all ranks; nullptr: it is there
  };

  // `world` outlives this. There is at least one hop.
  BackgroundCopies(World& world, std::vector<Hop> hops);
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;
  ~BackgroundCopies();  // all ranks at once; what waits is not copied

  // A checkpoint exists where the first hop begins. Every rank says so, of the same.
  void want(std::int64_t step, const std::vector<std::int64_t>& keep);
  // Those that are being copied on the first hop, or wait for it: they must stay.
  std::vector<std::int64_t> pending() const;
  // What ended and was not told of. Throws where the thread has ended, as without the other ranks.
  std::vector<Outcome> poll();
  void finish();  // all ranks at once: returns when nothing waits

 private:
  struct Job {
    std::size_t hop = 0;
    std::int64_t step = 0;
    std::vector<std::int64_t> keep;
    bool left_over = false;  // a milestone that was not copied when it was new
  };
  void go_on(const Job& job);  // locked
  void run();
  void serve();
  std::vector<Job> left_over(std::int64_t before) const;
  std::optional<Job> next();  // what rank 0 says; nothing: that is all
  void leave(bool do_all);

  World& world_;
  std::vector<Hop> hops_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // that wait; on rank 0 they are what is done next
  std::optional<Job> current_;
  std::int64_t newest_done_ = -1;  // on the first hop, or begun
  std::vector<Outcome> ended_;
  std::int64_t look_before_ = -1;  // for left over milestones, before that step; -1: not again
  std::exception_ptr failure_;     // of the thread
  bool leaving_ = false, abandoned_ = false;
  std::thread thread_;
};

}  // namespace lockstep
