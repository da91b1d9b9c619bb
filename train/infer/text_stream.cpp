#include "train/infer/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestCharacter = 4;

// Number of bytes of `text` without a partial character at its end.
std::size_t whole_characters(std::string_view text) {
  const auto least = text.size() - std::min(text.size(), kLongestCharacter - 1);
  for (auto first = text.size(); first-- > least;) {
    if (is_continuation(text[first])) continue;
    const auto last = text.substr(first);
    const bool may_grow = utf8_at(last).bytes == 0 && utf8_at(last).skip == last.size() &&
                          static_cast<unsigned char>(last.front()) >= 0xc2;
    return may_grow ? first : text.size();
  }
  return text.size();
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const auto& stop : stops_)
    if (stop.empty()) throw UsageError("a stop string is empty");
}

bool TextStream::append(std::string_view bytes) {
  if (ended_) return false;
  const auto before = text_.size();
  text_ += bytes;
  auto end = std::string::npos;
  for (const auto& stop : stops_)  // a stop string that ends in the new bytes
    end = std::min(end, text_.find(stop, before - std::min(before, stop.size() - 1)));
  if (end == std::string::npos) return true;
  text_.resize(end);
  ended_ = true;
  return false;
}

std::size_t TextStream::settled_bytes() const {
  if (ended_) return text_.size();
  auto settled = whole_characters(text_);
  for (const auto& stop : stops_)
    for (auto n = std::min(stop.size() - 1, text_.size()); n > 0; --n)
      if (text_.ends_with(std::string_view(stop).substr(0, n))) {
        settled = std::min(settled, text_.size() - n);
        break;
      }
  return settled;
}

std::string_view TextStream::settled() {
  const auto from = written_;
  written_ = std::max(written_, settled_bytes());
  return std::string_view(text_).substr(from, written_ - from);
}

std::string_view TextStream::rest() {
  const auto from = std::exchange(written_, text_.size());
  return std::string_view(text_).substr(from);
}

}  // namespace lockstep
