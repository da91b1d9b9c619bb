#include "checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/checkpointer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 24;  // of each checkpoint in memory

// True if both were written by the same layout and have the same hashes.
bool are_alike(const ManifestTensor& a, const ManifestTensor& b) {
  return a.dtype == b.dtype && a.split == b.split &&
         std::equal(a.slices.begin(), a.slices.end(), b.slices.begin(), b.slices.end(),
                    [](const ManifestSlice& x, const ManifestSlice& y) {
                      return x.piece.part == y.piece.part && x.piece.begin == y.piece.begin &&
                             x.piece.end == y.piece.end && x.hash == y.hash;
                    });
}

// Values reads elements [begin, end) of a tensor as float64.
class Values {
 public:
  Values(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest,
         const ManifestTensor& tensor, std::int64_t begin, std::int64_t end)
      : dtype_(tensor.dtype),
        bytes_(static_cast<std::size_t>((end - begin) * bytes_per_element(dtype_))) {
    const Tensor local{bytes_.data(), {end - begin}, dtype_, {}};
    const std::vector<StateSlice> state{
        {tensor.name, tensor.shape, unsplit(tensor.shape), {0, begin, end}, local}};
    load_checkpoint(checkpoint, manifest, state, Match::subset);
  }
  double operator[](std::size_t i) const {
    switch (dtype_) {
      case DType::fp32: return static_cast<double>(at<float>(i));
      case DType::bf16: return static_cast<double>(to_float(at<BFloat16>(i)));
      case DType::int32: return at<std::int32_t>(i);
      default: return static_cast<double>(at<std::uint8_t>(i));
    }
  }

 private:
  template <class T>
  T at(std::size_t i) const {
    return reinterpret_cast<const T*>(bytes_.data())[i];
  }
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Difference accumulates the difference of a tensor over pieces.
class Difference {
 public:
  void add(const Values& a, const Values& b, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i - begin);
      const double x = a[at], y = b[at];
      const bool both_nan = std::isnan(x) && std::isnan(y);
      squares_ += std::isnan(x) ? 0 : x * x;
      if (x == y || both_nan) continue;
      ++result_.differing;
      const double distance = std::abs(x - y);
      distances_ += distance * distance;
      if (result_.differing == 1 || distance > result_.largest || std::isnan(distance)) {
        if (!std::isnan(result_.largest)) result_.largest_index = i;
        result_.largest = std::isnan(result_.largest) ? result_.largest : distance;
      }
    }
  }
  TensorDifference result(const ManifestTensor& tensor) const {
    auto result = result_;
    result.name = tensor.name;
    result.shape = tensor.shape;
    result.relative = std::sqrt(distances_ / squares_);
    return result;
  }

 private:
  TensorDifference result_;
  double squares_ = 0, distances_ = 0;
};

}  // namespace

CheckpointDifference compare_checkpoints(const std::filesystem::path& a,
                                         const std::filesystem::path& b) {
  const auto manifest_a = read_manifest(a), manifest_b = read_manifest(b);
  std::map<std::string_view, const ManifestTensor*> in_b;
  for (const auto& tensor : manifest_b.tensors)
    in_b.emplace(tensor.name, &tensor);
  CheckpointDifference found;
  std::vector<std::pair<const ManifestTensor*, const ManifestTensor*>> unlike;
  for (const auto& tensor : manifest_a.tensors) {
    const auto other = in_b.find(tensor.name);
    if (other == in_b.end()) {
      found.only_in_a.push_back(tensor.name);
      continue;
    }
    const auto& theirs = *other->second;
    in_b.erase(other);
    if (!(tensor.shape == theirs.shape)) {
      found.other_shape.push_back(str(tensor.name, " is ", tensor.shape, " and ", theirs.shape));
    } else if (are_alike(tensor, theirs)) {
      ++found.same;
    } else {
      unlike.emplace_back(&tensor, &theirs);
    }
  }
  for (const auto& [tensor_name, tensor] : in_b)
    found.only_in_b.emplace_back(tensor_name);
  for (const auto& [ours, theirs] : unlike) {
    Difference difference;
    const auto n = ours->shape.elements();
    for (std::int64_t begin = 0; begin < n; begin += kPieceElements) {
      const auto end = std::min(n, begin + kPieceElements);
      difference.add(Values(a, manifest_a, *ours, begin, end),
                     Values(b, manifest_b, *theirs, begin, end), begin, end);
    }
    const auto result = difference.result(*ours);
    if (result.differing == 0)
      ++found.same;
    else
      found.tensors.push_back(result);
  }
  return found;
}

}  // namespace lockstep
