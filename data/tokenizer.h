// Tokenizer `bytes`: ids 0 to 255 are bytes, 256 starts a document. Nothing is lost: any file,
// valid UTF-8 or not, is its own tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The definition whose hash stands for this tokenizer in datasets.
inline constexpr std::string_view kByteTokenizer =
    "bytes: ids 0 to 255 are bytes, 256 starts a document";

inline constexpr std::int32_t kDocumentToken = 256;
inline constexpr std::int32_t kByteVocabulary = 257;

std::vector<std::int32_t> encode_bytes(std::string_view text);   // without kDocumentToken
std::string decode_bytes(std::span<const std::int32_t> tokens);  // leaves out what is no byte

}  // namespace lockstep
