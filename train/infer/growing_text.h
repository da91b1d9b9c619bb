// GrowingText: what generated tokens say, as far as it may be written already: whole characters,
// and nothing that may turn out to be a stop string's begin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class GrowingText {
 public:
  // Throws UsageError where a stop string is empty.
  explicit GrowingText(std::vector<std::string> stops = {});

  // Appends the bytes of a token. False where the text has come to a stop string: it ends in front
  // of the first one.
  bool append(std::string_view bytes);

  const std::string& text() const { return text_; }
  // What append() has settled since the last call.
  std::string_view settled();
  // The rest, at the end of generation; of a text that was cut amid a character, its first bytes.
  std::string_view rest();

 private:
  std::size_t settled_bytes() const;

  std::vector<std::string> stops_;
  std::string text_;
  std::size_t written_ = 0;
  bool ended_ = false;
};

}  // namespace lockstep
