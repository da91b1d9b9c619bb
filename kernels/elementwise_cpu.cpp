#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/parallel.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Fills out with copies of a vector of the value.
template <class T>
void fill_all(Stream& stream, Tensor out, T value) {
  T pattern[sizeof(Floats) / sizeof(T)];
  std::fill(std::begin(pattern), std::end(pattern), value);
  constexpr std::int64_t kStride = sizeof pattern;
  parallel_elements(stream, out.bytes(), [&](std::int64_t begin, std::int64_t end) {
    for (; begin + kStride <= end; begin += kStride)
      std::memcpy(out.data + begin, pattern, kStride);
    std::memcpy(out.data + begin, pattern, static_cast<std::size_t>(end - begin));
  });
}

template <class To, class From>
void convert_all(Stream& stream, To* out, const From* x, std::int64_t size) {
  parallel_elements(stream, size, [&](std::int64_t begin, std::int64_t end) {
    for_vectors(end - begin, [&](std::int64_t i, std::int64_t n) {
      store(out + begin + i, load(x + begin + i, n), n);
    });
  });
}

constexpr std::int64_t kNormals = 64;  // numbers of one round: 16 draws of 4 words

// Computes out[0, 64) = std * z for the draws [draw, draw + 16). Each Long has one draw in its
// lower half and one in its upper half.
LOCKSTEP_INLINE void normals(float* out, const RandomNormal& args, std::uint64_t draw) {
  const auto first = philox_lanes(args.seed, args.purpose, counters_from(draw));
  const auto second = philox_lanes(args.seed, args.purpose, counters_from(draw + 8));
  Longs cosine[2], sine[2];  // z 0 and 2, z 1 and 3 of each draw
  for (int pair = 0; pair < 2; ++pair) {
    const auto word = [&](int i) {
      return bits_as<std::uint32_t>(lower_halves(first.word[i], second.word[i]));
    };
    const Floats radius = args.std * sqrt(-2.0f * log(uniform_open_lanes(word(2 * pair))));
    const auto angle = sincos_turns(uniform_open_lanes(word(2 * pair + 1)));
    cosine[pair] = bits_as<std::uint64_t>(radius * angle.cos);
    sine[pair] = bits_as<std::uint64_t>(radius * angle.sin);
  }
  const auto low = zip(lower_halves(cosine[0], sine[0]), lower_halves(cosine[1], sine[1]));
  const auto high = zip(upper_halves(cosine[0], sine[0]), upper_halves(cosine[1], sine[1]));
  store_lanes(out, low.low);
  store_lanes(out + 16, low.high);
  store_lanes(out + 32, high.low);
  store_lanes(out + 48, high.high);
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
  if (out.dtype == x.dtype) {
    parallel_elements(stream, x.bytes(), [&](std::int64_t begin, std::int64_t end) {
      std::memmove(out.data + begin, x.data + begin, static_cast<std::size_t>(end - begin));
    });
  } else if (out.dtype == DType::bf16) {
    convert_all(stream, out.as<BFloat16>(), x.as<float>(), x.elements());
  } else {
    convert_all(stream, out.as<float>(), x.as<BFloat16>(), x.elements());
  }
}

void random_normal(Stream& stream, Tensor out, const RandomNormal& args) {
  const auto first_draw = static_cast<std::uint64_t>(args.first_index) / 4;
  const auto skipped = args.first_index % 4;  // numbers of the first draw
  with_float(out.dtype, [&]<class T>(T) {
    const auto fill_range = [&](std::int64_t begin, std::int64_t end) {
      float z[kNormals];
      for (auto i = begin; i < end; i += kNormals) {
        normals(z, args, first_draw + static_cast<std::uint64_t>(i) / 4);
        const auto first = i == 0 ? skipped : 0;
        T* p = out.as<T>() + (i + first - skipped);
        for_vectors(std::min(kNormals, end - i) - first, [&](std::int64_t j, std::int64_t n) {
          store(p + j, load(z + first + j, n), n);
        });
      }
    };
    parallel_elements(stream, skipped + out.elements(), fill_range, kNormals);
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
