// This file implements packed GEMM after Goto & van de Geijn 2008 ("Anatomy of high-performance
// matrix multiplication", ACM TOMS 34:3). C [M, N] is cut into tasks of rows x columns. One thread
// computes a task in its own scratch:
//
//   for each block of k (kDepth words):      the sums of earlier blocks wait in scratch
//     pack B [depth, columns]                stays in L2
//     for some rows at a time: pack A        each kMr rows make a tile with each panel of B
//
// The last block's tiles go through the epilogue while they are in L1. The cuts of k depend only on
// k, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/integer.h"
#include "kernels/matmul.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/matmul_pack_cpu.h"
#include "kernels/matmul_rows_cpu.h"
#include "kernels/matmul_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kTaskRows = 1024, kTaskColumns = 384 / kNr * kNr;
constexpr std::int64_t kFewRows = 16;  // with up to this many, the weight is read in place

// Rows of A packed at once: a cache line of a transposed A.
template <class T>
constexpr std::int64_t kRowsPacked = 64 / std::int64_t{sizeof(T)};

// A thread's scratch, in floats: packed A, packed B, sums.
constexpr std::int64_t kMostRowsPacked = kRowsPacked<BFloat16>;
constexpr std::int64_t kPackedA =
    std::max(kMostRowsPacked * kRowStride, kMostRowsPacked / kStrip * kStripStride);
constexpr std::int64_t kPackedB = kTaskColumns / kNr * kPanelStride;
constexpr std::int64_t kSums = kTaskRows * kTaskColumns;
constexpr std::int64_t kThreadScratch = kPackedA + kPackedB + kSums;

// Tasks describes C [M, N], cut into tasks of rows x columns.
struct Tasks {
  std::int64_t M, N, rows, columns, across;
  std::int64_t count() const { return divide_up(M, rows) * across; }
};

Tasks cut(std::int64_t M, std::int64_t N, int threads) {
  const auto even = [](std::int64_t size, std::int64_t pieces, std::int64_t unit) {
    return divide_up(divide_up(size, pieces), unit) * unit;
  };
  auto columns = even(N, divide_up(N, kTaskColumns), kNr);
  auto across = divide_up(N, columns), down = divide_up(M, kTaskRows);
  // If there are few tasks, and not the same number for each thread, M is cut further. This
  // continues as long as packing B for each piece is cheap compared with the matmul. Then N is cut.
  while (down * across % threads != 0 && down * across < 8 * threads && M / (down + 1) >= 64)
    ++down;
  for (auto pieces = across; down * across < threads && columns > kNr;
       across = divide_up(N, columns))
    columns = even(N, ++pieces, kNr);
  return {M, N, even(M, down, kMr), columns, across};
}

enum class Contiguous : std::uint8_t { k, lines };  // dimension of an operand

// Product computes a task, some rows and columns of C = A B, in one thread.
template <Contiguous A, Contiguous B, class T>
class Product {
 public:
  // The sums over k of each row of A are added to line_sums [a.lines], if it is not null.
  Product(const Operand<T>& a, const Operand<T>& b, float* scratch, float* line_sums)
      : a_(a),
        b_(b),
        packed_a_(scratch),
        packed_b_(scratch + kPackedA),
        sums_(scratch + kPackedA + kPackedB),
        line_sums_(line_sums) {}

  // Calls finish(tile, row, rows, column, columns) once for each tile.
  template <class Finish>
  void run(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
           const Finish& finish) {
    const auto words = divide_up(a_.k, kPerWord<T>);
    const auto depth = divide_up(divide_up(words, divide_up(words, kDepth)), kAheadWords) *
                       kAheadWords * kPerWord<T>;
    for (std::int64_t k = 0; k < a_.k; k += depth) {
      const auto length = std::min(depth, a_.k - k);
      pack_b({column, columns, k, length});
      for (std::int64_t r = 0; r < rows; r += kRowsPacked<T>) {
        const Block block{row + r, std::min(kRowsPacked<T>, rows - r), k, length};
        pack_a(block);
        // With one block of k, one tile of sums is enough.
        float* sums = depth >= a_.k ? sums_ : sums_ + r * divide_up(columns, kNr) * kNr;
        multiply(block, column, columns, sums, finish);
      }
    }
  }

 private:
  void pack_a(const Block& block) {
    if constexpr (A == Contiguous::k) {
      pack_rows(packed_a_, a_, block);
    } else {
      pack_lines<kStrip, kStripStride>(packed_a_, a_, block);
      if (line_sums_ == nullptr) return;
      for (std::int64_t i = 0; i < block.lines; i += kStrip) {
        float sums[kStrip] = {};
        add_line_sums<T>(sums, packed_a_ + i / kStrip * kStripStride, words_of<T>(block));
        for (std::int64_t j = 0; j < std::min(kStrip, block.lines - i); ++j)
          line_sums_[block.line + i + j] += sums[j];
      }
    }
  }
  void pack_b(const Block& block) {
    if constexpr (B == Contiguous::k)
      pack_transposed(packed_b_, b_, block);
    else
      pack_lines<kNr, kPanelStride>(packed_b_, b_, block);
  }

  // Returns the part of the rows packed after `block` that the tile of this index prefetches.
  Ahead ahead(const Block& block, std::int64_t tile) const {
    tile = std::min(tile, kRowsPacked<T>);
    const auto row = block.line + kRowsPacked<T>;
    if constexpr (A == Contiguous::k) {  // one row per tile
      const T* p = a_.data + (row + tile) * a_.stride + block.k;
      return {reinterpret_cast<const std::byte*>(p), 64};
    } else {  // a cache line of some rows of k per tile
      const auto k = block.k + tile * divide_up(words_of<T>(block), kAheadWords);
      const T* p = a_.data + k * a_.stride + row;
      return {reinterpret_cast<const std::byte*>(p), a_.stride * std::int64_t{sizeof(T)}};
    }
  }

  template <class Finish>
  void multiply(const Block& block, std::int64_t column, std::int64_t columns, float* tile,
                const Finish& finish) {
    const bool first = block.k == 0, last = block.k + block.depth == a_.k;
    std::int64_t index = 0;
    for (std::int64_t r = 0; r < block.lines; r += kMr)
      for (std::int64_t c = 0; c < columns; c += kNr) {
        const auto width = std::min<std::int64_t>(kNr, columns - c);
        multiply_panel(tile, r, c, width, words_of<T>(block), !first, ahead(block, index++));
        if (last)
          finish(tile, block.line + r, std::min<std::int64_t>(kMr, block.lines - r), column + c,
                 width);
        if (!(first && last)) tile += kMr * kNr;
      }
  }

  void multiply_panel(float* tile, std::int64_t row, std::int64_t column, std::int64_t width,
                      std::int64_t words, bool accumulate, Ahead next) {
    constexpr int kStride = A == Contiguous::k ? kRowStride : 1;
    constexpr int kStep = A == Contiguous::k ? 1 : kStrip;
    const float* a = packed_a_ + (A == Contiguous::k ? row * kRowStride
                                                     : row / kStrip * kStripStride + row % kStrip);
    const float* b = packed_b_ + column / kNr * kPanelStride;
    if (kVectors == 3 && width > 2 * kWide)
      multiply_tile<T, kVectors, kStride, kStep>(tile, a, b, words, accumulate, next);
    else if (width > kWide)
      multiply_tile<T, 2, kStride, kStep>(tile, a, b, words, accumulate, next);
    else
      multiply_tile<T, 1, kStride, kStep>(tile, a, b, words, accumulate, next);
  }

  Operand<T> a_, b_;
  float *packed_a_, *packed_b_, *sums_, *line_sums_;
};

// Calls finish(tile, row, rows, column, columns) for all of C = A B; the tile's rows are kNr apart.
// The sums over k of each row of A are added to line_sums [a.lines], if it is not null.
template <Contiguous A, Contiguous B, class T, class Finish>
void multiply(Stream& stream, Tensor scratch, const Operand<T>& a, const Operand<T>& b,
              float* line_sums, const Finish& finish) {
  const auto tasks = cut(a.lines, b.lines, stream.threads());
  stream.parallel_for(tasks.count(), [&](std::int64_t task, int thread) {
    const auto row = task / tasks.across * tasks.rows, column = task % tasks.across * tasks.columns;
    Product<A, B, T> product(a, b, scratch.as<float>() + thread * kThreadScratch,
                             column == 0 ? line_sums : nullptr);
    product.run(row, std::min(tasks.rows, tasks.M - row), column,
                std::min(tasks.columns, tasks.N - column), finish);
  });
}

// Does the same for few rows of A, if both operands have contiguous k.
template <class T, class Finish>
void multiply_few_rows(Stream& stream, const Operand<T>& a, const Operand<T>& b,
                       const Finish& finish) {
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

// ForwardEpilogue stores sums with bias, GELU and residual.
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
        multiply<Contiguous::k, Contiguous::k>(stream, panels, a, b, nullptr, finish);
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
        stream, panels, a, b, nullptr,
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
                            ConstTensor dy, ConstTensor x, bool add) {
  const auto N = dy.shape[0], O = dy.shape[1], I = x.shape[1];
  const Arena::Scope scope(scratch);
  const auto panels = thread_scratch(stream, scratch);
  if (stream.is_measuring()) return;
  with_float(dy.dtype, [&]<class T>(T) {
    const Operand<T> a{dy.as<T>(), O, O, N}, b{x.as<T>(), I, I, N};
    float* out = dweight.as<float>();
    multiply<Contiguous::lines, Contiguous::lines>(
        stream, panels, a, b, dbias ? dbias.as<float>() : nullptr,
        [=](const float* tile, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t columns) {
          for (std::int64_t r = 0; r < rows; ++r) {
            float* to = out + (row + r) * I + column;
            for_vectors(columns, [&](std::int64_t c, std::int64_t n) {
              const auto sum = load(tile + r * kNr + c, n);
              store(to + c, add ? load(to + c, n) + sum : sum, n);
            });
          }
        });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
