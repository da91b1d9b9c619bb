#pragma once

#include <cstdint>

#include "train/config.h"

namespace lockstep {

// LearningRate is the learning rate as a pure function of the step. With t = step - begin (from 1),
// T = steps - begin, P = peak, I = initial, W = warmup_steps, r = final_ratio, D = decay_steps, or
// else round(decay_fraction T), and b = max(W, T - D), which is the last step before decay:
//   t <= W       I + (P - I) t / W
//   t <= b       P
//   t >  b       P (r + (1 - r) d(x)),  x = (t - 1 - b) / (T - b)
//     cosine     d = (1 + cos(pi x)) / 2
//     linear     d = 1 - x
//     wsd        d = 1 - sqrt(x)
//     constant   d = 1
// The first step of decay has x = 0 and the last x = 1 - 1 / (T - b), so with r = 0 the last step
// still has a positive rate. After `steps` the rate stays at r P. wsd uses 1 - sqrt because Hagele
// et al. 2024, arXiv:2405.18392, section 4, found it better than a straight line of the same
// length. For a straight line after a constant rate, use `linear` with a shorter decay.
struct LearningRate {
  Config::Schedule schedule;
  double peak = 0;
  std::int64_t steps = 0;  // last step of the run
  std::int64_t begin = 0;  // step after which the schedule begins; > 0: in an extended run
  double initial = 0;      // rate after step `begin`

  explicit LearningRate(const Config& config)
      : schedule(config.schedule),
        peak(config.optimizer.learning_rate),
        steps(config.train.steps) {}

  double at(std::int64_t step) const;
  std::int64_t last_before_decay() const;  // begin + b
};

}  // namespace lockstep
