#include "core/philox.h"
#include "kernels/elementwise.h"
#include "kernels/packs.cuh"

namespace lockstep::cuda {
namespace {

template <class T>
struct Fill {
  T* out;
  T value;
  template <int kWidth>
  __device__ void apply(std::int64_t at) const {
    Pack<T, kWidth> pack;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      pack.v[i] = value;
    *reinterpret_cast<Pack<T, kWidth>*>(out + at) = pack;
  }
};

template <class T>
void fill_all(Stream& stream, Tensor out, T value) {
  auto* p = reinterpret_cast<T*>(out.data);
  apply_to_packs<T>(stream, out.elements(), {p}, Fill<T>{p, value});
}

template <class To, class From>
struct Convert {
  To* out;
  const From* x;
  template <int kWidth>
  __device__ void apply(std::int64_t at) const {
    float v[kWidth];
    load(v, x + at);
    store(out + at, v);
  }
};

// log_of computes ln x for normal x > 0. sincos_turns computes sin and cos of 2 pi x for
// 0 <= x <= 1. They use the polynomials of kernels/simd_random.h, so that weights start from the
// same numbers on both devices.
__device__ inline float log_of(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) - 0x3f3504f3u;  // sqrt(1/2)
  const auto e = static_cast<float>(static_cast<std::int32_t>(bits) >> 23);
  const float f = std::bit_cast<float>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float s = f * f;
  float p = 7.0376836292e-2f;
  p = fmaf(p, f, -1.1514610310e-1f);
  p = fmaf(p, f, 1.1676998740e-1f);
  p = fmaf(p, f, -1.2420140846e-1f);
  p = fmaf(p, f, 1.4249322787e-1f);
  p = fmaf(p, f, -1.6668057665e-1f);
  p = fmaf(p, f, 2.0000714765e-1f);
  p = fmaf(p, f, -2.4999993993e-1f);
  p = fmaf(p, f, 3.3333331174e-1f);
  const float tail = fmaf(f * s, p, -2.12194440e-4f * e) - 0.5f * s;
  return fmaf(0.693359375f, e, f + tail);
}

__device__ inline void sincos_turns(float x, float& sine, float& cosine) {
  const float quarter = rintf(4.0f * x);
  const float r = (x - 0.25f * quarter) * 6.28318530718f;
  const float s = r * r;
  float a = 1.0f / 362880;
  a = fmaf(a, s, -1.0f / 5040);
  a = fmaf(a, s, 1.0f / 120);
  a = fmaf(a, s, -1.0f / 6);
  a = fmaf(r * s, a, r);
  float b = 1.0f / 40320;
  b = fmaf(b, s, -1.0f / 720);
  b = fmaf(b, s, 1.0f / 24);
  b = fmaf(b, s, -0.5f);
  b = fmaf(b, s, 1.0f);
  const int k = static_cast<int>(quarter);
  sine = (k & 2) != 0 ? -((k & 1) != 0 ? b : a) : ((k & 1) != 0 ? b : a);
  cosine = ((k + 1) & 2) != 0 ? -((k & 1) != 0 ? a : b) : ((k & 1) != 0 ? a : b);
}

// Each thread makes one draw, which is four numbers, and stores those that lie in `out`.
template <class T>
__global__ void random_normal_kernel(T* out, std::int64_t n, RandomNormal args) {
  const auto draw = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto begin = draw * 4 - args.first_index % 4;
  if (begin >= n) return;
  const auto words =
      philox(args.seed, args.purpose, static_cast<std::uint64_t>(args.first_index / 4 + draw));
  float z[4];
#pragma unroll
  for (int pair = 0; pair < 4; pair += 2) {
    const float radius = args.std * sqrtf(-2.0f * log_of(uniform_open(words[pair])));
    float sine, cosine;
    sincos_turns(uniform_open(words[pair + 1]), sine, cosine);
    z[pair] = radius * cosine;
    z[pair + 1] = radius * sine;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (0 <= begin + i && begin + i < n) out[begin + i] = from_float<T>(z[i]);
}

}  // namespace

void fill(Stream& stream, Tensor out, float value) {
  switch (out.dtype) {
    case DType::fp32: return fill_all(stream, out, value);
    case DType::bf16: return fill_all(stream, out, to_bf16(value));
    case DType::int32: return fill_all(stream, out, static_cast<std::int32_t>(value));
    case DType::uint8: return fill_all(stream, out, static_cast<std::uint8_t>(value));
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: return;  // rejected by the checks
  }
}

void fill_integer(Stream& stream, Tensor out, std::int32_t value) {
  fill_all(stream, out, value);
}

void convert(Stream& stream, Tensor out, ConstTensor x) {
  if (out.dtype == x.dtype) return stream.copy(out, x);
  // Packs of bf16 have 8 bytes here, because both sides move four elements.
  if (out.dtype == DType::bf16)
    apply_to_packs<float>(stream, x.elements(), {out.data, x.data},
                          Convert<BFloat16, float>{out.as<BFloat16>(), x.as<float>()});
  else
    apply_to_packs<float>(stream, x.elements(), {out.data, x.data},
                          Convert<float, BFloat16>{out.as<float>(), x.as<BFloat16>()});
}

void random_normal(Stream& stream, Tensor out, const RandomNormal& args) {
  constexpr int kThreads = 256;
  const auto n = out.elements();
  with_float(out.dtype, [&]<class T>(T) {
    const auto draws = divide_up(args.first_index % 4 + n, 4);
    launch(stream, {static_cast<unsigned>(divide_up(draws, kThreads)), kThreads},
           random_normal_kernel<T>, out.as<T>(), n, args);
  });
}

}  // namespace lockstep::cuda
