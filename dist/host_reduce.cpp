#include "dist/host_reduce.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

template <class Sum>
Sum widen(Sum x) {
  return x;
}
float widen(BFloat16 x) {
  return to_float(x);
}
void narrow(float& to, float x) {
  to = x;
}
void narrow(std::int32_t& to, std::int32_t x) {
  to = x;
}
void narrow(BFloat16& to, float x) {
  to = to_bf16(x);
}

template <class T>
void reduce(T* out, ReduceOp op, const std::vector<const std::byte*>& all, std::int64_t begin,
            std::int64_t end) {
  using Sum = decltype(widen(T{}));
  constexpr std::int64_t kBlock = 512;  // sums that stay in the L1 cache
  std::array<Sum, kBlock> sums;
  for (; begin < end; begin += kBlock) {
    const auto n = std::min(kBlock, end - begin);
    for (std::size_t r = 0; r < all.size(); ++r) {
      const T* x = reinterpret_cast<const T*>(all[r]) + begin;
      Sum* sum = sums.data();
      if (r == 0) {
        for (std::int64_t i = 0; i < n; ++i)
          sum[i] = widen(x[i]);
      } else if (op == ReduceOp::sum) {
        for (std::int64_t i = 0; i < n; ++i)
          sum[i] += widen(x[i]);
      } else {
        for (std::int64_t i = 0; i < n; ++i)
          sum[i] = std::max(sum[i], widen(x[i]));
      }
    }
    for (std::int64_t i = 0; i < n; ++i)
      narrow(out[begin + i], sums[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void reduce_range(Tensor inout, ReduceOp op, const std::vector<const std::byte*>& all,
                  std::int64_t begin, std::int64_t end) {
  switch (inout.dtype) {
    case DType::fp32: return reduce(inout.as<float>(), op, all, begin, end);
    case DType::bf16: return reduce(inout.as<BFloat16>(), op, all, begin, end);
    case DType::int32: return reduce(inout.as<std::int32_t>(), op, all, begin, end);
    default: LOCKSTEP_FAIL("a reduction of ", name(inout.dtype));
  }
}

void ring_sum(Tensor out, const std::vector<const std::byte*>& pieces, int rank) {
  const auto d = pieces.size(), first = static_cast<std::size_t>(rank) + 1;
  std::copy_n(pieces[first % d], out.bytes(), out.data);
  for (std::size_t i = 1; i < d; ++i)
    reduce_range(out, ReduceOp::sum, {out.data, pieces[(first + i) % d]}, 0, out.elements());
}

}  // namespace lockstep
