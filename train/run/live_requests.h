// LiveRequests carries out the requests of `lockstep ctl` in a run (requests.h).
//
// A thread of rank 0 looks for requests each second and checks them, so that a slow file system
// delays no step. The number of the accepted one travels with the stop signal of a step
// (StepRunner). All ranks therefore learn it after the same step, and rank 0 broadcasts the
// request.
//
// A change and a rollback become entries of RUN/amendments.json before anything else happens. The
// run then begins again in the same process, and the next start would do the same.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "train/run/requests.h"
#include "train/run/run_context.h"

namespace lockstep {

class LiveRequests {
 public:
  explicit LiveRequests(Run& run);  // must outlive this
  LiveRequests(const LiveRequests&) = delete;
  LiveRequests& operator=(const LiveRequests&) = delete;
  ~LiveRequests();  // answers nothing; a later start does

  // At rank 0: answers the requests that earlier starts left, and begins to take new ones.
  void open();
  // At rank 0, at the end of the run: answers all requests. If the run begins again, only those
  // that the next part of the run cannot answer.
  void close(bool begins_again);

  // Carries out a request if ranks have agreed on one. Call it after each finished step.
  // Collective if there is one.
  void take();
  // Waits for part of a second, and takes requests and stop signals. Collective.
  void wait_paused();

  enum class Next : unsigned char { step, change, rollback };
  Next next() const { return next_; }  // change, rollback: the run ends here, and begins again
  bool is_paused() const { return is_paused_; }
  bool wants_save() const { return save_ == Save::asked; }
  void save_begins();  // of the current step; it is the save that was asked for, if any
  // Answers the request if its save has ended. ended_step: see CheckpointLoop.
  void note_saves(std::int64_t ended_step);

 private:
  enum class Save : unsigned char { none, asked, running };

  // The thread.
  void look_each_second();
  void look();
  bool is_for_supervisor(const Request& request) const;  // which answers it
  void consider(const Request& request);
  std::string checked(const Request& request) const;
  std::string checked_rollback(const Request& request) const;
  std::string checked_change(const Request& request) const;
  void write_answers();

  // Training.
  Json begin_act();
  void act(const Request& request);
  void finish(RequestState state, const std::string& message) {
    finish(state, message, run_.step());
  }
  void finish(RequestState state, const std::string& message, std::int64_t step);
  std::int64_t epoch() const;

  Run& run_;
  const ControlDirectory directory_;
  Next next_ = Next::step;
  Save save_ = Save::none;
  std::int64_t save_step_ = -1;
  std::atomic<bool> is_paused_ = false;

  // At rank 0. current_ belongs to the thread while RunPosition::offered is 0, then to training.
  Request current_;
  std::atomic<std::int64_t> step_ = 0;  // of the run
  std::int64_t last_ = 0;               // number of the last request that was looked at
  std::mutex mutex_;                    // guards the next three
  std::map<std::int64_t, std::pair<Request, RequestAnswer>> answers_;  // not written yet
  bool is_closing_ = false;
  std::condition_variable wakes_;
  bool has_warned_ = false;
  std::thread thread_;
};

// Drops the request that `run` could not begin again with, so that the next start resumes without
// it. For rank 0. Returns its words, or "" if there is none.
std::string drop_unfinished_request(const RunDirectory& run, const std::string& why);

}  // namespace lockstep
