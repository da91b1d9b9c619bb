// CheckpointManifest describes the contents of a checkpoint, stored as manifest.json. Its last
// member is the XXH3-128 of all bytes before it. Hashes in it cover every byte of the other files.
// docs/checkpoints.md describes each member.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/slices.h"
#include "core/json.h"
#include "core/tensor.h"

namespace lockstep {

struct ManifestFile {
  std::string name;  // file name in the manifest's directory
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;  // the slices follow without gaps
  std::string header_hash;
};

struct ManifestSlice {
  Piece piece;
  int file = 0;             // index in CheckpointManifest::files
  std::int64_t offset = 0;  // byte offset in the file
  std::string hash;
};

struct ManifestTensor {
  std::string name;
  Shape shape;  // shape of the whole tensor, unpadded
  DType dtype = DType::fp32;
  Split split;
  std::vector<ManifestSlice> slices;  // each element is in exactly one slice

  std::int64_t slice_bytes(const ManifestSlice& slice) const {
    return (slice.piece.end - slice.piece.begin) * bytes_per_element(dtype);
  }
};

struct CheckpointManifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // of the process that saved it, see checkpoint/epochs.h; 0: none
  Json about;              // data that the run needs to resume, and information for people
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;

  // Throws DataError "WHAT: ..." unless the text is complete and consistent. It checks the hash,
  // and that ranges lie in their tensors and files. One slice must have each element and byte.
  static CheckpointManifest parse(std::string_view text, const std::string& what);
  std::string dump() const;

  // Text of the files and slices that one rank wrote, and the merge of such a text into this
  // manifest. add_part() throws DataError "WHAT: ..." if the part belongs to another state. All
  // parts of a manifest, which has no files and tensors before, are added with one index.
  struct Index {
    std::unordered_map<std::string, std::size_t> files, tensors;  // places by name
  };
  std::string dump_part() const;
  void add_part(std::string_view text, const std::string& what, Index& index);
};

inline constexpr char kCheckpointManifestName[] = "manifest.json";
inline constexpr std::int64_t kMostManifestBytes = 1'000'000'000;

CheckpointManifest read_manifest(const std::filesystem::path& checkpoint);  // a step-N directory

// What tells one save of a step from another: epoch and hash as the manifest states them. Reads
// only the begin and the end of the manifest, and does not verify the hash.
struct ManifestId {
  std::int64_t epoch = 0;
  std::string hash;
};
std::optional<ManifestId> manifest_id_in(std::string_view text);  // nullopt: not a manifest
std::optional<ManifestId> manifest_id(const std::filesystem::path& checkpoint);  // or unreadable

}  // namespace lockstep
