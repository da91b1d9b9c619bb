// load_checkpoint finds the elements of a state in a checkpoint.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "checkpoint/checkpointer.h"
#include "checkpoint/convert.h"
#include "checkpoint/ranges.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Copies the elements of a stored slice that `target` holds, and returns their number. Checks the
// hash of a slice that is read completely; otherwise sets `unverified`.
std::int64_t load_slice(PieceReader& reader, FunctionRef<const ReadFile&(std::size_t)> open,
                        const ManifestTensor& tensor, const ManifestSlice& slice,
                        const StateSlice& target, bool& unverified) {
  const Runs target_runs(target.whole, target.split, target.piece);
  std::int64_t first = slice.piece.end, last = slice.piece.begin, copied = 0;
  intersect(Runs(tensor.shape, tensor.split, slice.piece), target_runs,
            [&](std::int64_t at, std::int64_t, std::int64_t count) {
              first = std::min(first, slice.piece.begin + at);
              last = slice.piece.begin + at + count;
            });
  if (first >= last) return 0;
  const ReadFile& file = open(static_cast<std::size_t>(slice.file));
  const std::int64_t element = bytes_per_element(tensor.dtype);
  const std::int64_t offset = slice.offset + (first - slice.piece.begin) * element;
  Hasher hasher;
  reader.read(file, offset, (last - first) * element, [&](auto bytes, std::int64_t done) {
    hasher.add(bytes);
    const std::int64_t begin = first + done / element;
    const Piece piece{slice.piece.part, begin,
                      begin + static_cast<std::int64_t>(bytes.size()) / element};
    intersect(Runs(tensor.shape, tensor.split, piece), target_runs,
              [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                convert_elements(bytes.data() + from * element, tensor.dtype,
                                 target.local.data + to * bytes_per_element(target.local.dtype),
                                 target.local.dtype, count);
                copied += count;
              });
  });
  if (last - first == slice.piece.end - slice.piece.begin)
    check_hash(file, slice.offset, tensor.name, slice.hash, hasher.hex());
  else
    unverified = true;
  return copied;
}

bool converts(DType from, DType to) {
  const auto is_float = [](DType t) { return t == DType::fp32 || t == DType::bf16; };
  return from == to || (is_float(from) && is_float(to));
}

void check_tensor(const fs::path& checkpoint, const ManifestTensor& tensor,
                  const StateSlice& target, Match match) {
  if (!(tensor.shape == target.whole))
    throw DataError(str(checkpoint.string(), ": ", tensor.name, " has the shape ", tensor.shape,
                        ", expected ", target.whole,
                        "; was the checkpoint saved with another configuration?"));
  const DType to = target.local.dtype;
  if (match == Match::exact ? tensor.dtype != to : !converts(tensor.dtype, to))
    throw DataError(str(checkpoint.string(), ": ", tensor.name, " is ", name(tensor.dtype),
                        ", expected ", name(to), "; was the precision changed?"));
}

void check_names(const fs::path& checkpoint, const CheckpointManifest& manifest,
                 const std::unordered_map<std::string_view, const ManifestTensor*>& by_name,
                 std::span<const StateSlice> state, Match match) {
  std::unordered_map<std::string_view, int> wanted;
  for (const auto& slice : state) {
    ++wanted[slice.name];
    if (!by_name.contains(slice.name))
      throw DataError(str(checkpoint.string(), ": the tensor ", slice.name, " is missing",
                          "; was the checkpoint saved with another configuration?"));
  }
  if (match == Match::subset) return;
  for (const auto& tensor : manifest.tensors)
    if (!wanted.contains(tensor.name))
      throw DataError(str(checkpoint.string(), ": the tensor ", tensor.name,
                          " does not exist in this run; was the checkpoint saved with another "
                          "configuration?"));
}

}  // namespace

Loaded load_checkpoint(const fs::path& checkpoint, const CheckpointManifest& manifest,
                       std::span<const StateSlice> state, Match match) {
  std::unordered_map<std::string_view, const ManifestTensor*> by_name;
  for (const auto& tensor : manifest.tensors)
    by_name.emplace(tensor.name, &tensor);
  check_names(checkpoint, manifest, by_name, state, match);
  for (const auto& target : state)
    check_tensor(checkpoint, *by_name.at(target.name), target, match);
  // A rank may need many files, but only few of thousands.
  allow_open_files(manifest.files.size());
  std::vector<std::optional<ReadFile>> files(manifest.files.size());
  const auto open = [&](std::size_t f) -> const ReadFile& {
    if (!files[f]) files[f].emplace(open_checked(checkpoint, manifest.files[f]));
    return *files[f];
  };
  Loaded loaded{.about = manifest.about};
  PieceReader reader;
  for (const auto& target : state) {
    const auto& tensor = *by_name.at(target.name);
    std::int64_t copied = 0;
    for (const auto& slice : tensor.slices)
      copied += load_slice(reader, open, tensor, slice, target, loaded.unverified);
    LOCKSTEP_CHECK(copied == target.local.elements(), tensor.name, ": found ", copied, " of ",
                   target.local.elements(), " elements");
    if (target.put) target.put();
  }
  for (std::size_t f = 0; f < files.size(); ++f)
    if (files[f]) reader.verify(*files[f], header_of(manifest.files[f]));
  return loaded;
}

}  // namespace lockstep
