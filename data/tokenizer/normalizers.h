// Normalizers change a text before it is split into words, and the text of a token when it is
// decoded.
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
  // `member`: the member of the file, for errors. Throws DataError for an unsupported pattern, or
  // one that may match nothing.
  Normalizers(const std::vector<BpeDefinition::Normalizer>& all, const char* member);

  bool empty() const { return all_.empty(); }
  // Applies all changes in order. A text that follows other text gets no prefix, and a pattern that
  // starts with \A matches nothing in it. Throws DataError if the text becomes longer than 64 times
  // its length plus 1 KiB.
  std::string apply(std::string text, Bpe::Place place) const;

 private:
  struct One {
    BpeDefinition::Normalizer what;
    std::optional<SplitPattern> pattern;
  };
  std::vector<One> all_;
  const char* member_ = "";
};

// Returns `text` with the matches of the pattern replaced by `content`. Throws DataError if it
// becomes longer than `most` bytes.
std::string replaced(std::string_view text, const SplitPattern& pattern, std::string_view content,
                     std::size_t most);
inline std::size_t most_bytes_of(std::size_t bytes) {
  return 64 * bytes + 1024;
}

}  // namespace lockstep
