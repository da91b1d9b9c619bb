#include "data/tokenizer.h"

namespace lockstep {

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text)
    tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string decode_bytes(std::span<const std::int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const auto token : tokens)
    if (0 <= token && token < kDocumentToken) text.push_back(static_cast<char>(token));
  return text;
}

}  // namespace lockstep
