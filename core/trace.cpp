#include "core/trace.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "core/gpu.h"
#include "core/op_log.h"

namespace lockstep {

const char* name(Phase phase) {
  switch (phase) {
    case Phase::gemm: return "gemm";
    case Phase::attention: return "attention";
    case Phase::memory_bound: return "memory_bound";
    case Phase::optimizer: return "optimizer";
    case Phase::data: return "data";
    case Phase::checkpoint: return "checkpoint";
    case Phase::evaluation: return "evaluation";
    case Phase::communication: return "communication";
  }
  return "?";
}

Trace::Span::Span(Trace& trace, Phase phase, Stream& stream)
    : span_(stream, lockstep::name(phase), "phase"),
      trace_(stream.is_measuring() ? nullptr : &trace),
      phase_(phase),
      stream_(stream),
      begin_(std::chrono::steady_clock::now()) {
  if (stream.op_log() != nullptr)
    outer_ = stream.op_log()->set_phase(static_cast<std::uint8_t>(phase));
  if (trace_ == nullptr || !stream.is_cuda()) return;
  gpu::begin_range(lockstep::name(phase));
  if (trace.timing_) begin_event_ = stream.record_timed();
}

Trace::Span::~Span() {
  if (stream_.op_log() != nullptr) stream_.op_log()->set_phase(outer_);
  if (trace_ == nullptr) return;
  if (stream_.is_cuda()) {
    gpu::end_range();
    // Behind a fault of a kernel every call fails, and the first error is on its way up already.
    if (!trace_->timing_ || std::uncaught_exceptions() > 0) return;
    try {
      trace_->steps_[trace_->begun_ % 2].spans.push_back(
          {phase_, std::move(begin_event_), stream_.record_timed()});
    } catch (const Error&) {
      // A fault of a kernel, which the next call that may throw meets too.
    }
    return;
  }
  const std::chrono::duration<double> d = std::chrono::steady_clock::now() - begin_;
  trace_->seconds_[static_cast<std::size_t>(phase_)] += d.count();
}

void Trace::begin_step(bool timed) {
  ++begun_;
  Step& step = steps_[begun_ % 2];
  step.timed = timing_ = timed;
  step.spans.clear();
  if (begun_ > 2) taken_ = std::max(taken_, begun_ - 2);
}

std::array<double, kPhases> Trace::take() {
  if (taken_ < begun_) {
    Step& step = steps_[++taken_ % 2];
    if (!step.timed) seconds_.fill(std::numeric_limits<double>::quiet_NaN());
    for (const Timed& span : step.spans)
      seconds_[static_cast<std::size_t>(span.phase)] += span.end.seconds_since(span.begin);
    step.spans.clear();
  }
  return std::exchange(seconds_, {});
}

}  // namespace lockstep
