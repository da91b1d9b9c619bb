#include "core/trace.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/gpu.h"

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
    : trace_(stream.is_measuring() ? nullptr : &trace),
      phase_(phase),
      stream_(stream),
      begin_(std::chrono::steady_clock::now()) {
  if (trace_ == nullptr || !stream.is_cuda()) return;
  gpu::begin_range(lockstep::name(phase));
  if (trace.in_step_) begin_event_ = stream.record_timed();
}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  if (stream_.is_cuda()) {
    gpu::end_range();
    // Behind a fault of a kernel every call fails, and the first error is on its way up already.
    if (!trace_->in_step_ || std::uncaught_exceptions() > 0) return;
    trace_->steps_[trace_->begun_ % 2].push_back(
        {phase_, std::move(begin_event_), stream_.record_timed()});
    return;
  }
  const std::chrono::duration<double> d = std::chrono::steady_clock::now() - begin_;
  trace_->seconds_[static_cast<std::size_t>(phase_)] += d.count();
}

void Trace::begin_step() {
  ++begun_;
  steps_[begun_ % 2].clear();
  if (begun_ > 2) taken_ = std::max(taken_, begun_ - 2);
  in_step_ = true;
}

std::array<double, kPhases> Trace::take() {
  if (taken_ < begun_) {
    auto& spans = steps_[++taken_ % 2];
    for (const Timed& span : spans)
      seconds_[static_cast<std::size_t>(span.phase)] += span.end.seconds_since(span.begin);
    spans.clear();
  }
  return std::exchange(seconds_, {});
}

}  // namespace lockstep
