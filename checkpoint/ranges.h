// The ranges of a checkpoint's files that hashes cover: each header, and each slice.
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
// Of each of its files in their order: they follow one another from its first byte to its last.
std::vector<std::vector<HashedRange>> ranges_by_file(const CheckpointManifest& manifest);

// Throws DataError where the size is another.
ReadFile open_checked(const std::filesystem::path& checkpoint, const ManifestFile& expected);

// Throws DataError where they differ.
void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found);

// Reads ranges of files by pieces. Of ranges that follow one another, and of the pieces of one, the
// next is read from the disk while one is used.
class PieceReader {
 public:
  // Of the files that it reads all outlive it.
  PieceReader() = default;
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;
  ~PieceReader();

  // Calls use(piece, done) for [offset, offset + bytes) of the file, piece by piece, of which
  // `done` bytes were before, a multiple of 8.
  void read(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
            FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)> use);
  // Reads a range, and checks it after that.
  void verify(
      const ReadFile& file, const HashedRange& range,
      FunctionRef<void(std::span<const std::byte> piece)> use = [](auto) {});

 private:
  // [begin, begin + bytes.size()) of a file.
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
  std::int64_t last_end_ = 0;  // of the range that was read last
  std::optional<Stream> behind_;
  Event came_;
};

}  // namespace lockstep
