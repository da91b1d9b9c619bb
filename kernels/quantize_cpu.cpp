// A range of rows and columns is the unit of work: all columns for one scale a tensor, one block of
// 128 x 128 for one scale a block.
#include <algorithm>
#include <limits>

#include "core/fp8.h"
#include "kernels/check.h"
#include "kernels/parallel.h"
#include "kernels/quantize.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

using Bytes = std::uint8_t __attribute__((vector_size(16)));

// The bits of to_fp8 and fp8_to_float (core/fp8.h).
template <class F>
LOCKSTEP_INLINE Bytes encode(Floats x) {
  const Words u = (Words)x, magnitude = u & 0x7fffffffu;
  const Words step =
      (Words)((Floats)magnitude + F::kStepIsUlp) - std::bit_cast<std::uint32_t>(F::kStepIsUlp);
  const Words half = ((magnitude >> F::kShift) & 1u) + ((1u << (F::kShift - 1)) - 1);
  const Words rounded = ((magnitude + half) >> F::kShift) - F::kRebias;
  Words code = rounded > F::kLargest ? Words{} + F::kLargest : rounded;
  code = (Floats)magnitude < F::kSmallestNormalValue ? step : code;
  code |= (u >> 24) & 0x80u;
  code = magnitude > 0x7f800000u ? Words{} + F::kNaN : code;
  return __builtin_convertvector(code, Bytes);
}
template <class F>
LOCKSTEP_INLINE Floats decode(Bytes bytes) {
  const Words u = __builtin_convertvector(bytes, Words);
  const Words code = u & 0x7fu, sign = (u & 0x80u) << 24;
  const Floats step = __builtin_convertvector((Ints)code, Floats) * F::kStep;
  Words magnitude = (code + F::kRebias) << F::kShift;
  magnitude = code > F::kLargest ? Words{} + 0x7f800000u : magnitude;
  magnitude = (code < F::kSmallestNormal ? (Words)step : magnitude) | sign;
  return (Floats)(code >= F::kFirstNaN ? Words{} + 0x7fffffffu : magnitude);
}

template <class F>
LOCKSTEP_INLINE void store(F* p, Bytes b, std::int64_t n) {
  __builtin_memcpy(static_cast<void*>(p), &b, static_cast<std::size_t>(n));
}
template <class F>
LOCKSTEP_INLINE Bytes load_bytes(const F* p, std::int64_t n) {
  Bytes b{};
  __builtin_memcpy(&b, p, static_cast<std::size_t>(n));
  return b;
}

template <class Format, class T>
void encode_run(Format* q, const T* x, float scale, std::int64_t size) {
  for_vectors(size, [&](std::int64_t i, std::int64_t n) {
    store(q + i, encode<Format>(load(x + i, n) / scale), n);
  });
}
template <class Format, class T>
void decode_run(T* y, const Format* q, float scale, std::int64_t size) {
  for_vectors(size, [&](std::int64_t i, std::int64_t n) {
    lockstep::LOCKSTEP_CPU_NAMESPACE::store(y + i, decode<Format>(load_bytes(q + i, n)) * scale, n);
  });
}

// Under flush-to-zero a denormal scale would be 0.
template <class Format>
float scale_for(float absmax) {
  if (absmax == 0) return 1;
  return std::max(absmax / Format::kLargestValue, std::numeric_limits<float>::min());
}

template <class F>
void with_fp8(DType dtype, F&& f) {
  if (dtype == DType::fp8_e4m3) {
    f(Fp8E4M3{});
  } else {
    f(Fp8E5M2{});
  }
}

// One block of [R, C].
struct Block {
  std::int64_t row, rows, column, columns;
};
Block block_at(std::int64_t index, const Shape& scales, const Shape& shape) {
  const auto row = index / scales[1] * kQuantizeBlock, column = index % scales[1] * kQuantizeBlock;
  return {row, std::min(kQuantizeBlock, shape[0] - row), column,
          std::min(kQuantizeBlock, shape[1] - column)};
}

template <class Format, class T>
void quantize_block(Format* q, float* scale, const T* x, const Block& b, std::int64_t C) {
  Floats m{};
  for (std::int64_t r = 0; r < b.rows; ++r)
    for_vectors(b.columns, [&](std::int64_t c, std::int64_t n) {
      m = max(abs(load(x + (b.row + r) * C + b.column + c, n)), m);
    });
  *scale = scale_for<Format>(largest(m));
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const auto i = (b.row + r) * C + b.column;
    encode_run(q + i, x + i, *scale, b.columns);
  }
}

}  // namespace

void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax) {
  with_fp8(q.dtype, [&]<class Format>(Format) {
    const float s = scale_for<Format>(*absmax.as<float>());
    *scale.as<float>() = s;
    with_float(x.dtype, [&]<class T>(T) {
      parallel_elements(stream, x.elements(), [&](std::int64_t begin, std::int64_t end) {
        encode_run(q.as<Format>() + begin, x.as<T>() + begin, s, end - begin);
      });
    });
  });
}

void quantize_blocks(Stream& stream, Tensor q, Tensor scales, ConstTensor x) {
  with_fp8(q.dtype, [&]<class Format>(Format) {
    with_float(x.dtype, [&]<class T>(T) {
      stream.parallel_for(scales.elements(), [&](std::int64_t block, int) {
        quantize_block(q.as<Format>(), scales.as<float>() + block, x.as<T>(),
                       block_at(block, scales.shape, x.shape), x.shape[1]);
      });
    });
  });
}

void dequantize(Stream& stream, Tensor y, ConstTensor q, ConstTensor scale) {
  const float* scales = scale.as<float>();
  with_fp8(q.dtype, [&]<class Format>(Format) {
    with_float(y.dtype, [&]<class T>(T) {
      if (scale.shape.rank == 1) {
        parallel_elements(stream, q.elements(), [&](std::int64_t begin, std::int64_t end) {
          decode_run(y.as<T>() + begin, q.as<Format>() + begin, scales[0], end - begin);
        });
        return;
      }
      stream.parallel_for(scale.elements(), [&](std::int64_t index, int) {
        const auto b = block_at(index, scale.shape, q.shape);
        for (std::int64_t r = 0; r < b.rows; ++r) {
          const auto i = (b.row + r) * q.shape[1] + b.column;
          decode_run(y.as<T>() + i, q.as<Format>() + i, scales[index], b.columns);
        }
      });
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
