// PublishedEngine: what kernels and overlap of another engine reach, as fitted on throughputs that
// it was published with (docs/planning.md; tests/bench/published/ has the throughputs and the fit).
#pragma once

#include <span>
#include <string_view>

#include "launch/plan/time_model.h"

namespace lockstep {

struct PublishedEngine {
  std::string_view name;
  EngineEfficiency numbers;
  double overlap = 0.5;        // share of tensor-parallel collectives that is hidden
  double data_overlap = 0.9;   // of those of the data ranks, where there is enough to hide them
  double step_seconds = 0.02;  // that a step has whatever it does
  // Context ranks have contiguous tokens: how much longer the last one's attention takes.
  double context_imbalance = 0;
  double reduced_bytes = 2;   // a gradient, as fully sharded ranks reduce it for each micro-batch
  double gradient_bytes = 2;  // a gradient, as others reduce it once a step
  double calls = 0;           // collectives that this takes; 0: Megatron's buckets
  bool gathers_fp8 = false;   // weights, once a step
  bool fuses_attention = true;
};

std::span<const PublishedEngine> published_engines();
// Throws Error where there is none of that name.
const PublishedEngine& published_engine(std::string_view name);

}  // namespace lockstep
