// Splitting the elements of a tensor over the threads of a CPU stream.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/stream.h"

namespace lockstep {

// body(begin, end) over [0, n) in pieces whose borders are multiples of `block` (the end of the
// last one is n) and which hold at least 16 Ki elements, so that a small tensor stays on one
// thread.
template <class Body>
void parallel_elements(Stream& stream, std::int64_t n, Body&& body, std::int64_t block = 64) {
  const auto blocks = (n + block - 1) / block;
  stream.parallel_ranges(
      blocks, std::max<std::int64_t>(16384 / block, 1),
      [&](std::int64_t begin, std::int64_t end) { body(begin * block, std::min(n, end * block)); });
}

}  // namespace lockstep
