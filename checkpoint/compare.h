// Compare: which tensors of two checkpoints differ, and by how much.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

struct TensorDifference {
  std::string name;
  Shape shape;
  std::int64_t differing = 0;      // elements; NaN equals NaN
  double largest = 0;              // |a - b|; NaN where one of them alone is NaN
  std::int64_t largest_index = 0;  // row-major
  double relative = 0;             // sqrt(sum (a-b)^2 / sum a^2)
};

struct CheckpointDifference {
  std::int64_t same = 0;                          // tensors
  std::vector<TensorDifference> tensors;          // that differ, in the order of `a`
  std::vector<std::string> only_in_a, only_in_b;  // names
  std::vector<std::string> other_shape;           // "NAME is [2, 3] and [3, 2]"
  bool empty() const {
    return tensors.empty() && only_in_a.empty() && only_in_b.empty() && other_shape.empty();
  }
};

// Of any two layouts and types. Reads only what may differ: slices with equal hashes do not. Throws
// DataError where one cannot be read; damage is for verify_checkpoint() to find.
CheckpointDifference compare_checkpoints(const std::filesystem::path& a,
                                         const std::filesystem::path& b);

}  // namespace lockstep
