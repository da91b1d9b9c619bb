#pragma once

#include <cstdint>

#include "train/config.h"

namespace lockstep {

// Returns the learning rate of a step. It is a pure function. With s the step (from 1), S =
// `steps`, P = `peak`, W = warmup_steps, r = final_ratio, and b = max(W, S - round(decay_fraction
// S)), which is the last step before decay:
//   s <= W       P s / W
//   s <= b       P
//   s >  b       P (r + (1 - r) d(x)),  x = (s - 1 - b) / (S - b)
//     cosine     d = (1 + cos(pi x)) / 2
//     linear     d = 1 - x
//     wsd        d = 1 - sqrt(x)
//     constant   d = 1
// The first step of decay has x = 0 and the last x = 1 - 1 / (S - b), so with r = 0 the last step
// still has a positive rate. After S the rate stays at r P. wsd uses 1 - sqrt because Hagele et al.
// 2024, arXiv:2405.18392, section 4, found it better than a straight line of the same length. For a
// straight line after a constant rate, use `linear` with a decay_fraction below 1.
double learning_rate(const Config::Schedule& schedule, double peak, std::int64_t step,
                     std::int64_t steps);

}  // namespace lockstep
