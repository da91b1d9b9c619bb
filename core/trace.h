// Trace measures a stream's time per step by component, as a plan does. Operators and collectives
// state their component (core/op_log.h). Other work, and work that sets the component of operators
// inside it, opens a span. The trainer reads each step one step later.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/component.h"
#include "core/stream.h"
#include "core/timeline.h"

namespace lockstep {

class Trace {
 public:
  // `stream` must outlive this trace and have no other one.
  explicit Trace(Stream& stream);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  // Span counts the stream's time during its lifetime for a component, except time in inner spans.
  // On a CUDA stream it measures between two events. Profilers see an NVTX range.
  class Span {
   public:
    Span(Stream& stream, Component component);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Timeline::Span span_;
    Stream& stream_;
    Component outer_ = Component::other;
  };
  Component within() const { return within_; }  // current component; other if no span is open

  // Work enqueued between the two belongs to one step. Only timed steps are measured, because
  // events cost time and cannot be in a graph. take() returns steps in order. A step that is not
  // taken before the second next step begins is dropped.
  void begin_step(bool timed);
  void end_step();

  // Times of the oldest step not yet taken, which must be done. Their sum is the time between
  // begin_step and end_step; `other` is the time outside spans. NaN if the step was not timed,
  // zeros if there is no step.
  StepTime take();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {  // CUDA streams only
    Component begins;
    Event event;
  };
  struct Step {
    bool timed = false;
    StepTime time;  // CPU streams only
    std::vector<Mark> marks;
  };

  Component change_to(Component component);  // returns the old component
  void mark(Component begins);

  Stream& stream_;
  Component within_ = Component::other;
  // CPU streams: component and start time since the last mark.
  Component running_ = Component::other;
  Clock::time_point since_;
  std::array<Step, 2> steps_;  // used alternately
  std::size_t begun_ = 0, taken_ = 0;
  bool timing_ = false;
};

}  // namespace lockstep
