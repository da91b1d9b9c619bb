// Mailbox passes work to the thread of an event loop. Background is a thread that does work that
// may hang, such as reading a remote file system, so that an event loop never waits for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/start_thread.h"
#include "dist/job/socket.h"

namespace lockstep {

class Mailbox {
 public:
  using Work = std::function<void()>;
  void post(Work work) {  // from any thread
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    wake_.up();
  }
  int descriptor() const { return wake_.descriptor(); }  // readable if there is work
  void run() {                                           // all that was posted
    std::vector<Work> work;
    {
      const std::lock_guard lock(mutex_);
      wake_.down();
      std::swap(work, work_);
    }
    for (const auto& one : work)
      one();
  }

 private:
  std::mutex mutex_;
  std::vector<Work> work_;
  Wake wake_;
};

// The thread and its work outlive the object if the work hangs at its end.
class Background {
 public:
  Background() : queue_(std::make_shared<Queue>()) {
    start_thread([queue = queue_] { serve(*queue); }).detach();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() {
    const std::lock_guard lock(queue_->mutex);
    queue_->ends = true;
    queue_->changed.notify_all();
  }
  // Does the work after all earlier work. It must not throw.
  void run(Mailbox::Work work) {
    const std::lock_guard lock(queue_->mutex);
    queue_->work.push_back(std::move(work));
    queue_->changed.notify_all();
  }
  // Waits until all work is done; returns false at the deadline.
  bool finish(Deadline deadline) {
    std::unique_lock lock(queue_->mutex);
    return queue_->changed.wait_until(lock, deadline,
                                      [&] { return queue_->work.empty() && !queue_->busy; });
  }

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Mailbox::Work> work;
    bool busy = false, ends = false;
  };
  static void serve(Queue& queue) {
    std::unique_lock lock(queue.mutex);
    for (;;) {
      queue.changed.wait(lock, [&] { return queue.ends || !queue.work.empty(); });
      if (queue.ends) return;
      const auto work = std::move(queue.work.front());
      queue.work.pop_front();
      queue.busy = true;
      lock.unlock();
      work();
      lock.lock();
      queue.busy = false;
      queue.changed.notify_all();
    }
  }
  std::shared_ptr<Queue> queue_;
};

}  // namespace lockstep
