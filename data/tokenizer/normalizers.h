// Normalizers: the changes of a text before it is cut into words, and those of a token's text when
// it is decoded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/bpe_definition.h"
#include "data/tokenizer/split_pattern.h"

namespace lockstep {

class Normalizers {
 public:
  Normalizers() = default;
  // `member`: that of the file, for errors. Throws DataError for a pattern that cannot be used, or
  // that may match nothing.
  Normalizers(const std::vector<BpeDefinition::Normalizer>& all, const char* member);

  bool empty() const { return all_.empty(); }
  // Applies all changes in their order. A text that follows other text gets no prefix, and a
  // pattern that begins with \A matches nothing in it. Throws DataError where the text becomes more
  // than 64 times as long and 1 KiB.
  std::string apply(std::string text, Bpe::Place place) const;

 private:
  struct One {
    BpeDefinition::Normalizer what;
    std::optional<SplitPattern> pattern;
  };
  std::vector<One> all_;
  const char* member_ = "";
};

// `text` with the pattern's matches replaced by `content`. Throws DataError where it becomes longer
// than `most` bytes.
std::string replaced(std::string_view text, const SplitPattern& pattern, std::string_view content,
                     std::size_t most);
inline std::size_t most_bytes_of(std::size_t bytes) {
  return 64 * bytes + 1024;
}

}  // namespace lockstep
