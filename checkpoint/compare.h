// Compare lists the tensors of two checkpoints that differ, and by how much.
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
  std::int64_t differing = 0;      // number of elements; NaN equals NaN
  double largest = 0;              // largest |a - b|; NaN if only one of them is NaN
  std::int64_t largest_index = 0;  // row-major
  double relative = 0;             // sqrt(sum (a-b)^2 / sum a^2)
};

struct CheckpointDifference {
  std::int64_t same = 0;                          // number of equal tensors
  std::vector<TensorDifference> tensors;          // differing tensors, in the order of `a`
  std::vector<std::string> only_in_a, only_in_b;  // names
  std::vector<std::string> other_shape;           // "NAME is [2, 3] and [3, 2]"
  bool empty() const {
    return tensors.empty() && only_in_a.empty() && only_in_b.empty() && other_shape.empty();
  }
};

// Compares checkpoints of any layouts and types. Skips slices with equal hashes. Throws DataError
// if a checkpoint cannot be read. Does not check for damage; see verify_checkpoint().
CheckpointDifference compare_checkpoints(const std::filesystem::path& a,
                                         const std::filesystem::path& b);

}  // namespace lockstep
