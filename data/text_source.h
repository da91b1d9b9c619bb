// TextSource: text files read one behind the other, in order, in one pass, so that pipes will do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

// What `paths` mean: a file itself; a directory every file below it in the order of their paths,
// hidden ones left out; "-" standard input. Throws DataError naming what is not there.
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

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t offset_ = 0;
};

}  // namespace lockstep
