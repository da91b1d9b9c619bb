// Elements are hashed row by row, because indices are consecutive only within a row.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/mix.h"
#include "kernels/content_hash.h"
#include "kernels/parallel.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class Bits>
std::uint64_t hash_of_run(const Bits* x, std::int64_t n, std::uint64_t first_key) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += mix64((first_key + static_cast<std::uint64_t>(i) * kGolden64) ^ x[i]);
  return sum;
}

template <class Bits>
std::uint64_t hash_of(const Bits* x, std::int64_t begin, std::int64_t end, const HashPlace& place) {
  std::uint64_t sum = 0;
  for (auto j = place.first_index + begin; j < place.first_index + end;) {
    const auto column = j % place.columns;
    const auto n = std::min(place.columns - column, place.first_index + end - j);
    const auto e = place.first + j / place.columns * place.stride + column;
    sum += hash_of_run(x + (j - place.first_index), n,
                       (place.purpose + static_cast<std::uint64_t>(e)) * kGolden64);
    j += n;
  }
  return sum;
}

}  // namespace

void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place) {
  std::atomic<std::uint64_t> sum = 0;
  parallel_elements(stream, x.elements(), [&](std::int64_t begin, std::int64_t end) {
    sum += x.dtype == DType::bf16
               ? hash_of(reinterpret_cast<const std::uint16_t*>(x.data), begin, end, place)
               : hash_of(reinterpret_cast<const std::uint32_t*>(x.data), begin, end, place);
  });
  std::uint64_t total = 0;
  std::memcpy(&total, hash.data, sizeof total);
  total += sum;
  std::memcpy(hash.data, &total, sizeof total);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
