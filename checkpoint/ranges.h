// Ranges of a checkpoint's files that hashes cover: each header and each slice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/file.h"
#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

struct HashedRange {
  std::int64_t offset = 0, bytes = 0;
  std::string what, hash;
};

HashedRange header_of(const ManifestFile& file);
// The ranges of each file, in file order. They cover the whole file without gaps.
std::vector<std::vector<HashedRange>> ranges_by_file(const CheckpointManifest& manifest);

// Opens a file of a checkpoint. Throws DataError if its size differs.
ReadFile open_checked(const std::filesystem::path& checkpoint, const ManifestFile& expected);

// Throws DataError if the hashes differ.
void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found);

// PieceReader reads ranges of files in pieces. While a piece is used, the next piece of the same or
// the following range is read from disk.
class PieceReader {
 public:
  // The files that it reads must outlive it.
  PieceReader() = default;
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;
  ~PieceReader();

  // Calls use(piece, done) for each piece of [offset, offset + bytes) of the file. `done` is the
  // number of bytes before the piece, a multiple of 8.
  void read(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
            FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)> use);
  // Reads a range, then checks its hash.
  void verify(
      const ReadFile& file, const HashedRange& range,
      FunctionRef<void(std::span<const std::byte> piece)> use = [](auto) {});

 private:
  // Bytes [begin, begin + bytes.size()) of a file.
  struct Piece {
    const ReadFile* file = nullptr;
    std::int64_t begin = 0;
    std::vector<std::byte> bytes;
    std::span<const std::byte> at(const ReadFile& of, std::int64_t offset, std::int64_t most) const;
  };
  void fill(Piece& piece, const ReadFile& file, std::int64_t begin, std::int64_t end);
  void expect(const ReadFile& file, std::int64_t begin, std::int64_t end);

  Piece ready_, coming_;
  const ReadFile* last_file_ = nullptr;
  std::int64_t last_end_ = 0;  // end of the last range read
  std::optional<Stream> behind_;
  Event came_;
};

// Copies a file of a checkpoint, and checks the hash of each range. Returns when it is on disk.
void copy_verified(const std::filesystem::path& from, const std::filesystem::path& to,
                   std::span<const HashedRange> ranges);

}  // namespace lockstep
