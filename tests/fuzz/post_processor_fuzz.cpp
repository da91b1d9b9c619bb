// Any post-processor of a tokenizer.json is rejected, or decides whether the document token starts
// a text. If the file has no such token, no text starts with it.
#include "tests/fuzz/fuzz.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep::fuzz::post_processor_fuzz {

Seeds seeds() {
  return {R"({"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},)"
          R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id":)"
          R"("<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}]}})",
          R"({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence":)"
          R"({"id": "A"}}, {"SpecialToken": {"id": "<|endoftext|>"}}], "pair": []}})",
          R"({"post_processor": null, "model": {"type": "BPE"}})"};
}

void check(std::string_view text) {
  static const MemoryFile file;
  static const auto tokenizer = open_tokenizer(LOCKSTEP_TOKENIZERS "/gpt2");
  file.set(text);
  const bool is_there = text.find("SpecialToken") != std::string_view::npos ||
                        text.find('\\') != std::string_view::npos;
  LOCKSTEP_CHECK(!starts_documents(file.path().string(), *tokenizer) || is_there,
                 "a first token without a name");
}

const Target target("post_processor", seeds, check);

}  // namespace lockstep::fuzz::post_processor_fuzz
