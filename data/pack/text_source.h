// TextSource: text files read one behind the other, in order, in one pass, so that pipes will do;
// those that gzip or zstd compressed, as what they were.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/pack/decompress.h"

namespace lockstep {

// `paths`, but in place of what is not there and holds one of * ? [ the names that it matches, as
// in a shell. "-" is standard input. Throws DataError naming what is not there.
std::vector<std::filesystem::path> matching_paths(const std::vector<std::filesystem::path>& paths);

// The files that matching_paths() are: of a directory every file below it in the order of their
// paths, through links too, hidden ones left out. Throws DataError naming what is not there, and
// what in a directory is no file: links that lead nowhere or in a circle, pipes.
std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& paths);

// The bytes of regular files; 0 when one is a pipe, whose length nobody knows.
std::int64_t total_bytes(const std::vector<std::filesystem::path>& files);

class TextSource {
 public:
  explicit TextSource(std::filesystem::path path);  // "-": standard input
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;
  ~TextSource();

  // Fills `out` from the front and returns how many bytes; fewer than asked for only at the end.
  // Throws DataError naming file and byte.
  std::size_t read(std::span<char> out);

  // The next byte to be read is byte `offset` of the text, behind what was read.
  void skip_to(std::int64_t offset);

  std::int64_t offset() const { return offset_; }  // of the next byte of the text
  bool is_compressed() const { return decompressor_ != nullptr; }
  std::int64_t bytes_taken() const { return taken_; }  // of the file

 private:
  std::size_t read_file(std::span<char> out);
  std::size_t decompress(std::span<char> out);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t offset_ = 0, taken_ = 0;  // in the text; in the file
  std::unique_ptr<Decompressor> decompressor_;
  bool within_ = false;      // a member or frame that has not ended
  std::vector<char> bytes_;  // of the file; those from `next_` on are not yet text
  std::size_t next_ = 0;
};

}  // namespace lockstep
