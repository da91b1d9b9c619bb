#include "model/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace lockstep {

Sampler::Sampler(const Sampling& sampling, int vocabulary)
    : sampling_(sampling), vocabulary_(vocabulary) {
  const auto check = [](bool good, const char* what, auto value, const char* range) {
    if (!good) throw UsageError(str(what, " is ", value, ", expected ", range));
  };
  check(sampling.temperature >= 0 && std::isfinite(sampling.temperature), "temperature",
        sampling.temperature, "0 (the likeliest token) or more");
  check(sampling.top_k >= 0, "top-k", sampling.top_k, "0 (all tokens) or more");
  check(sampling.top_p > 0 && sampling.top_p <= 1, "top-p", sampling.top_p, "a share in (0, 1]");
  candidates_.resize(static_cast<std::size_t>(vocabulary));
}

int Sampler::draw(std::span<const float> logits, std::uint64_t index) {
  const auto vocabulary = static_cast<std::size_t>(vocabulary_);
  LOCKSTEP_CHECK(logits.size() >= vocabulary, logits.size(), " logits, vocabulary of ",
                 vocabulary_);
  for (std::size_t i = 0; i < vocabulary; ++i)
    if (!std::isfinite(logits[i]))
      throw DataError(str("generated token ", index % kMostDraws,
                          index < kMostDraws ? "" : str(" of prompt ", index / kMostDraws + 1),
                          ": the logit of token ", i, " is ", logits[i],
                          "; the weights are not those of a trained model"));
  if (sampling_.temperature == 0)
    return static_cast<int>(std::max_element(logits.begin(), logits.begin() + vocabulary_) -
                            logits.begin());
  candidates_.resize(vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i)
    candidates_[i] = {logits[i], static_cast<int>(i)};
  // Equal logits are ordered by token, so that the result does not depend on the sort.
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  auto kept = vocabulary;
  if (sampling_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(sampling_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates_.end(), likelier);
  candidates_.resize(kept);

  const double largest = candidates_.front().logit;
  const auto weight = [&](const Candidate& c) {
    return std::exp((c.logit - largest) / sampling_.temperature);
  };
  double total = 0;
  for (const Candidate& c : candidates_)
    total += weight(c);
  if (sampling_.top_p < 1) {
    double sum = 0;
    std::size_t n = 0;
    while (n < kept && sum < sampling_.top_p * total)
      sum += weight(candidates_[n++]);
    candidates_.resize(n);
    total = sum;
  }
  static constexpr auto kPurpose = purpose_of("sampler");
  double left = total * uniform_open(philox(sampling_.seed, kPurpose, index)[0]);
  for (const Candidate& c : candidates_)
    if ((left -= weight(c)) <= 0) return c.token;
  return candidates_.back().token;
}

}  // namespace lockstep
