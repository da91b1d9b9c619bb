// TextSource reads a text file in one pass from start to end, so that pipes work. It decompresses
// gzip and zstd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/pack/decompress.h"

namespace lockstep {

// Returns `paths` with patterns expanded: a path that does not exist and contains one of * ? [ is
// replaced by the matching names, as in a shell. "-" is standard input. Throws DataError naming a
// missing path.
std::vector<std::filesystem::path> matching_paths(const std::vector<std::filesystem::path>& paths);

// Returns the files of matching_paths(). A directory stands for all files below it, sorted by path,
// through links, without hidden ones. Throws DataError naming a missing path, and entries of a
// directory that are not files: broken or circular links, pipes.
std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& paths);

// Returns the total size of regular files; 0 if one is a pipe, whose length is unknown.
std::int64_t total_bytes(const std::vector<std::filesystem::path>& files);

class TextSource {
 public:
  explicit TextSource(std::filesystem::path path);  // "-": standard input
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;
  ~TextSource();

  // Fills `out` from the start and returns the number of bytes, less than requested only at the
  // end. Throws DataError naming file and byte.
  std::size_t read(std::span<char> out);

  // Skips forward to byte `offset` of the text.
  void skip_to(std::int64_t offset);

  std::int64_t offset() const { return offset_; }  // offset of the next byte of the text
  bool is_compressed() const { return decompressor_ != nullptr; }
  std::int64_t bytes_taken() const { return taken_; }  // bytes read of the file

 private:
  std::size_t read_file(std::span<char> out);
  std::size_t decompress(std::span<char> out);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t offset_ = 0, taken_ = 0;  // position in the text; bytes read of the file
  std::unique_ptr<Decompressor> decompressor_;
  bool within_ = false;      // inside a member or frame
  std::vector<char> bytes_;  // bytes of the file; those from `next_` on are not decompressed yet
  std::size_t next_ = 0;
};

}  // namespace lockstep
