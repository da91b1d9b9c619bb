// A row (200 KB for GPT-2 in fp32) is read from memory once. Its maximum, its sum of exponentials
// and its gradient are three passes in the L2 cache. In fp32 the second pass stores
// exp(x - maximum) in place, so that the third only scales. bf16 would round twice, so there the
// third pass recomputes it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

// Returns the sum of exp(x - m). Writes the terms to `terms` if it is not null. Blocks keep the
// fp32 sums short.
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

// Combined holds the combined parts of all ranks for a row.
struct Combined {
  LogSumExp lse;
  float target_logit;
};
Combined combined(ConstTensor parts, std::int64_t n) {
  const auto part = [&](std::int64_t rank) {
    return parts.as<float>() + (rank * parts.shape[1] + n) * 3;
  };
  Combined all{{std::numeric_limits<float>::lowest(), 0}, 0};
  for (std::int64_t rank = 0; rank < parts.shape[0]; ++rank)
    all.lse.maximum = std::max(all.lse.maximum, part(rank)[0]);
  for (std::int64_t rank = 0; rank < parts.shape[0]; ++rank) {
    const float* p = part(rank);
    all.lse.sum += static_cast<double>(p[1]) *
                   std::exp(static_cast<double>(p[0]) - static_cast<double>(all.lse.maximum));
    all.target_logit += p[2];
  }
  return all;
}

// Columns describes the columns of a row: V of the vocabulary, and Vp with padding. `target` is the
// column of the target, or -1.
struct Columns {
  std::int64_t V, Vp, target;
};
Columns columns_of(const CrossEntropy& args, std::int64_t Vp, std::int32_t target) {
  const std::int64_t V = columns_of_vocabulary(args, Vp), t = target - args.first_column;
  return {V, Vp, target >= 0 && 0 <= t && t < V ? t : -1};
}

// Replaces x by the gradient. kTerms: x holds exp(logits - maximum).
template <bool kTerms, class T>
void replace(T* x, const Columns& columns, const LogSumExp& lse, const CrossEntropy& args) {
  const auto [V, Vp, target] = columns;
  const double z = 1 + 2 * static_cast<double>(args.z_loss) * lse.value();
  const float scale = static_cast<float>(static_cast<double>(args.gradient_scale) * z / lse.sum);
  float target_term = target < 0 ? 0 : to_float(x[target]);
  if (!kTerms) target_term = std::exp(target_term - lse.maximum);
  for_vectors(V, [&](std::int64_t v, std::int64_t n) {
    const Floats term = kTerms ? load(x + v, n) : exp(load(x + v, n) - lse.maximum);
    store(x + v, scale * term, n);
  });
  if (target >= 0) store_one(x + target, scale * target_term - args.gradient_scale);
  std::memset(static_cast<void*>(x + V), 0, static_cast<std::size_t>(Vp - V) * sizeof(T));
}

template <class T>
void gradient_row(T* x, float* loss, const Columns& columns, const CrossEntropy& args) {
  constexpr bool kKeepTerms = std::is_same_v<T, float>;
  const float target_logit = to_float(x[columns.target]);
  LogSumExp lse{maximum(x, columns.V), 0};
  if constexpr (kKeepTerms)
    lse.sum = sum_of_exponentials(x, columns.V, lse.maximum, x);
  else
    lse.sum = sum_of_exponentials(x, columns.V, lse.maximum, nullptr);
  *loss = loss_of(lse, target_logit, args.z_loss);
  replace<kKeepTerms>(x, columns, lse, args);
}

std::int32_t checked_target(const CrossEntropy& args, std::int64_t n) {
  const auto target = args.targets.as<std::int32_t>()[n];
  LOCKSTEP_CHECK(target < args.vocabulary, "target ", target, " of row ", n,
                 " is outside the vocabulary of ", args.vocabulary);
  return target;
}

}  // namespace

void cross_entropy_parts(Stream& stream, Tensor parts, ConstTensor logits,
                         const CrossEntropy& args) {
  const auto Vp = logits.shape[1];
  with_float(logits.dtype, [&]<class T>(T) {
    stream.parallel_ranges(logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        const T* x = logits.as<T>() + n * Vp;
        const auto target = checked_target(args, n);
        const auto columns = columns_of(args, Vp, target);
        float* part = parts.as<float>() + n * 3;
        std::fill_n(part, 3, 0.0f);
        part[0] = std::numeric_limits<float>::lowest();
        if (target < 0 || columns.V == 0) continue;
        part[0] = std::max(part[0], maximum(x, columns.V));  // not -infinity, nor NaN
        part[1] = static_cast<float>(sum_of_exponentials(x, columns.V, part[0], nullptr));
        if (columns.target >= 0) part[2] = to_float(x[columns.target]);
      }
    });
  });
}

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  const auto Vp = logits.shape[1];
  with_float(logits.dtype, [&]<class T>(T) {
    stream.parallel_ranges(logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        T* x = logits.as<T>() + n * Vp;
        float& loss = args.losses.as<float>()[n];
        const auto target = checked_target(args, n);
        const auto columns = columns_of(args, Vp, target);
        if (target < 0) {
          loss = 0;
          std::memset(static_cast<void*>(x), 0, static_cast<std::size_t>(Vp) * sizeof(T));
        } else if (args.parts) {
          const auto all = combined(args.parts, n);
          loss = loss_of(all.lse, all.target_logit, args.z_loss);
          replace<false>(x, columns, all.lse, args);
        } else {
          gradient_row(x, &loss, columns, args);
        }
      }
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
        if (target >= 0 && args.parts) {
          const auto all = combined(args.parts, n);
          loss = loss_of(all.lse, all.target_logit, 0);
        } else if (target >= 0) {
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
