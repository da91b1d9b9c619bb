// Sampler draws the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

struct Sampling {
  float temperature = 1.0f;  // 0: always the most likely token
  int top_k = 0;             // keep the k most likely tokens; 0: all
  float top_p = 1.0f;        // keep the most likely tokens until their probabilities reach p
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws UsageError when a value is out of its range.
  Sampler(const Sampling& sampling, int vocabulary);

  // With several texts, text n uses the indices from n kMostDraws on.
  static constexpr std::uint64_t kMostDraws = std::uint64_t{1} << 32;

  // Draws the token at `index` of the generated text from its logits (at least `vocabulary` of
  // them). The distribution is softmax(logits / temperature), cut by top-k, then by top-p; the
  // uniform number is that of philox for (seed, index). The result depends only on the arguments.
  // Throws DataError if a logit is not finite: such weights are not from a trained model.
  int draw(std::span<const float> logits, std::uint64_t index);

 private:
  Sampling sampling_;
  int vocabulary_;
  struct Candidate {
    float logit;
    int token;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace lockstep
