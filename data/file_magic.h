// FileMagic describes a foreign file format, neither text nor tokens, so that errors can name it.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

struct FileMagic {
  std::size_t at;          // byte offset of the magic
  std::string_view magic;  // bytes that identify the format
  const char* what;        // "a Parquet file"
  const char* advice;      // how to pack it; FILE stands for its name
};

// Recognizes a format by the first kFormatBytes bytes of a file; null if none matches.
const FileMagic* foreign_format_of(std::string_view first_bytes);
inline constexpr std::size_t kFormatBytes = 512;

// The same if text is expected. Also recognizes token shards and text that is not UTF-8.
const FileMagic* format_instead_of_text(std::string_view first_bytes);

}  // namespace lockstep
