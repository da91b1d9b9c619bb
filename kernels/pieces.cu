// A thread processes one pack: of a piece that is copied, or of all the pieces that are summed. For
// sums it loads 8 packs before it adds one, or all packs if there are 2, 4 or 8 pieces.
#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/packs.cuh"
#include "kernels/pieces.h"

namespace lockstep::cuda {
namespace {

// Wider is the wider type, of which a pack has at most 16 bytes.
template <class A, class B>
using Wider = std::conditional_t<(sizeof(A) > sizeof(B)), A, B>;

template <class To, class From>
struct PackPieces {
  To* out;
  const From* in;
  std::int64_t m, n, first;
  int I, A;
  template <int kWidth>
  __device__ void apply(std::int64_t at) const {
    const auto piece = static_cast<unsigned>(at / m);  // of out
    const auto i = piece / static_cast<unsigned>(A), a = piece % static_cast<unsigned>(A);
    const auto from = static_cast<std::int64_t>(a) * I + i;
    float v[kWidth];
    load(v, in + from * n + first + (at - piece * m));
    store(out + at, v);
  }
};

// Adds kPieces packs at x, `stride` elements apart, to sum; only the first `count` if there are
// fewer.
template <int kPieces, int kWidth, bool kAll, class T>
__device__ inline void add_packs(float (&sum)[kWidth], const T* x, std::int64_t stride, int count) {
  Pack<T, kWidth> packs[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    packs[p] = *reinterpret_cast<const Pack<T, kWidth>*>(x + (kAll || p < count ? p : 0) * stride);
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (kAll || p < count) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += to_float(packs[p].v[k]);
    }
}

template <int kWidth, class T>
__device__ inline void add_pack(float (&sum)[kWidth], const T* x) {
  float v[kWidth];
  load(v, x);
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    sum[k] += v[k];
}

// kPieces is the number of pieces; 0 means P.
template <class To, class From, int kPieces>
struct AddPieces {
  using Stored = To;
  To* out;
  const From *pieces, *bias, *residual;  // bias, residual: or nullptr
  float* absmax;
  std::int64_t n, C;
  int P;
  bool add;
  template <int kWidth>
  __device__ float apply(std::int64_t at) const {
    // Sums start at -0, because 0 would change the sign of a sum of -0.
    float sum[kWidth];
#pragma unroll
    for (float& s : sum)
      s = -0.0f;
    if constexpr (kPieces != 0) {
      add_packs<kPieces, kWidth, true>(sum, pieces + at, n, kPieces);
    } else {
      constexpr int kTogether = 8;
      for (int p = 0; p < P; p += kTogether)
        add_packs<kTogether, kWidth, false>(sum, pieces + p * n + at, n, P - p);
    }
    if (bias != nullptr) add_pack(sum, bias + at % C);
    if (residual != nullptr) add_pack(sum, residual + at);
    if (add) add_pack(sum, out + at);
    store(out + at, sum);
    return largest_of(0.0f, sum);
  }
};

template <int kWidth, int kPieces, class To, class From>
void launch_sum(Stream& stream, const SumPieces& args) {
  launch_packs<kWidth>(
      stream, args.out.elements(),
      AddPieces<To, From, kPieces>{
          args.out.as<To>(), args.pieces.as<From>(), args.bias ? args.bias.as<From>() : nullptr,
          args.residual ? args.residual.as<From>() : nullptr,
          args.absmax ? args.absmax.as<float>() : nullptr, args.out.elements(),
          args.bias ? args.bias.elements() : 1, static_cast<int>(args.pieces.shape[0]), args.add});
}

}  // namespace

void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first) {
  const auto m = out.shape[2], n = in.shape[2];
  with_float(out.dtype, [&]<class To>(To) {
    with_float(in.dtype, [&]<class From>(From) {
      const From* begin = in.as<From>() + first;
      with_width<Wider<To, From>>(std::gcd(m, n), {out.data, begin}, [&](auto width) {
        launch_packs<width>(
            stream, out.elements(),
            PackPieces<To, From>{out.as<To>(), in.as<From>(), m, n, first,
                                 static_cast<int>(out.shape[0]), static_cast<int>(out.shape[1])});
      });
    });
  });
}

void sum_pieces(Stream& stream, const SumPieces& args) {
  const auto P = args.pieces.shape[0];
  // Packs lie within a row: a whole piece, or the columns that the bias has.
  const auto row = args.bias ? args.bias.elements() : args.out.elements();
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.out.dtype, [&]<class To>(To) {
    with_float(args.pieces.dtype, [&]<class From>(From) {
      with_width<Wider<To, From>>(
          row, {args.out.data, args.pieces.data, args.bias.data, args.residual.data},
          [&](auto width) {
            if constexpr (width > 1) {
              if (P == 2) return launch_sum<width, 2, To, From>(stream, args);
              if (P == 4) return launch_sum<width, 4, To, From>(stream, args);
              if (P == 8) return launch_sum<width, 8, To, From>(stream, args);
            }
            launch_sum<width, 0, To, From>(stream, args);
          });
    });
  });
}

}  // namespace lockstep::cuda
