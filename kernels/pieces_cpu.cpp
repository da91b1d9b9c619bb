#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/pieces.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class To, class From>
void pack_all(Stream& stream, Tensor out, ConstTensor in, std::int64_t first) {
  const auto I = out.shape[0], A = out.shape[1], m = out.shape[2], n = in.shape[2];
  constexpr std::int64_t kBlock = 16384;  // columns of a task
  const auto blocks = divide_up(m, kBlock);
  stream.parallel_ranges(I * A * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto task = begin; task < end; ++task) {
      const auto piece = task / blocks, i = piece / A, a = piece % A;
      const auto from = task % blocks * kBlock, size = std::min(kBlock, m - from);
      To* to = out.as<To>() + piece * m + from;
      const From* x = in.as<From>() + (a * I + i) * n + first + from;
      for_vectors(size, [&](std::int64_t j, std::int64_t lanes) {
        store(to + j, load(x + j, lanes), lanes);
      });
    }
  });
}

// Sums columns [begin, end) of rows that begin at multiples of C, or of one row if there is no
// bias.
template <class To, class From>
void sum_range(const SumPieces& args, std::int64_t begin, std::int64_t end) {
  const auto P = args.pieces.shape[0], n = args.out.elements();
  const From* pieces = args.pieces.as<From>();
  const From* residual = args.residual ? args.residual.as<From>() : nullptr;
  const From* bias = args.bias ? args.bias.as<From>() : nullptr;
  const auto C = bias != nullptr ? args.bias.elements() : n;
  To* out = args.out.as<To>();
  for (auto row = begin; row < end; row = std::min(end, (row / C + 1) * C)) {
    const auto size = std::min(end, (row / C + 1) * C) - row;
    for_vectors(size, [&](std::int64_t j, std::int64_t lanes) {
      Floats sum = load(pieces + row + j, lanes);
      for (std::int64_t p = 1; p < P; ++p)
        sum = sum + load(pieces + p * n + row + j, lanes);
      if (bias != nullptr) sum = sum + load(bias + row % C + j, lanes);
      if (residual != nullptr) sum = sum + load(residual + row + j, lanes);
      if (args.add) sum = sum + load(out + row + j, lanes);
      store(out + row + j, sum, lanes);
    });
  }
}

}  // namespace

void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first) {
  with_float(out.dtype, [&]<class To>(To) {
    with_float(in.dtype, [&]<class From>(From) { pack_all<To, From>(stream, out, in, first); });
  });
}

void sum_pieces(Stream& stream, const SumPieces& args) {
  with_float(args.out.dtype, [&]<class To>(To) {
    with_float(args.pieces.dtype, [&]<class From>(From) {
      parallel_elements(stream, args.out.elements(), [&](std::int64_t begin, std::int64_t end) {
        sum_range<To, From>(args, begin, end);
      });
    });
  });
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.out);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
