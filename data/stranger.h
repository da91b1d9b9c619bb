// Stranger: a file of a format that is neither text nor tokens, so that a path to one says so.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

struct Stranger {
  std::size_t at;          // the byte where the magic stands
  std::string_view magic;  // by which it is known
  const char* what;        // "a Parquet file"
  const char* advice;      // to one who wants to pack it, in which FILE stands for its name
};

// By the first bytes of a file, of which kStrangerBytes are enough; null: it is none.
const Stranger* stranger_of(std::string_view first_bytes);
inline constexpr std::size_t kStrangerBytes = 512;

// The same, where text is expected: token shards, and text that is no UTF-8, too.
const Stranger* stranger_to_text(std::string_view first_bytes);

}  // namespace lockstep
