#include "core/trace.h"

#include <utility>

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
      begin_(std::chrono::steady_clock::now()) {}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  const std::chrono::duration<double> d = std::chrono::steady_clock::now() - begin_;
  trace_->seconds_[static_cast<std::size_t>(phase_)] += d.count();
}

std::array<double, kPhases> Trace::take() {
  return std::exchange(seconds_, {});
}

}  // namespace lockstep
