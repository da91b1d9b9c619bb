// Manifest: what a checkpoint holds and where, as manifest.json. Its last member is the XXH3-128 of
// all bytes before it; every byte of the other files is covered by a hash in it.
// docs/checkpoints.md describes each member.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/slices.h"
#include "core/json.h"
#include "core/tensor.h"

namespace lockstep {

struct ManifestFile {
  std::string name;  // beside the manifest
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;  // behind them the slices lie back to back
  std::string header_hash;
};

struct ManifestSlice {
  Piece piece;
  int file = 0;             // index
  std::int64_t offset = 0;  // in the file, in bytes
  std::string hash;
};

struct ManifestTensor {
  std::string name;
  Shape shape;  // of the whole, unpadded
  DType dtype = DType::fp32;
  Split split;
  std::vector<ManifestSlice> slices;  // each element is in exactly one

  std::int64_t slice_bytes(const ManifestSlice& slice) const {
    return (slice.piece.end - slice.piece.begin) * bytes_per_element(dtype);
  }
};

struct CheckpointManifest {
  std::int64_t step = 0;
  Json about;  // what the run needs to go on, and what a person wants to know
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;

  // Throws DataError "WHAT: ..." unless the text is whole and consistent: hash, ranges inside their
  // tensors and files, each element and each byte in exactly one slice.
  static CheckpointManifest parse(std::string_view text, const std::string& what);
  std::string dump() const;

  // What one rank wrote, as text for another, which adds it to what others wrote. Throws DataError
  // "WHAT: ..." where it cannot be of the same state.
  std::string dump_part() const;
  void add_part(std::string_view text, const std::string& what);
};

inline constexpr char kCheckpointManifestName[] = "manifest.json";
inline constexpr std::int64_t kMostManifestBytes = 1'000'000'000;

CheckpointManifest read_manifest(const std::filesystem::path& checkpoint);  // a step-N directory

}  // namespace lockstep
