#include "checkpoint/load.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "checkpoint/convert.h"
#include "checkpoint/ranges.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool converts(DType from, DType to) {
  const auto is_float = [](DType t) { return t == DType::fp32 || t == DType::bf16; };
  return from == to || (is_float(from) && is_float(to));
}

void check_tensor(const std::string& checkpoint, const ManifestTensor& tensor,
                  const StateSlice& target, Match match) {
  if (!(tensor.shape == target.whole))
    throw DataError(str(checkpoint, ": ", tensor.name, " has the shape ", tensor.shape,
                        ", expected ", target.whole,
                        "; was the checkpoint saved with another configuration?"));
  const DType to = target.local.dtype;
  if (match == Match::exact ? tensor.dtype != to : !converts(tensor.dtype, to))
    throw DataError(str(checkpoint, ": ", tensor.name, " is ", name(tensor.dtype), ", expected ",
                        name(to), "; was the precision changed?"));
}

void check_names(const std::string& checkpoint, const CheckpointManifest& manifest,
                 const std::unordered_map<std::string_view, const ManifestTensor*>& by_name,
                 std::span<const StateSlice> state, Match match) {
  std::unordered_map<std::string_view, int> wanted;
  for (const auto& slice : state) {
    ++wanted[slice.name];
    if (!by_name.contains(slice.name))
      throw DataError(str(checkpoint, ": the tensor ", slice.name, " is missing",
                          "; was the checkpoint saved with another configuration?"));
  }
  if (match == Match::subset) return;
  for (const auto& tensor : manifest.tensors)
    if (!wanted.contains(tensor.name))
      throw DataError(str(checkpoint, ": the tensor ", tensor.name,
                          " does not exist in this run; was the checkpoint saved with another "
                          "configuration?"));
}

// The part of a slice that spans all elements of `target`; empty if it has none of them. Adds their
// number to `found`.
std::pair<std::int64_t, std::int64_t> span_of(const ManifestTensor& tensor,
                                              const ManifestSlice& slice, const StateSlice& target,
                                              std::int64_t& found) {
  std::int64_t first = slice.piece.end, last = slice.piece.begin;
  intersect(Runs(tensor.shape, tensor.split, slice.piece),
            Runs(target.whole, target.split, target.piece),
            [&](std::int64_t at, std::int64_t, std::int64_t count) {
              first = std::min(first, slice.piece.begin + at);
              last = slice.piece.begin + at + count;
              found += count;
            });
  return {first, last};
}

}  // namespace

std::vector<NeededRange> needed_ranges(const std::string& checkpoint,
                                       const CheckpointManifest& manifest,
                                       std::span<const StateSlice> state, Match match) {
  std::unordered_map<std::string_view, const ManifestTensor*> by_name;
  for (const auto& tensor : manifest.tensors)
    by_name.emplace(tensor.name, &tensor);
  check_names(checkpoint, manifest, by_name, state, match);
  std::vector<NeededRange> ranges;
  for (std::size_t t = 0; t < state.size(); ++t) {
    const auto& tensor = *by_name.at(state[t].name);
    check_tensor(checkpoint, tensor, state[t], match);
    std::int64_t found = 0;
    for (const auto& slice : tensor.slices)
      if (const auto [first, last] = span_of(tensor, slice, state[t], found); first < last)
        ranges.push_back({t, &tensor, &slice, first, last});
    LOCKSTEP_CHECK(found == state[t].local.elements(), tensor.name, ": found ", found, " of ",
                   state[t].local.elements(), " elements");
  }
  return ranges;
}

std::span<std::byte> place_of(const NeededRange& range, const StateSlice& target) {
  const auto& tensor = *range.tensor;
  if (tensor.dtype != target.local.dtype) return {};
  const Piece piece{range.slice->piece.part, range.first, range.last};
  std::int64_t first = -1, end = -1;
  bool is_one = true;
  intersect(Runs(tensor.shape, tensor.split, piece), Runs(target.whole, target.split, target.piece),
            [&](std::int64_t, std::int64_t to, std::int64_t count) {
              is_one = is_one && (first < 0 || to == end);
              if (first < 0) first = to;
              end = to + count;
            });
  if (!is_one || end - first != range.last - range.first) return {};
  const auto element = bytes_per_element(tensor.dtype);
  return {target.local.data + first * element, static_cast<std::size_t>(range.bytes())};
}

std::string load_range(
    const NeededRange& range, const StateSlice& target,
    FunctionRef<void(FunctionRef<void(std::span<const std::byte>, std::int64_t)>)> read) {
  const auto& tensor = *range.tensor;
  const Runs target_runs(target.whole, target.split, target.piece);
  const auto element = bytes_per_element(tensor.dtype);
  Hasher hasher;
  read([&](auto bytes, std::int64_t done) {
    hasher.add(bytes);
    const std::int64_t begin = range.first + done / element;
    const Piece piece{range.slice->piece.part, begin, begin + std::ssize(bytes) / element};
    intersect(Runs(tensor.shape, tensor.split, piece), target_runs,
              [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                convert_elements(bytes.data() + from * element, tensor.dtype,
                                 target.local.data + to * bytes_per_element(target.local.dtype),
                                 target.local.dtype, count);
              });
  });
  return hasher.hex();
}

Loaded load_checkpoint(const fs::path& checkpoint, const CheckpointManifest& manifest,
                       std::span<const StateSlice> state, Match match) {
  const auto ranges = needed_ranges(checkpoint.string(), manifest, state, match);
  // A rank may need many files, but only few of thousands.
  allow_open_files(manifest.files.size());
  std::vector<std::optional<ReadFile>> files(manifest.files.size());
  Loaded loaded{.about = manifest.about};
  PieceReader reader;
  auto range = ranges.begin();
  for (std::size_t t = 0; t < state.size(); ++t) {
    for (; range != ranges.end() && range->target == t; ++range) {
      auto& file = files[range->file()];
      if (!file) file.emplace(open_checked(checkpoint, manifest.files[range->file()]));
      const auto hash = load_range(*range, state[t], [&](auto use) {
        reader.read(*file, range->offset(), range->bytes(), use);
      });
      if (range->is_whole())
        check_hash(*file, range->offset(), range->tensor->name, range->slice->hash, hash);
      else
        loaded.unverified = true;
    }
    if (state[t].put) state[t].put();
  }
  for (std::size_t f = 0; f < files.size(); ++f)
    if (files[f]) reader.verify(*files[f], header_of(manifest.files[f]));
  return loaded;
}

}  // namespace lockstep
