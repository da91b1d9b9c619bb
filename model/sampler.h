// Sampler: the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

struct Sampling {
  float temperature = 1.0f;  // 0: always the likeliest token
  int top_k = 0;             // keep the k likeliest; 0: all
  float top_p = 1.0f;        // keep the likeliest until their probabilities reach p
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws UsageError when a value is out of its range.
  Sampler(const Sampling& sampling, int vocabulary);

  // Of several texts, text n has the indices from n kMostDraws on.
  static constexpr std::uint64_t kMostDraws = std::uint64_t{1} << 32;

  // The token at `index` of the generated text, from its logits (at least `vocabulary` of them):
  // softmax(logits / temperature), cut by top-k, then by top-p, drawn with the uniform number that
  // philox gives for (seed, index). A function of its arguments alone. Throws DataError where a
  // logit is not finite: then the weights are not those of a trained model.
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
