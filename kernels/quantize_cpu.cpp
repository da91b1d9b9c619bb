// A block of 128 x 128 is the unit of work. It is encoded row by row into a buffer, and copied from
// there to the outputs.
#include <algorithm>
#include <cstring>

#include "core/fp8.h"
#include "core/integer.h"
#include "kernels/quantize.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kSide = kScaledBlock;

// Computes the bits of to_fp8 (core/fp8.h), one fp8 value per word.
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

// Part is the part of x [R, C] that one task converts; rows and columns are multiples of 16 =
// kLanes.
struct Part {
  const BFloat16* x;
  std::int64_t row, rows, column, columns, C;
  const BFloat16* at(std::int64_t r, std::int64_t c) const {
    return x + (row + r) * C + column + c;
  }
};

using Codes = std::uint8_t[kSide][kSide];

// Computes codes[r][c] = fp8(x / scale(r, c)). scale returns the scales of 16 neighbours.
template <class Format, class Scale>
void encode_part(Codes& codes, const Part& p, Scale&& scale) {
  for (std::int64_t r = 0; r < p.rows; ++r)
    for (std::int64_t c = 0; c < p.columns; c += kLanes)
      narrow(&codes[r][c], encode<Format>(load(p.at(r, c)) / scale(r, c)));
}

void store_codes(std::uint8_t* q, const Codes& codes, const Part& p) {
  for (std::int64_t r = 0; r < p.rows; ++r)
    std::memcpy(q + (p.row + r) * p.C + p.column, codes[r], static_cast<std::size_t>(p.columns));
}
void store_transposed(std::uint8_t* q, const Codes& codes, const Part& p, std::int64_t R) {
  for (std::int64_t c = 0; c < p.columns; ++c)
    for (std::int64_t r = 0; r < p.rows; ++r)
      q[(p.column + c) * R + p.row + r] = codes[r][c];
}

Floats row_absmax(const Part& p, std::int64_t r) {
  Floats m{};
  for (std::int64_t c = 0; c < p.columns; c += kLanes)
    m = max(abs(load(p.at(r, c))), m);
  return m;
}

// Converts the part with one scale, which is known.
template <class Format>
void quantize_alike(const Fp8Matrix& matrix, const Fp8Matrix& transposed, const Part& p,
                    std::int64_t R, float scale) {
  Codes codes;
  encode_part<Format>(codes, p, [&](std::int64_t, std::int64_t) { return splat(scale); });
  if (matrix) store_codes(reinterpret_cast<std::uint8_t*>(matrix.q.data), codes, p);
  if (transposed) store_transposed(reinterpret_cast<std::uint8_t*>(transposed.q.data), codes, p, R);
}

template <class Format>
void quantize_block(const Fp8Matrix& matrix, const Fp8Matrix& transposed, const Part& p,
                    std::int64_t R) {
  Floats m{};
  for (std::int64_t r = 0; r < p.rows; ++r)
    m = max(m, row_absmax(p, r));
  const float scale = fp8_scale<Format>(largest(m));
  const auto i = p.row / kSide, j = p.column / kSide;
  if (matrix) matrix.scales.as<float>()[i * matrix.scales.shape[1] + j] = scale;
  if (transposed) transposed.scales.as<float>()[j * transposed.scales.shape[1] + i] = scale;
  quantize_alike<Format>(matrix, transposed, p, R, scale);
}

// Converts with a scale for each row of the part, and for each row of its transpose.
template <class Format>
void quantize_rows(const Fp8Matrix& matrix, const Fp8Matrix& transposed, const Part& p,
                   std::int64_t R) {
  Codes codes;
  if (matrix) {
    float* scales = matrix.scales.as<float>() + p.column / kSide * R + p.row;
    for (std::int64_t r = 0; r < p.rows; ++r)
      scales[r] = fp8_scale<Format>(largest(row_absmax(p, r)));
    encode_part<Format>(codes, p, [&](std::int64_t r, std::int64_t) { return splat(scales[r]); });
    store_codes(reinterpret_cast<std::uint8_t*>(matrix.q.data), codes, p);
  }
  if (transposed) {
    float* scales = transposed.scales.as<float>() + p.row / kSide * p.C + p.column;
    float most[kSide] = {};
    for (std::int64_t r = 0; r < p.rows; ++r)
      for (std::int64_t c = 0; c < p.columns; c += kLanes)
        store(most + c, max(abs(load(p.at(r, c))), load(most + c)));
    for (std::int64_t c = 0; c < p.columns; ++c)
      scales[c] = fp8_scale<Format>(most[c]);
    encode_part<Format>(codes, p, [&](std::int64_t, std::int64_t c) { return load(scales + c); });
    store_transposed(reinterpret_cast<std::uint8_t*>(transposed.q.data), codes, p, R);
  }
}

}  // namespace

void quantize(Stream& stream, const Fp8Matrix& matrix, const Fp8Matrix& transposed, ConstTensor x,
              ConstTensor absmax) {
  const auto R = x.shape[0], C = x.shape[1], across = divide_up(C, kSide);
  const auto& any = matrix ? matrix : transposed;
  with_fp8(any.q.dtype, [&]<class Format>(Format) {
    float scale = 0;
    if (absmax) {
      scale = fp8_scale<Format>(*absmax.as<float>());
      if (matrix) *matrix.scales.as<float>() = scale;
      if (transposed) *transposed.scales.as<float>() = scale;
    }
    stream.parallel_for(divide_up(R, kSide) * across, [&](std::int64_t task, int) {
      const auto row = task / across * kSide, column = task % across * kSide;
      const Part p{
          x.as<BFloat16>(), row, std::min(kSide, R - row), column, std::min(kSide, C - column), C};
      switch (any.scaling) {
        case Scaling::tensor: return quantize_alike<Format>(matrix, transposed, p, R, scale);
        case Scaling::rows: return quantize_rows<Format>(matrix, transposed, p, R);
        case Scaling::blocks: return quantize_block<Format>(matrix, transposed, p, R);
      }
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
