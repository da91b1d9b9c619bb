// The ranges of a checkpoint's files that hashes cover: each header, and each slice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/file.h"
#include "core/function_ref.h"

namespace lockstep {

struct HashedRange {
  std::int64_t offset = 0, bytes = 0;
  std::string what, hash;
};

HashedRange header_of(const ManifestFile& file);
// Of one of its files, in their order: they follow one another from its first byte to its last.
std::vector<HashedRange> ranges_of(const CheckpointManifest& manifest, int file);

// Throws DataError where the size is another.
ReadFile open_checked(const std::filesystem::path& checkpoint, const ManifestFile& expected);

// Calls use(bytes, done) for [offset, offset + bytes) of the file, piece by piece, of which `done`
// bytes were before.
void read_pieces(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
                 FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)> use);

// Throws DataError where they differ.
void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found);

// Reads a range, and checks it after that.
void verify_range(
    const ReadFile& file, const HashedRange& range,
    FunctionRef<void(std::span<const std::byte> piece)> use = [](auto) {});

}  // namespace lockstep
