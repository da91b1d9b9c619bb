// TextStream: the text of generated tokens, with the part that may be written already. This final
// part has only whole characters, and does not end in a possible beginning of a stop string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class TextStream {
 public:
  // Throws UsageError if a stop string is empty.
  explicit TextStream(std::vector<std::string> stops = {});

  // Appends the bytes of a token. Returns false once the text has reached a stop string; the text
  // ends before the first one.
  bool append(std::string_view bytes);

  const std::string& text() const { return text_; }
  // Text that became final since the last call.
  std::string_view settled();
  // Remaining text, at the end of generation. It may end in a partial character.
  std::string_view rest();

 private:
  std::size_t settled_bytes() const;

  std::vector<std::string> stops_;
  std::string text_;
  std::size_t written_ = 0;
  bool ended_ = false;
};

}  // namespace lockstep
