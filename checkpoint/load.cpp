// Reading a checkpoint: verifying it, and finding the elements of a state in it.
#include <algorithm>
#include <unordered_map>

#include "checkpoint/checkpointer.h"
#include "checkpoint/convert.h"
#include "core/file.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;  // read at once: fits a cache

ReadFile open_checked(const fs::path& checkpoint, const ManifestFile& expected) {
  ReadFile file(checkpoint / expected.name);
  if (file.size_bytes() != expected.bytes)
    file.fail(std::min(file.size_bytes(), expected.bytes),
              str("expected a file of ", expected.bytes, " bytes, found ", file.size_bytes()));
  return file;
}

// Calls use(bytes, offset) for the range of the file, piece by piece.
template <class Use>
void read_pieces(const ReadFile& file, std::int64_t offset, std::int64_t bytes, const Use& use) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(bytes, kPieceBytes)));
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
    const auto count = std::min(kPieceBytes, bytes - done);
    const auto piece = std::span(buffer).first(static_cast<std::size_t>(count));
    file.read(piece, offset + done);
    use(std::span<const std::byte>(piece), done);
  }
}

void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found) {
  if (found != expected)
    file.fail(offset, str(what, " is damaged: its XXH3-128 is ", found, ", expected ", expected));
}

void verify_range(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
                  const std::string& what, const std::string& expected) {
  Hasher hasher;
  read_pieces(file, offset, bytes, [&](auto piece, std::int64_t) { hasher.add(piece); });
  check_hash(file, offset, what, expected, hasher.hex());
}

void verify_header(const ReadFile& file, const ManifestFile& expected) {
  verify_range(file, 0, expected.header_bytes, "the header", expected.header_hash);
}

// Copies what `target` holds of a stored slice; returns how many elements that was. A slice that is
// needed as a whole is checked against its hash; of another `unverified` is set.
std::int64_t load_slice(const ReadFile& file, const ManifestTensor& tensor,
                        const ManifestSlice& slice, const StateSlice& target, bool& unverified) {
  const Runs target_runs(target.whole, target.split, target.piece);
  std::int64_t first = slice.piece.end, last = slice.piece.begin, copied = 0;
  intersect(Runs(tensor.shape, tensor.split, slice.piece), target_runs,
            [&](std::int64_t at, std::int64_t, std::int64_t count) {
              first = std::min(first, slice.piece.begin + at);
              last = slice.piece.begin + at + count;
            });
  if (first >= last) return 0;
  const std::int64_t element = bytes_per_element(tensor.dtype);
  const std::int64_t offset = slice.offset + (first - slice.piece.begin) * element;
  Hasher hasher;
  read_pieces(file, offset, (last - first) * element, [&](auto bytes, std::int64_t done) {
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
                        ", this model's is ", target.whole,
                        "; was the checkpoint made with another configuration?"));
  const DType to = target.local.dtype;
  if (match == Match::exact ? tensor.dtype != to : !converts(tensor.dtype, to))
    throw DataError(str(checkpoint.string(), ": ", tensor.name, " is ", name(tensor.dtype),
                        ", this run's is ", name(to), "; was the precision changed?"));
}

void check_names(const fs::path& checkpoint, const CheckpointManifest& manifest,
                 const std::unordered_map<std::string_view, const ManifestTensor*>& by_name,
                 std::span<const StateSlice> state, Match match) {
  std::unordered_map<std::string_view, int> wanted;
  for (const auto& slice : state) {
    ++wanted[slice.name];
    if (!by_name.contains(slice.name))
      throw DataError(str(checkpoint.string(), ": there is no tensor ", slice.name,
                          "; was the checkpoint made with another configuration?"));
  }
  if (match == Match::subset) return;
  for (const auto& tensor : manifest.tensors)
    if (!wanted.contains(tensor.name))
      throw DataError(str(checkpoint.string(), ": there is a tensor ", tensor.name,
                          " that this run does not have; was the checkpoint made with another "
                          "configuration?"));
}

// step-N, or step-N.replaced-K.
bool is_named_after(const fs::path& checkpoint, std::int64_t step) {
  const auto normal = checkpoint.lexically_normal();
  const auto name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  const auto expected = checkpoint_path("", step).string();
  return name == expected || name.starts_with(expected + ".");
}

}  // namespace

void verify_checkpoint(const fs::path& checkpoint, Depth depth, bool from_disk) {
  if (from_disk) ReadFile(checkpoint / kCheckpointManifestName).drop_cache();
  const CheckpointManifest manifest = read_manifest(checkpoint);
  if (!is_named_after(checkpoint, manifest.step))
    throw DataError(str(checkpoint.string(), ": its manifest is of step ", manifest.step));
  std::vector<ReadFile> files;
  for (const auto& expected : manifest.files)
    files.push_back(open_checked(checkpoint, expected));
  if (depth == Depth::sizes) return;
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (from_disk) files[f].drop_cache();
    verify_header(files[f], manifest.files[f]);
  }
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices)
      verify_range(files[static_cast<std::size_t>(slice.file)], slice.offset,
                   tensor.slice_bytes(slice), tensor.name, slice.hash);
}

void verify_part(const fs::path& checkpoint, int part, int parts) {
  const CheckpointManifest manifest = read_manifest(checkpoint);
  std::vector<ReadFile> files;
  std::int64_t all = 0, before = 0;
  for (const auto& expected : manifest.files) {
    files.push_back(open_checked(checkpoint, expected));
    all += expected.bytes;
  }
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices) {
      const auto bytes = tensor.slice_bytes(slice);
      if (before * parts / std::max<std::int64_t>(all, 1) == part)
        verify_range(files[static_cast<std::size_t>(slice.file)], slice.offset, bytes, tensor.name,
                     slice.hash);
      before += bytes;
    }
}

Loaded load_checkpoint(const fs::path& checkpoint, std::span<const StateSlice> state, Match match) {
  const CheckpointManifest manifest = read_manifest(checkpoint);
  std::unordered_map<std::string_view, const ManifestTensor*> by_name;
  for (const auto& tensor : manifest.tensors)
    by_name.emplace(tensor.name, &tensor);
  check_names(checkpoint, manifest, by_name, state, match);
  for (const auto& target : state)
    check_tensor(checkpoint, *by_name.at(target.name), target, match);
  std::vector<ReadFile> files;
  for (const auto& expected : manifest.files)
    files.push_back(open_checked(checkpoint, expected));
  Loaded loaded{.about = manifest.about};
  std::vector<bool> used(files.size());
  for (const auto& target : state) {
    const auto& tensor = *by_name.at(target.name);
    std::int64_t copied = 0;
    for (const auto& slice : tensor.slices) {
      const auto f = static_cast<std::size_t>(slice.file);
      const auto count = load_slice(files[f], tensor, slice, target, loaded.unverified);
      used[f] = used[f] || count > 0;
      copied += count;
    }
    LOCKSTEP_CHECK(copied == target.local.elements(), tensor.name, ": ", copied, " of ",
                   target.local.elements(), " elements were found");
  }
  for (std::size_t f = 0; f < files.size(); ++f)
    if (used[f]) verify_header(files[f], manifest.files[f]);
  return loaded;
}

}  // namespace lockstep
