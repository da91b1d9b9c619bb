// Trace: what a stream's time goes to, step by step, in the components that a plan has too. Every
// operator and collective says itself what it is (core/op_log.h); what else takes time, or decides
// for the operators within it, opens a span. Read one step later by the trainer.
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
  // Of a stream, which outlives it and has no other.
  explicit Trace(Stream& stream);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  // While it lives its stream's time is that of a component; within an inner one, the inner's. On a
  // CUDA stream that is the time between two events. Tools see an NVTX range.
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
  Component within() const { return within_; }  // other: no span

  // What is given to the stream between the two is of one step. Only of a timed one is it known
  // what took how long: events cost time, and have no place in a graph. Steps are taken in their
  // order; what is not taken when the second one behind it begins is dropped.
  void begin_step(bool timed);
  void end_step();

  // Of the first step that was not taken, and is done: its sum is the time between begin_step and
  // end_step, `other` what was within no span. NaN where it was not timed, zeros where there is no
  // step.
  StepTime take();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {  // of a CUDA stream
    Component begins;
    Event event;
  };
  struct Step {
    bool timed = false;
    StepTime time;  // of a CPU stream
    std::vector<Mark> marks;
  };

  Component change_to(Component component);  // returns what it was
  void mark(Component begins);

  Stream& stream_;
  Component within_ = Component::other;
  // Of a CPU stream, since its last mark.
  Component running_ = Component::other;
  Clock::time_point since_;
  std::array<Step, 2> steps_;  // by turns
  std::size_t begun_ = 0, taken_ = 0;
  bool timing_ = false;
};

}  // namespace lockstep
