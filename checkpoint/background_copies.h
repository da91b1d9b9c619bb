// BackgroundCopies is a thread that copies checkpoints from the directory where they are saved to
// their destinations, while training continues. Rank 0 decides the order; all ranks copy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint_copier.h"

namespace lockstep {

class BackgroundCopies {
 public:
  // A copy from one directory to another. After a copy on one hop, the next hop copies it further.
  struct Hop {
    CheckpointCopier copies;
    Retention retention = {};  // at the destination
    // Every multiple of this step is a milestone and is copied, even if an earlier start of the
    // run left it; 0: no milestones. Of other steps only the newest waiting one is copied, and
    // none with `milestones_alone`.
    std::int64_t milestones = 0;
    bool milestones_alone = false;
  };
  struct Outcome {
    std::int64_t step = 0;
    const std::filesystem::path* to = nullptr;
    double seconds = 0;
    std::exception_ptr error;  // same type on all ranks; nullptr: success
  };

  // `world` must outlive this object. `hops` must not be empty.
  BackgroundCopies(World& world, std::vector<Hop> hops);
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;
  ~BackgroundCopies();  // called by all ranks; drops waiting copies

  // Requests a copy of a checkpoint that exists at the start of the first hop. All ranks call it
  // with the same arguments.
  void want(std::int64_t step, const std::vector<std::int64_t>& keep);
  // Steps whose first-hop copy is running or waiting. Their checkpoints must not be deleted.
  std::vector<std::int64_t> pending() const;
  // Outcomes since the last call. Throws if the thread failed, for example after other ranks died.
  std::vector<Outcome> poll();
  void finish();  // called by all ranks; returns when no copy is waiting

 private:
  struct Job {
    std::size_t hop = 0;
    std::int64_t step = 0;
    std::vector<std::int64_t> keep;
    bool left_over = false;  // milestone that was not copied when it was the newest step
  };
  void go_on(const Job& job);  // mutex_ is held
  void run();
  void serve();
  std::vector<Job> left_over(std::int64_t before) const;
  std::optional<Job> next();  // the job that rank 0 chose; nullopt: finished
  void leave(bool do_all);

  World& world_;
  std::vector<Hop> hops_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // waiting jobs; rank 0's queue decides the order
  std::optional<Job> current_;
  std::int64_t newest_done_ = -1;  // newest step started or done on the first hop
  std::vector<Outcome> ended_;
  std::int64_t look_before_ = -1;  // search left-over milestones before this step; -1: no search
  std::exception_ptr failure_;     // error that ended the thread
  bool leaving_ = false, abandoned_ = false;
  std::thread thread_;
};

}  // namespace lockstep
