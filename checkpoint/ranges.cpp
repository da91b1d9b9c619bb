#include "checkpoint/ranges.h"

#include <algorithm>

#include "core/hash.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;  // read at once: fits a cache

}  // namespace

HashedRange header_of(const ManifestFile& file) {
  return {0, file.header_bytes, "the header", file.header_hash};
}

std::vector<HashedRange> ranges_of(const CheckpointManifest& manifest, int file) {
  std::vector<HashedRange> ranges{header_of(manifest.files.at(static_cast<std::size_t>(file)))};
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices)
      if (slice.file == file)
        ranges.push_back({slice.offset, tensor.slice_bytes(slice), tensor.name, slice.hash});
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return ranges;
}

ReadFile open_checked(const std::filesystem::path& checkpoint, const ManifestFile& expected) {
  ReadFile file(checkpoint / expected.name);
  if (file.size_bytes() != expected.bytes)
    file.fail(std::min(file.size_bytes(), expected.bytes),
              str("expected a file of ", expected.bytes, " bytes, found ", file.size_bytes()));
  return file;
}

void read_pieces(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
                 FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)> use) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(bytes, kPieceBytes)));
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
    const auto count = std::min(kPieceBytes, bytes - done);
    const auto piece = std::span(buffer).first(static_cast<std::size_t>(count));
    file.read(piece, offset + done);
    use(piece, done);
  }
}

void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found) {
  if (found != expected)
    file.fail(offset, str(what, " is damaged: its XXH3-128 is ", found, ", expected ", expected));
}

void verify_range(const ReadFile& file, const HashedRange& range,
                  FunctionRef<void(std::span<const std::byte> piece)> use) {
  Hasher hasher;
  read_pieces(file, range.offset, range.bytes, [&](auto piece, std::int64_t) {
    hasher.add(piece);
    use(piece);
  });
  check_hash(file, range.offset, range.what, range.hash, hasher.hex());
}

}  // namespace lockstep
