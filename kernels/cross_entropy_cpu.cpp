// A row (200 KB for GPT-2 in fp32) comes from memory once: its maximum, its sum of exponentials and
// its gradient are three passes in the L2 cache. In fp32 the second pass leaves exp(x - maximum) in
// place, so that the third only scales; bf16 would round twice and computes it again.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cross_entropy.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
float maximum(const T* x, std::int64_t V) {
  Floats a = splat(-INFINITY), b = a;
  std::int64_t v = 0;
  for (; v + 2 * kLanes <= V; v += 2 * kLanes) {
    a = max(a, load(x + v));
    b = max(b, load(x + v + kLanes));
  }
  float m = largest(max(a, b));
  for (; v < V; ++v)
    m = std::max(m, to_float(x[v]));
  return m;
}

// Sum of exp(x - m); writes the terms to `terms` where that is not null. Blocks keep the fp32 sums
// short.
template <class T>
double sum_of_exponentials(const T* x, std::int64_t V, float m, float* terms) {
  constexpr std::int64_t kBlock = 4096;
  double sum = 0;
  for (std::int64_t begin = 0; begin < V; begin += kBlock)
    sum += total(sum_vectors(std::min(kBlock, V - begin), [&](std::int64_t i, std::int64_t n) {
      const auto v = begin + i;
      Floats e = exp(load(x + v, n) - m);
      if (n < kLanes) e = first_lanes(e, n);
      if (terms != nullptr) store(terms + v, e, n);
      return e;
    }));
  return sum;
}

struct LogSumExp {
  float maximum;
  double sum;
  double value() const { return static_cast<double>(maximum) + std::log(sum); }
};

float loss_of(const LogSumExp& lse, float target_logit, float z_loss) {
  const double value = lse.value();
  return static_cast<float>(value - static_cast<double>(target_logit) +
                            static_cast<double>(z_loss) * value * value);
}

template <class T>
void gradient_row(T* x, float* loss, std::int64_t Vp, std::int32_t target,
                  const CrossEntropy& args) {
  const std::int64_t V = args.vocabulary;
  if (target < 0) {
    *loss = 0;
    std::memset(static_cast<void*>(x), 0, static_cast<std::size_t>(Vp) * sizeof(T));
    return;
  }
  constexpr bool kKeepTerms = std::is_same_v<T, float>;
  const float target_logit = to_float(x[target]);
  LogSumExp lse{maximum(x, V), 0};
  if constexpr (kKeepTerms)
    lse.sum = sum_of_exponentials(x, V, lse.maximum, x);
  else
    lse.sum = sum_of_exponentials(x, V, lse.maximum, nullptr);
  *loss = loss_of(lse, target_logit, args.z_loss);

  const double z = 1 + 2 * static_cast<double>(args.z_loss) * lse.value();
  const float scale = static_cast<float>(static_cast<double>(args.gradient_scale) * z / lse.sum);
  const float target_term = kKeepTerms ? to_float(x[target]) : std::exp(target_logit - lse.maximum);
  for_vectors(V, [&](std::int64_t v, std::int64_t n) {
    const Floats term = kKeepTerms ? load(x + v, n) : exp(load(x + v, n) - lse.maximum);
    store(x + v, scale * term, n);
  });
  store_one(x + target, scale * target_term - args.gradient_scale);
  std::memset(static_cast<void*>(x + V), 0, static_cast<std::size_t>(Vp - V) * sizeof(T));
}

std::int32_t checked_target(const CrossEntropy& args, std::int64_t n) {
  const auto target = args.targets.as<std::int32_t>()[n];
  LOCKSTEP_CHECK(target < args.vocabulary, "target ", target, " of row ", n,
                 " is outside the vocabulary of ", args.vocabulary);
  return target;
}

}  // namespace

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  const auto Vp = logits.shape[1];
  with_float(logits.dtype, [&]<class T>(T) {
    stream.parallel_ranges(logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n)
        gradient_row(logits.as<T>() + n * Vp, args.losses.as<float>() + n, Vp,
                     checked_target(args, n), args);
    });
  });
}

void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args) {
  const auto Vp = logits.shape[1];
  with_float(logits.dtype, [&]<class T>(T) {
    stream.parallel_ranges(logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        const T* x = logits.as<T>() + n * Vp;
        const auto target = checked_target(args, n);
        float loss = 0;
        if (target >= 0) {
          const float m = maximum(x, args.vocabulary);
          const LogSumExp lse{m, sum_of_exponentials(x, args.vocabulary, m, nullptr)};
          loss = loss_of(lse, to_float(x[target]), 0);
        }
        args.losses.as<float>()[n] = loss;
      }
    });
  });
}

void sum_losses(Stream&, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets) {
  double sum = 0;
  std::int32_t valid = 0;
  for (std::int64_t n = 0; n < losses.elements(); ++n) {
    if (targets.as<std::int32_t>()[n] < 0) continue;
    sum += static_cast<double>(losses.as<float>()[n]);
    ++valid;
  }
  *loss_sum.as<float>() += static_cast<float>(sum);
  *valid_tokens.as<std::int32_t>() += valid;
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
