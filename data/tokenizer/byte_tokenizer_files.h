// The tokenizer `bytes` as files of Hugging Face, for exports: byte-level BPE without merges, whose
// ids of single bytes are the bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// tokenizer.json. The document token is <|endoftext|>. In `transformers` it precedes a text, as in
// training.
std::string byte_tokenizer_json();

// Writes it and a tokenizer_config.json: the document token begins and ends texts, and its name in
// a text is plain text.
void write_byte_tokenizer(const std::filesystem::path& directory);
// Whether a tokenizer file is byte_tokenizer_json(), so that the tokenizer is `bytes`.
bool is_byte_tokenizer(const std::filesystem::path& file);

}  // namespace lockstep
