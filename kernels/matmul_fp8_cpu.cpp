// fp8 values are converted to fp32 and multiplied as such. On a CPU, fp8 shows its effect on
// training, and checks the results of GPUs. It saves neither time nor memory.
#include <cstring>

#include "core/fp8.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/matmul_fp8.h"
#include "kernels/parallel.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Computes the bits of fp8_to_float (core/fp8.h) for one fp8 value per word.
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

float scale_at(const ConstFp8Matrix& m, std::int64_t row, std::int64_t column) {
  const float* scales = m.scales.as<float>();
  const auto block = column / kScaledBlock;
  switch (m.scaling) {
    case Scaling::tensor: break;
    case Scaling::rows: return scales[block * m.scales.shape[1] + row];
    case Scaling::blocks: return scales[row / kScaledBlock * m.scales.shape[1] + block];
  }
  return scales[0];
}

// Computes out [R, C] fp32 = q * its scales; C is a multiple of kLanes.
void decode_matrix(Stream& stream, Tensor out, const ConstFp8Matrix& m) {
  const auto C = m.q.shape[1];
  const auto* codes = reinterpret_cast<const std::uint8_t*>(m.q.data);
  with_fp8(m.q.dtype, [&]<class Format>(Format) {
    stream.parallel_ranges(m.q.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
      for (auto r = begin; r < end; ++r)
        for (std::int64_t c = 0; c < C; c += kLanes) {
          const auto word = decode<Format>(widen_lanes<Words>(codes + r * C + c));
          store(out.as<float>() + r * C + c, word * scale_at(m, r, c));
        }
    });
  });
}

}  // namespace

void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args) {
  const Arena::Scope scope(scratch);
  const auto fp32 = [&](const char* what, ConstTensor like) {
    return like ? scratch.allocate(what, DType::fp32, like.shape) : Tensor{};
  };
  const bool rounds = args.y.dtype != DType::fp32;
  const auto a = fp32("fp8_a", args.a.q), b = fp32("fp8_b", args.b.q);
  const auto y = rounds ? fp32("fp8_y", args.y) : args.y;
  const auto bias = fp32("fp8_bias", args.bias);
  const auto residual = rounds ? fp32("fp8_residual", args.residual) : Tensor{};
  if (!stream.is_measuring()) {
    decode_matrix(stream, a, args.a);
    decode_matrix(stream, b, args.b);
    if (bias) lockstep::convert(stream, bias, args.bias);
    if (residual) lockstep::convert(stream, residual, args.residual);
  }
  LOCKSTEP_CPU_NAMESPACE::matmul_forward(
      stream, scratch, y, a, b,
      {.bias = bias, .pre_gelu = {}, .residual = rounds ? residual : args.residual});
  if (rounds) lockstep::convert(stream, args.y, y);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
