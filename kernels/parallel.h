// Splitting work over the threads of a CPU stream, so that results do not depend on their number.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/integer.h"
#include "core/stream.h"

namespace lockstep {

// body(begin, end) over [0, n) in pieces whose borders are multiples of `block` (the end of the
// last one is n) and which hold at least 16 Ki elements, so that a small tensor stays on one
// thread.
template <class Body>
void parallel_elements(Stream& stream, std::int64_t n, Body&& body, std::int64_t block = 64) {
  const auto blocks = divide_up(n, block);
  stream.parallel_ranges(
      blocks, std::max<std::int64_t>(16384 / block, 1),
      [&](std::int64_t begin, std::int64_t end) { body(begin * block, std::min(n, end * block)); });
}

// Backward passes sum the gradients of weights by blocks of rows, then the blocks in order. How
// many blocks depends on N alone: the sum has one order, whatever the threads.
constexpr std::int64_t row_blocks(std::int64_t N) {
  return N < 8 ? 1 : N < 256 ? N / 8 : 32;
}

}  // namespace lockstep
