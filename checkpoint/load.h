// load finds the elements of a state in a checkpoint of any layout, wherever its files are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "checkpoint/manifest.h"
#include "core/function_ref.h"

namespace lockstep {

// The part of a stored slice that spans all elements which one slice of the state needs of it.
struct NeededRange {
  std::size_t target = 0;  // index in the state
  const ManifestTensor* tensor = nullptr;
  const ManifestSlice* slice = nullptr;
  std::int64_t first = 0, last = 0;  // elements of the slice's part

  std::size_t file() const { return static_cast<std::size_t>(slice->file); }
  std::int64_t offset() const {
    return slice->offset + (first - slice->piece.begin) * bytes_per_element(tensor->dtype);
  }
  std::int64_t bytes() const { return (last - first) * bytes_per_element(tensor->dtype); }
  // Only then the slice's hash covers the range.
  bool is_whole() const { return first == slice->piece.begin && last == slice->piece.end; }
};

// The ranges that a state needs, in the order of its slices. They point into the manifest. Throws
// DataError "CHECKPOINT: ..." if the tensors of the checkpoint are not those of the state.
std::vector<NeededRange> needed_ranges(const std::string& checkpoint,
                                       const CheckpointManifest& manifest,
                                       std::span<const StateSlice> state, Match match);

// The bytes of the state that the range fills, in its order; empty if its elements are converted or
// lie in several places.
std::span<std::byte> place_of(const NeededRange& range, const StateSlice& target);

// Copies the elements of a range to its slice of the state, and returns the hash of its bytes.
//   read: calls its argument with each piece of the range in order, and the number of bytes before
//         it, a multiple of 8
std::string load_range(
    const NeededRange& range, const StateSlice& target,
    FunctionRef<void(FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)>)> read);

}  // namespace lockstep
