#include "core/trace.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "core/gpu.h"

namespace lockstep {

Trace::Trace(Stream& stream) : stream_(stream) {
  LOCKSTEP_CHECK(stream.trace() == nullptr, "stream ", stream.name(), " already has a trace");
  stream.set_trace(this);
}

Trace::~Trace() {
  stream_.set_trace(nullptr);
}

Trace::Span::Span(Stream& stream, Component component)
    : span_(stream, lockstep::name(component), "component"), stream_(stream) {
  if (stream.is_cuda() && !stream.is_measuring()) gpu::begin_range(lockstep::name(component));
  if (stream.trace() != nullptr) outer_ = stream.trace()->change_to(component);
}

Trace::Span::~Span() {
  if (stream_.is_cuda() && !stream_.is_measuring()) gpu::end_range();
  if (stream_.trace() == nullptr) return;
  try {
    stream_.trace()->change_to(outer_);
  } catch (const Error&) {
    // A kernel fault; the next call that may throw reports it too.
  }
}

Component Trace::change_to(Component component) {
  const Component was = std::exchange(within_, component);
  // After a kernel fault every call fails, and the first error is already being thrown.
  if (timing_ && std::uncaught_exceptions() == 0 && component != was) mark(component);
  return was;
}

void Trace::mark(Component begins) {
  Step& step = steps_[begun_ % 2];
  if (stream_.is_cuda()) {
    step.marks.push_back({begins, stream_.record_timed()});
    return;
  }
  const auto now = Clock::now();
  step.time[running_] += std::chrono::duration<double>(now - since_).count();
  running_ = begins;
  since_ = now;
}

void Trace::begin_step(bool timed) {
  ++begun_;
  if (begun_ > 2) taken_ = std::max(taken_, begun_ - 2);
  Step& step = steps_[begun_ % 2];
  step.time = {};
  step.marks.clear();
  step.timed = timing_ = timed && !stream_.is_measuring();
  running_ = within_;
  since_ = Clock::now();
  if (timing_) mark(within_);
}

void Trace::end_step() {
  if (timing_) mark(Component::other);
  timing_ = false;
}

StepTime Trace::take() {
  if (taken_ == begun_) return {};
  Step& step = steps_[++taken_ % 2];
  if (!step.timed) step.time.seconds.fill(std::numeric_limits<double>::quiet_NaN());
  if (stream_.is_cuda())
    for (std::size_t i = 1; i < step.marks.size(); ++i)
      step.time[step.marks[i - 1].begins] +=
          step.marks[i].event.seconds_since(step.marks[i - 1].event);
  step.marks.clear();
  return step.time;
}

}  // namespace lockstep
