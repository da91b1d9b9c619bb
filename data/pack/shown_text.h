// ShownText converts tokens to text that is safe for a terminal: no control sequences and no
// changes of the writing direction.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Keeps valid UTF-8, line feeds and tabs. Control characters, characters that change the writing
// direction, and bytes that are not UTF-8 become \xHH for each byte.
std::string shown(std::string_view text);

class ShownText {
 public:
  void add(std::string_view bytes) {
    waiting_ += bytes;
  }                                  // bytes of a token, possibly part of a character
  void mark(std::string_view text);  // appends a mark after all added bytes
  std::string take();

 private:
  std::string waiting_, text_;
};

}  // namespace lockstep
