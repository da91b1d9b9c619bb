// Packed products in the manner of Goto & van de Geijn 2008 ("Anatomy of high-performance matrix
// multiplication", ACM TOMS 34:3). C [M, N] is cut into tasks of rows x columns, each computed by
// one thread from its own scratch:
//
//   for each block of k (kDepth words):      the sums of earlier blocks wait in scratch
//     pack B [depth, columns]                stays in L2
//     for each kRowsPacked rows: pack A      for each kMr rows (in L1): a tile with each panel of B
//
// The last block's tiles go through the epilogue while they are in L1. How k is cut depends on
// nothing but k, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/check.h"
#include "kernels/matmul.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/matmul_pack_cpu.h"
#include "kernels/matmul_rows_cpu.h"
#include "kernels/matmul_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 512, kTaskColumns = 384 / kNr * kNr;
constexpr std::int64_t kRowsPacked = 96;  // rows of A packed at once; a multiple of kStrip and kMr
constexpr std::int64_t kFewRows = 16;     // up to this many, the weight is read in place

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// A thread's scratch, in floats.
constexpr std::int64_t kPackedA =
    std::max(kRowsPacked * kRowStride, kRowsPacked / kStrip * kStripStride);
constexpr std::int64_t kPackedB = kTaskColumns / kNr * kPanelStride;
constexpr std::int64_t kSums = kTaskRows * kTaskColumns;
constexpr std::int64_t kThreadScratch = kPackedA + kPackedB + kSums;

// C = A B of M x N, cut into rows x columns tasks.
struct Tasks {
  std::int64_t M, N, rows, columns, across;
  std::int64_t count() const { return divide_up(M, rows) * across; }
};

Tasks cut(std::int64_t M, std::int64_t N, int threads) {
  const auto even = [](std::int64_t size, std::int64_t pieces, std::int64_t unit) {
    return divide_up(divide_up(size, pieces), unit) * unit;
  };
  const auto columns = even(N, divide_up(N, kTaskColumns), kNr);
  const auto across = divide_up(N, columns);
  auto down = divide_up(M, kTaskRows);
  // Few tasks, and not the same number for each thread: cut M further, as long as packing B for
  // each piece stays small beside the product.
  while (down * across % threads != 0 && down * across < 8 * threads && M / (down + 1) >= 64)
    ++down;
  return {M, N, even(M, down, kMr), columns, across};
}

enum class Contiguous { k, lines };  // which dimension of an operand lies contiguous in memory

// out(tile, tile_stride, row, rows, column, columns) takes finished sums; sums_of_a(row, rows, ...)
template <Contiguous A, Contiguous B, class T>
class Product {
 public:
  Product(const Operand<T>& a, const Operand<T>& b, float* scratch)
      : a_(a),
        b_(b),
        packed_a_(scratch),
        packed_b_(scratch + kPackedA),
        sums_(scratch + kPackedA + kPackedB) {}

  template <class Finish>
  void run(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
           Finish&& finish) {
    const auto depth = kDepth * kPerWord<T>;
    const bool one_block = a_.k <= depth;
    for (std::int64_t k = 0; k < a_.k; k += depth) {
      const auto length = std::min(depth, a_.k - k);
      pack_b({column, columns, k, length});
      for (std::int64_t r = 0; r < rows; r += kRowsPacked) {
        const Block block{row + r, std::min(kRowsPacked, rows - r), k, length};
        pack_a(block);
        float* sums = one_block ? sums_ : sums_ + r * divide_up(columns, kNr) * kNr;
        multiply(block, column, columns, sums, one_block, finish);
      }
    }
  }

 private:
  void pack_a(const Block& block) {
    if constexpr (A == Contiguous::k)
      pack_rows(packed_a_, a_, block);
    else
      pack_lines<kStrip, kStripStride>(packed_a_, a_, block);
  }
  void pack_b(const Block& block) {
    if constexpr (B == Contiguous::k)
      pack_transposed(packed_b_, b_, block);
    else
      pack_lines<kNr, kPanelStride>(packed_b_, b_, block);
  }

  template <class Finish>
  void multiply(const Block& block, std::int64_t column, std::int64_t columns, float* tile,
                bool reuse_tile, Finish&& finish) {
    constexpr int kStride = A == Contiguous::k ? kRowStride : 1;
    constexpr int kStep = A == Contiguous::k ? 1 : kStrip;
    const bool last = block.k + block.depth == a_.k;
    const auto words = words_of<T>(block);
    for (std::int64_t r = 0; r < block.lines; r += kMr) {
      const float* a = packed_a_ + (A == Contiguous::k ? r * kRowStride
                                                       : r / kStrip * kStripStride + r % kStrip);
      for (std::int64_t c = 0; c < columns; c += kNr, tile += reuse_tile ? 0 : kMr * kNr) {
        const float* b = packed_b_ + c / kNr * kPanelStride;
        const auto width = std::min<std::int64_t>(kNr, columns - c);
        if (width > 2 * kWide && kVectors == 3)
          multiply_tile<T, kVectors, kStride, kStep>(tile, a, b, words, block.k > 0);
        else if (width > kWide)
          multiply_tile<T, 2, kStride, kStep>(tile, a, b, words, block.k > 0);
        else
          multiply_tile<T, 1, kStride, kStep>(tile, a, b, words, block.k > 0);
        if (last)
          finish(tile, block.line + r, std::min<std::int64_t>(kMr, block.lines - r), column + c,
                 width);
      }
    }
  }

  Operand<T> a_, b_;
  float *packed_a_, *packed_b_, *sums_;
};

// finish(tile, row, rows, column, columns) for all of C = A B; the tile's rows are kNr apart.
template <Contiguous A, Contiguous B, class T, class Finish>
void multiply(Stream& stream, Tensor scratch, const Operand<T>& a, const Operand<T>& b,
              Finish&& finish) {
  const auto tasks = cut(a.lines, b.lines, stream.threads());
  stream.parallel_for(tasks.count(), [&](std::int64_t task, int thread) {
    const auto row = task / tasks.across * tasks.rows, column = task % tasks.across * tasks.columns;
    Product<A, B, T> product(a, b, scratch.as<float>() + thread * kThreadScratch);
    product.run(row, std::min(tasks.rows, tasks.M - row), column,
                std::min(tasks.columns, tasks.N - column), finish);
  });
}

// The same for few rows of A, both operands with contiguous k.
template <class T, class Finish>
void multiply_few_rows(Stream& stream, const Operand<T>& a, const Operand<T>& b, Finish&& finish) {
  stream.parallel_for(divide_up(b.lines, kNr), [&](std::int64_t task, int) {
    float sums[kFewRows * kNr];
    const auto first = task * kNr, columns = std::min<std::int64_t>(kNr, b.lines - first);
    const auto at = [&]<int Rows>(std::integral_constant<int, Rows>, std::int64_t r) {
      std::int64_t c = 0;
      const auto dot = [&]<int Columns>(std::integral_constant<int, Columns>) {
        dot_rows<Rows, Columns>(sums + r * kNr + c, kNr, a.data + r * a.stride, a.stride,
                                b.data + (first + c) * b.stride, b.stride, a.k);
        c += Columns;
      };
      while (c + kColumnsAtOnce <= columns)
        dot(std::integral_constant<int, kColumnsAtOnce>{});
      while (c < columns)
        dot(std::integral_constant<int, 1>{});
    };
    std::int64_t r = 0;
    for (; r + kRowsAtOnce <= a.lines; r += kRowsAtOnce)
      at(std::integral_constant<int, kRowsAtOnce>{}, r);
    for (; r < a.lines; ++r)
      at(std::integral_constant<int, 1>{}, r);
    finish(sums, 0, a.lines, first, columns);
  });
}

// Stores sums with bias, GELU and residual.
template <class T, class Y>
struct ForwardEpilogue {
  Y* y;
  std::int64_t stride;
  const T* bias;
  Y* pre_gelu;
  const Y* residual;

  void operator()(const float* tile, std::int64_t row, std::int64_t rows, std::int64_t column,
                  std::int64_t columns) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = (row + r) * stride + column;
      for_vectors(columns, [&](std::int64_t c, std::int64_t n) {
        Floats v = load(tile + r * kNr + c, n);
        if (bias != nullptr) v += load(bias + column + c, n);
        if (pre_gelu != nullptr) {
          store(pre_gelu + at + c, v, n);
          v = gelu(load(pre_gelu + at + c, n));
        }
        if (residual != nullptr) v += load(residual + at + c, n);
        store(y + at + c, v, n);
      });
    }
  }
};

Tensor thread_scratch(Stream& stream, Arena& scratch) {
  return scratch.allocate("matmul_panels", DType::fp32, {stream.threads(), kThreadScratch});
}

}  // namespace

void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue) {
  const auto N = x.shape[0], I = x.shape[1], O = weight.shape[0];
  const Arena::Scope scope(scratch);
  const auto panels = N > kFewRows ? thread_scratch(stream, scratch) : Tensor{};
  if (stream.is_measuring()) return;
  with_float(x.dtype, [&]<class T>(T) {
    const Operand<T> a{x.as<T>(), I, N, I}, b{weight.as<T>(), I, O, I};
    with_float(y.dtype, [&]<class Y>(Y) {
      const ForwardEpilogue<T, Y> finish{y.as<Y>(), O,
                                         epilogue.bias ? epilogue.bias.as<T>() : nullptr,
                                         epilogue.pre_gelu ? epilogue.pre_gelu.as<Y>() : nullptr,
                                         epilogue.residual ? epilogue.residual.as<Y>() : nullptr};
      if (N > kFewRows)
        multiply<Contiguous::k, Contiguous::k>(stream, panels, a, b, finish);
      else
        multiply_few_rows(stream, a, b, finish);
    });
  });
}

void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu) {
  const auto N = dy.shape[0], O = weight.shape[0], I = weight.shape[1];
  const Arena::Scope scope(scratch);
  const auto panels = thread_scratch(stream, scratch);
  if (stream.is_measuring()) return;
  with_float(dy.dtype, [&]<class T>(T) {
    const Operand<T> a{dy.as<T>(), O, N, O}, b{weight.as<T>(), I, I, O};
    T* out = dx.as<T>();
    const T* before = pre_gelu ? pre_gelu.as<T>() : nullptr;
    multiply<Contiguous::k, Contiguous::lines>(
        stream, panels, a, b,
        [=](const float* tile, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t columns) {
          for (std::int64_t r = 0; r < rows; ++r) {
            const auto at = (row + r) * I + column;
            for_vectors(columns, [&](std::int64_t c, std::int64_t n) {
              Floats v = load(tile + r * kNr + c, n);
              if (before != nullptr) v *= gelu_slope(load(before + at + c, n));
              store(out + at + c, v, n);
            });
          }
        });
  });
}

void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                            ConstTensor dy, ConstTensor x) {
  const auto N = dy.shape[0], O = dy.shape[1], I = x.shape[1];
  const Arena::Scope scope(scratch);
  const auto panels = thread_scratch(stream, scratch);
  if (stream.is_measuring()) return;
  with_float(dy.dtype, [&]<class T>(T) {
    const Operand<T> a{dy.as<T>(), O, O, N}, b{x.as<T>(), I, I, N};
    float* out = dweight.as<float>();
    multiply<Contiguous::lines, Contiguous::lines>(
        stream, panels, a, b,
        [=](const float* tile, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t columns) {
          for (std::int64_t r = 0; r < rows; ++r) {
            float* to = out + (row + r) * I + column;
            for_vectors(columns, [&](std::int64_t c, std::int64_t n) {
              store(to + c, load(to + c, n) + load(tile + r * kNr + c, n), n);
            });
          }
        });
    if (dbias)
      stream.parallel_ranges(O, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = 0; n < N; ++n)
          for (auto o = begin; o < end; ++o)
            dbias.as<float>()[o] += to_float(dy.as<T>()[n * O + o]);
      });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
