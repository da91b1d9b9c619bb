// ShownText: tokens as text that a terminal may be given: nothing in it steers one, or turns the
// direction of writing.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Valid UTF-8 as it is; control characters, what turns the direction, and bytes that are no UTF-8
// as \xHH of each byte. Line feeds and tabs stay.
std::string shown(std::string_view text);

class ShownText {
 public:
  void add(std::string_view bytes) { waiting_ += bytes; }  // of a token: maybe half a character
  void mark(std::string_view text);                        // of ours, behind all that was added
  std::string take();

 private:
  std::string waiting_, text_;
};

}  // namespace lockstep
