#include "train/interop/gguf_tokenizer.h"

#include <algorithm>
#include <unordered_set>

#include "core/file.h"
#include "data/tokenizer/byte_tokenizer_files.h"
#include "data/tokenizer/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/word_patterns.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostTokenizerBytes = std::int64_t{1} << 30;

// Kinds of tokens, as numbers in the file.
constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

BpeDefinition definition_of(const std::string& what) {
  if (what == "bytes") return parse_tokenizer(byte_tokenizer_json(), what);
  const auto file = tokenizer_file(what);
  return parse_tokenizer(read_text(file, kMostTokenizerBytes), file.string());
}

// The names of llama.cpp for patterns of words (tokenizer.ggml.pre), as src/llama-vocab.cpp of
// llama.cpp reads them. The pattern of a name ignores merges of whole words, or does not.
struct Pre {
  const char* name;
  std::vector<std::string_view> patterns;
  bool whole_words;
};

std::string pre_of(const BpeDefinition& tokenizer) {
  static const Pre kNames[] = {{"gpt-2", {kGpt2Words}, false},
                               {"llama-bpe", {kLlama3Words}, true},
                               {"smaug-bpe", {kLlama3Words}, false},
                               {"qwen2", {kQwenWords}, false},
                               {"smollm", {R"(\p{N})", kGpt2Words}, false}};
  if (tokenizer.merges.empty() && tokenizer.steps.empty()) return "gpt-2";  // words are bytes
  for (const auto& pre : kNames)
    if (tokenizer.whole_words == pre.whole_words &&
        std::ranges::equal(tokenizer.steps, pre.patterns, [](const auto& step, auto pattern) {
          return step.kind == BpeDefinition::Step::Kind::isolate && step.pattern == pattern;
        }))
      return pre.name;
  throw DataError(
      "the tokenizer splits text by a pattern that llama.cpp has no name for; expected that of "
      "GPT-2, Llama 3, Qwen or SmolLM 2. Export to a Hugging Face directory instead");
}

// llama.cpp applies no normal form. Its own converter accepts NFC, which most texts have.
void check(const BpeDefinition& tokenizer) {
  if (!tokenizer.byte_tokens.empty())
    throw DataError(
        "the tokenizer is not byte-level (it has the tokens <0x00> to <0xFF>); a GGUF file is "
        "written for byte-level tokenizers only. Export to a Hugging Face directory instead");
  using Normalizer = BpeDefinition::Normalizer;
  for (const auto& normalizer : tokenizer.normalizers)
    if (normalizer.kind != Normalizer::Kind::form || normalizer.form != NormalForm::nfc)
      throw DataError(
          "the tokenizer has a normalizer that llama.cpp does not apply; expected none or NFC. "
          "Export to a Hugging Face directory instead");
  for (const auto& token : tokenizer.added)
    if (token.single_word || token.lstrip || token.rstrip)
      throw DataError(str("the added token ", token.content,
                          " has single_word, lstrip or rstrip, which llama.cpp does not support. "
                          "Export to a Hugging Face directory instead"));
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> kinds;
};

Tokens tokens_of(const BpeDefinition& tokenizer, std::int64_t vocabulary) {
  const auto count = static_cast<std::size_t>(vocabulary);
  Tokens tokens{std::vector<std::string>(count), std::vector<std::int32_t>(count, kUnused)};
  const auto set = [&](std::int32_t id, std::string text, std::int32_t kind) {
    tokens.texts.at(static_cast<std::size_t>(id)) = std::move(text);
    tokens.kinds.at(static_cast<std::size_t>(id)) = kind;
  };
  for (const auto& [bytes, id] : tokenizer.tokens)
    set(id, byte_level_text(bytes), kNormal);
  for (const auto& token : tokenizer.added)
    set(token.id, token.content, token.special ? kControl : kUserDefined);
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < count; ++id) {
    auto& text = tokens.texts[id];
    if (tokens.kinds[id] == kUnused) text = str("[PAD", id, "]");
    if (!seen.insert(text).second)
      throw DataError(str("two tokens are written ", text, ", which llama.cpp cannot tell apart"));
  }
  return tokens;
}

std::vector<std::string> merges_of(const BpeDefinition& tokenizer,
                                   const std::vector<std::string>& texts) {
  auto merges = tokenizer.merges;
  std::ranges::sort(merges, {}, &Bpe::Merge::rank);
  std::vector<std::string> written;
  for (const auto& merge : merges)
    written.push_back(str(texts[static_cast<std::size_t>(merge.left)], ' ',
                          texts[static_cast<std::size_t>(merge.right)]));
  return written;
}

void add_special_tokens(GgufMetadata& metadata, const std::string& what, const Tokenizer& tokenizer,
                        const TokenIds& ids) {
  const auto& about = tokenizer.about();
  const bool starts = starts_documents(what, tokenizer);
  const auto first = [](const Json& value) -> std::int64_t {
    if (value.is_integer()) return value.as_integer();
    return value.is_array() && !value.as_array().empty() ? value.as_array().front().as_integer()
                                                         : -1;
  };
  const auto begin =
      starts || ids.bos.is_null() ? std::int64_t{about.document_token} : first(ids.bos);
  const auto end = ids.eos.is_null() ? std::int64_t{about.end_token} : first(ids.eos);
  if (end < 0)  // llama.cpp would take the token 11
    throw DataError(
        "the tokenizer has no token that ends a text; name an eos_token in its "
        "tokenizer_config.json");
  metadata.set("tokenizer.ggml.bos_token_id", begin < 0 ? end : begin);
  metadata.set("tokenizer.ggml.eos_token_id", end);
  if (const auto padding = first(ids.pad); padding >= 0)
    metadata.set("tokenizer.ggml.padding_token_id", padding);
  metadata.set("tokenizer.ggml.add_bos_token", starts && begin >= 0);
}

}  // namespace

void add_gguf_tokenizer(GgufMetadata& metadata, const std::string& what, const TokenIds& ids,
                        std::int64_t vocabulary) {
  in_context(
      [&] {
        const auto definition = definition_of(what);
        check(definition);
        const auto tokens = tokens_of(definition, vocabulary);
        metadata.set("tokenizer.ggml.model", "gpt2");
        metadata.set("tokenizer.ggml.pre", pre_of(definition));
        metadata.set("tokenizer.ggml.tokens", tokens.texts);
        metadata.set("tokenizer.ggml.token_type", tokens.kinds);
        metadata.set("tokenizer.ggml.merges", merges_of(definition, tokens.texts));
        add_special_tokens(metadata, what, *open_tokenizer(what), ids);
        if (what == "bytes") return;
        if (const auto found = model_template(tokenizer_file(what).parent_path()))
          metadata.set("tokenizer.chat_template", found->text);
      },
      what);
}

}  // namespace lockstep
