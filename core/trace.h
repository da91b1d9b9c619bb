// Trace: who spends the time. Spans are opened where the work is enqueued (model, train), read by
// train/meter one step later, and named like the rows of the planner's estimate.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/stream.h"
#include "core/timeline.h"

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
  // Adds the time between its construction and destruction to a phase. Spans do not nest. On a CUDA
  // stream that is the time between two events, of spans within a timed step; tools see an NVTX
  // range.
  class Span {
   public:
    Span(Trace& trace, Phase phase, Stream& stream);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Timeline::Span span_;
    Trace* trace_;
    Phase phase_;
    Stream& stream_;
    std::chrono::steady_clock::time_point begin_;
    Event begin_event_;
    std::uint8_t outer_ = 0;  // phase, in the stream's OpLog
  };

  // What a CUDA stream is given between the two belongs to one step, whose spans are timed or not:
  // events cost time, and have no place in a graph. Steps are taken in their order; what is not
  // taken when the second one behind it begins is dropped.
  void begin_step(bool timed);
  void end_step() { timing_ = false; }

  // Seconds of each phase since the last call. On a CUDA stream: of the first step that was not
  // taken, which must be done; NaN where it was not timed.
  std::array<double, kPhases> take();

 private:
  struct Timed {
    Phase phase;
    Event begin, end;
  };
  struct Step {  // of a CUDA stream
    bool timed = false;
    std::vector<Timed> spans;
  };

  std::array<double, kPhases> seconds_{};
  std::array<Step, 2> steps_;  // by turns
  std::size_t begun_ = 0, taken_ = 0;
  bool timing_ = false;
};

}  // namespace lockstep
