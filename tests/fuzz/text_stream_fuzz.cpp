// Any bytes that a model writes, in tokens of any size, are printed once and in order, up to the
// first stop string. Valid text is printed in whole characters. The first byte of the input decides
// the sizes of tokens, the rest is the text.
#include "core/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "train/infer/text_stream.h"

namespace lockstep::fuzz::text_stream_fuzz {
void check_pieces(std::string_view text, std::size_t piece, const std::vector<std::string>& stops) {
  auto stop = std::string_view::npos;
  for (const auto& one : stops)
    stop = std::min(stop, text.find(one));
  TextStream growing(stops);
  std::string out;
  bool goes_on = true;
  for (std::size_t at = 0; at < text.size() && goes_on; at += piece) {
    goes_on = growing.append(text.substr(at, piece));
    out += growing.settled();
    LOCKSTEP_CHECK(text.starts_with(out), "settled what was not written");
    if (goes_on && valid_utf8(text) == text.size())
      LOCKSTEP_CHECK(valid_utf8(out) == out.size(), "settled a part of a character");
  }
  out += growing.rest();
  LOCKSTEP_CHECK(goes_on == (stop == std::string_view::npos), "a stop string at ", stop);
  LOCKSTEP_CHECK(out == text.substr(0, stop) && growing.text() == out, "another text");
}

void check(std::string_view input) {
  if (input.empty()) return;
  const std::size_t piece = static_cast<unsigned char>(input.front()) % 7 + 1;
  const auto text = input.substr(1);
  check_pieces(text, piece, {});
  check_pieces(text, piece, {"\n\n", "end"});
  check_pieces(text, piece, {"\xc3\xa9\n", "\n", "aab"});
}

Seeds seeds() {
  return {"\1a\xc3\xa9\xf0\x9f\x98\x80 e en end", "\3one\n\ntwo", "\6aaab\xc3\xa9\n\xff\xe2\x82"};
}

const Target target("text_stream", seeds, check);

}  // namespace lockstep::fuzz::text_stream_fuzz
