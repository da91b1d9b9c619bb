// Trace: who spends the time. Spans are opened where the work is enqueued (model, train), read by
// train/meter one step later, and named like the rows of the planner's estimate.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "core/stream.h"

namespace lockstep {

enum class Phase : std::uint8_t {
  gemm,
  attention,
  memory_bound,
  optimizer,
  data,
  checkpoint,
  evaluation,
  communication
};
inline constexpr int kPhases = 8;

const char* name(Phase phase);

class Trace {
 public:
  // Adds the time between its construction and destruction to a phase. Spans do not nest.
  class Span {
   public:
    Span(Trace& trace, Phase phase, Stream& stream);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    Phase phase_;
    std::chrono::steady_clock::time_point begin_;
  };

  // Seconds of each phase since the last call.
  std::array<double, kPhases> take();

 private:
  std::array<double, kPhases> seconds_{};
};

}  // namespace lockstep
