// This file splits work over the threads of a CPU stream, so that results do not depend on their
// number.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/integer.h"
#include "core/stream.h"

namespace lockstep {

// Calls body(begin, end) for pieces of [0, n). Borders of pieces are multiples of `block`, except
// the last, n. Pieces hold at least 16 Ki elements, so that a small tensor stays on one thread.
template <class Body>
void parallel_elements(Stream& stream, std::int64_t n, Body&& body, std::int64_t block = 64) {
  const auto blocks = divide_up(n, block);
  stream.parallel_ranges(
      blocks, std::max<std::int64_t>(16384 / block, 1),
      [&](std::int64_t begin, std::int64_t end) { body(begin * block, std::min(n, end * block)); });
}

// Returns the number of blocks of rows in backward passes. They sum the gradients of weights by
// blocks of rows, then the blocks in order. The number depends only on N, so the sum has one order
// for any number of threads.
constexpr std::int64_t row_blocks(std::int64_t N) {
  return N < 8 ? 1 : N < 256 ? N / 8 : 32;
}

}  // namespace lockstep
