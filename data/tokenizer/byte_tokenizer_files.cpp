#include "data/tokenizer/byte_tokenizer_files.h"

#include "core/file.h"
#include "core/json.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

// The text of tokenizer.json around its vocabulary. The names and ids are those of ByteTokenizer.
constexpr const char* kBeforeVocabulary = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
    {"id": 256, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true}
  ],
  "normalizer": null,
  "pre_tokenizer":
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {
      "<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}
    }
  },
  "decoder":
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "model": {
    "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": )";
constexpr const char* kAfterVocabulary = R"(,
    "merges": []
  }
}
)";

constexpr const char* kConfig = R"({
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": "<|endoftext|>",
  "eos_token": "<|endoftext|>",
  "split_special_tokens": true,
  "clean_up_tokenization_spaces": false
}
)";

}  // namespace

std::string byte_tokenizer_json() {
  Json::Object vocabulary;
  for (int byte = 0; byte < ByteTokenizer::kDocumentToken; ++byte)
    vocabulary.emplace_back(byte_level_text(std::string(1, static_cast<char>(byte))), byte);
  return str(kBeforeVocabulary, Json(std::move(vocabulary)).dump(), kAfterVocabulary);
}

void write_byte_tokenizer(const std::filesystem::path& directory) {
  write_text(directory / "tokenizer.json", byte_tokenizer_json());
  write_text(directory / "tokenizer_config.json", kConfig);
}

bool is_byte_tokenizer(const std::filesystem::path& file) {
  const auto json = byte_tokenizer_json();
  const ReadFile found(file);
  return found.size_bytes() == std::ssize(json) && read_text(found, std::ssize(json)) == json;
}

}  // namespace lockstep
