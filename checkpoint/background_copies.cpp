#include "checkpoint/background_copies.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/json.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

constexpr const char* kTag = "copy";

bool is_milestone(const BackgroundCopies::Hop& hop, std::int64_t step) {
  return hop.milestones > 0 && step % hop.milestones == 0;
}

}  // namespace

BackgroundCopies::BackgroundCopies(World& world, std::vector<Hop> hops)
    : world_(world), hops_(std::move(hops)), thread_(start_thread([this] { run(); })) {}

BackgroundCopies::~BackgroundCopies() {
  leave(/*do_all=*/false);
}

void BackgroundCopies::finish() {
  leave(/*do_all=*/true);
}

void BackgroundCopies::leave(bool do_all) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    if (!do_all) {
      jobs_.clear();
      look_before_ = -1;
      abandoned_ = true;
    }
  }
  changed_.notify_all();
  thread_.join();
}

// Replaces waiting steps that are not milestones with the newer one.
void BackgroundCopies::want(std::int64_t step, const std::vector<std::int64_t>& keep) {
  const Hop& hop = hops_.front();
  {
    const std::lock_guard lock(mutex_);
    // If rank 0 got the request much earlier, the copy has already ended.
    const bool is_done = step <= newest_done_;
    if (!is_done && (!hop.milestones_alone || is_milestone(hop, step))) {
      std::erase_if(jobs_, [&](const Job& waiting) {
        return waiting.hop == 0 && !is_milestone(hop, waiting.step);
      });
      jobs_.push_back({0, step, keep, false});
    }
    look_before_ = step;
  }
  changed_.notify_all();
}

// Puts the next hop first in the queue, because a later copy to this hop's destination may delete
// the checkpoint there.
void BackgroundCopies::go_on(const Job& job) {
  const Hop& hop = hops_[job.hop + 1];
  if (hop.milestones_alone && !is_milestone(hop, job.step)) return;
  jobs_.push_front({job.hop + 1, job.step, job.keep, job.left_over});
}

std::vector<std::int64_t> BackgroundCopies::pending() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> steps;
  if (current_ && current_->hop == 0) steps.push_back(current_->step);
  for (const auto& job : jobs_)
    if (job.hop == 0) steps.push_back(job.step);
  return steps;
}

std::vector<BackgroundCopies::Outcome> BackgroundCopies::poll() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(ended_, {});
}

// Milestones that were not copied, in the order of steps. If a directory is unavailable, the next
// copy reports it.
std::vector<BackgroundCopies::Job> BackgroundCopies::left_over(std::int64_t before) const {
  std::vector<Job> jobs;
  for (std::size_t h = 0; h < hops_.size(); ++h) {
    const auto &from = hops_[h].copies.from(), &to = hops_[h].copies.to();
    const auto is_left = [&](std::int64_t step) {
      try {
        return !path_exists(checkpoint_path(from, step) / kCopiedMark) &&
               !is_copy(checkpoint_path(from, step), checkpoint_path(to, step));
      } catch (const DataError&) {
        return false;
      }
    };
    try {
      for (const auto step : checkpoint_steps(from))
        if (step < before && is_milestone(hops_[h], step) && is_left(step))
          jobs.push_back({h, step, {}, true});
    } catch (const DataError&) {
    }
  }
  return jobs;
}

std::optional<BackgroundCopies::Job> BackgroundCopies::next() {
  Json said(Json::Object{});
  if (world_.rank() == 0) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return leaving_ || !jobs_.empty() || look_before_ >= 0; });
      const auto before = std::exchange(look_before_, -1);
      if (before < 0) break;
      lock.unlock();
      const auto more = left_over(before);
      lock.lock();
      if (abandoned_) break;
      for (const auto& job : more)
        if (std::none_of(jobs_.begin(), jobs_.end(), [&](const Job& waiting) {
              return waiting.hop == job.hop && waiting.step == job.step;
            }))
          jobs_.push_back(job);
    }
    if (!jobs_.empty()) {
      Json::Array keep;
      for (const auto step : jobs_.front().keep)
        keep.emplace_back(step);
      said.set("hop", static_cast<std::int64_t>(jobs_.front().hop));
      said.set("step", jobs_.front().step);
      said.set("keep", std::move(keep));
      said.set("left_over", jobs_.front().left_over);
    }
  }
  const Json agreed = Json::parse(world_.broadcast(kTag, said.dump()), "rank 0");
  if (agreed.find("step") == nullptr) return std::nullopt;
  Job job{static_cast<std::size_t>(agreed.at("hop").as_integer()),
          agreed.at("step").as_integer(),
          {},
          agreed.at("left_over").as_bool()};
  for (const auto& step : agreed.at("keep").as_array())
    job.keep.push_back(step.as_integer());
  return job;
}

void BackgroundCopies::run() {
  try {
    serve();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
}

void BackgroundCopies::serve() {
  while (auto job = next()) {
    const Hop& hop = hops_[job->hop];
    {
      const std::lock_guard lock(mutex_);
      // All ranks remove this job, and the ones that it makes unnecessary, from their queues.
      std::erase_if(jobs_, [&](const Job& waiting) {
        return waiting.hop == job->hop &&
               (waiting.step == job->step ||
                (waiting.step < job->step && !is_milestone(hop, waiting.step)));
      });
      current_ = job;
      if (job->hop == 0 && !job->left_over) newest_done_ = job->step;
    }
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome{.step = job->step, .to = &hop.copies.to(), .seconds = 0, .error = nullptr};
    try {
      hop.copies.copy(job->step, hop.retention, job->keep, job->left_over);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    outcome.seconds = took.count();
    const std::lock_guard lock(mutex_);
    if (!outcome.error && job->hop + 1 < hops_.size()) go_on(*job);
    ended_.push_back(std::move(outcome));
    current_.reset();
  }
}

}  // namespace lockstep
