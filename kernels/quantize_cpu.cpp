// A range of rows and columns is the unit of work: all columns for one scale a tensor, one block of
// 128 x 128 for one scale a block.
#include <algorithm>
#include <cstring>

#include "core/fp8.h"
#include "kernels/parallel.h"
#include "kernels/quantize.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// The bits of to_fp8 and fp8_to_float (core/fp8.h), one code a word.
template <class F>
LOCKSTEP_INLINE Words encode(Floats x) {
  const Words u = bits_as<std::uint32_t>(x), magnitude = u & 0x7fffffffu;
  const Floats absolute = bits_as<float>(magnitude);
  const Words step = bits_as<std::uint32_t>(absolute + F::kStepIsUlp) -
                     std::bit_cast<std::uint32_t>(F::kStepIsUlp);
  const Words half = ((magnitude >> F::kShift) & 1u) + ((1u << (F::kShift - 1)) - 1);
  const Words rounded = ((magnitude + half) >> F::kShift) - F::kRebias;
  const auto constant = [](std::uint32_t c) { return splat<std::uint32_t, kLanes>(c); };
  Words code = select(rounded > F::kLargest, constant(F::kLargest), rounded);
  code = select(absolute < F::kSmallestNormalValue, step, code) | ((u >> 24) & 0x80u);
  return select(x != x, constant(F::kNaN), code);
}
template <class F>
LOCKSTEP_INLINE Floats decode(Words u) {
  const Words code = u & 0x7fu, sign = (u & 0x80u) << 24;
  const Floats step = convert_to<float>(bits_as<std::int32_t>(code)) * F::kStep;
  const auto constant = [](std::uint32_t c) { return splat<std::uint32_t, kLanes>(c); };
  Words magnitude = (code + F::kRebias) << F::kShift;
  magnitude = select(code > F::kLargest, constant(0x7f800000u), magnitude);
  magnitude = select(code < F::kSmallestNormal, bits_as<std::uint32_t>(step), magnitude) | sign;
  return bits_as<float>(select(code >= F::kFirstNaN, constant(0x7fffffffu), magnitude));
}

template <class Format, class T>
void encode_run(Format* q, const T* x, float scale, std::int64_t size) {
  for_vectors(size, [&](std::int64_t i, std::int64_t n) {
    const Words code = encode<Format>(load(x + i, n) / scale);
    if (n == kLanes) return narrow(&q[i].bits, code);
    std::uint8_t codes[kLanes];
    narrow(codes, code);
    std::memcpy(&q[i].bits, codes, static_cast<std::size_t>(n));
  });
}
template <class Format, class T>
void decode_run(T* y, const Format* q, float scale, std::int64_t size) {
  for_vectors(size, [&](std::int64_t i, std::int64_t n) {
    std::uint8_t codes[kLanes] = {};
    std::memcpy(codes, &q[i].bits, static_cast<std::size_t>(n));
    store(y + i, decode<Format>(widen_lanes<Words>(codes)) * scale, n);
  });
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
  *scale = fp8_scale<Format>(largest(m));
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const auto i = (b.row + r) * C + b.column;
    encode_run(q + i, x + i, *scale, b.columns);
  }
}

}  // namespace

void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax) {
  with_fp8(q.dtype, [&]<class Format>(Format) {
    const float s = fp8_scale<Format>(*absmax.as<float>());
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
