#include "train/infer/prompts.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostPromptsBytes = std::int64_t{1} << 30;

}  // namespace

std::vector<PromptText> parse_prompts(std::string_view lines, const std::string& what,
                                      InputDefects& odd) {
  std::vector<PromptText> prompts;
  for_each_json_line(mended_json_lines(lines, what, odd), what,
                     [&](const Json& json, std::int64_t line) {
                       prompts.push_back({text_at(json, "prompt"), str(what, ": line ", line)});
                     });
  if (prompts.empty()) throw DataError(str(what, ": holds no prompt"));
  return prompts;
}

bool holds_prompt_lines(const std::filesystem::path& file) {
  return file.extension() == ".jsonl";
}

std::vector<PromptText> read_prompts(const std::filesystem::path& file, InputDefects& odd) {
  auto text = read_text(file, kMostPromptsBytes);
  if (holds_prompt_lines(file)) return parse_prompts(text, file.string(), odd);
  refuse_zeros_at_end(file.string(), std::ssize(text), count_zeros_at_end(text));
  return {{std::move(text), file.string()}};
}

EncodedPrompts encode_prompts(std::span<const PromptText> texts, std::int64_t tokens,
                              const Tokenizer& tokenizer, std::int64_t positions,
                              InputDefects& odd) {
  EncodedPrompts encoded;
  std::size_t longest = 0;  // tokens of the first prompt that leaves no position
  Tokenizer::Memory memory(MissingBytes::drop);
  const auto document = tokenizer.about().document_token;
  for (const PromptText& one : texts) {
    Prompt prompt{.ids = {}, .number = encoded.prompts.size()};
    auto& ids = prompt.ids;
    in_context([&] { tokenizer.encode(one.text, ids, memory); }, one.where);
    odd.bytes.note(one.where, std::exchange(memory.missing, 0));
    if (dynamic_cast<const ByteTokenizer*>(&tokenizer) == nullptr)
      note_invalid(one.text, odd.text,
                   [&](std::size_t byte) { return str(one.where, ": byte ", byte); });
    if (document >= 0 && (ids.empty() || ids.front() != document))
      ids.insert(ids.begin(), document);
    if (ids.empty())
      throw UsageError(str(one.where, ": the prompt is empty, and the tokenizer ",
                           tokenizer.about().name,
                           " has no token that starts documents; write some text"));
    const auto room = std::max<std::int64_t>(positions - std::ssize(ids), 0);
    if (room == 0) {
      if (encoded.full.count == 0) longest = ids.size();
      encoded.full.note(one.where);
      ids.resize(1);  // so that the model computes nothing more for it
    }
    prompt.tokens = std::min(tokens, room);
    encoded.prompts.push_back(std::move(prompt));
  }
  if (encoded.full.count == std::ssize(texts))
    throw UsageError(str(encoded.full.first, ": the prompt has ", longest,
                         " tokens, but the model ", "has ", positions,
                         " positions, so none is left to generate; shorten the prompt"));
  return encoded;
}

}  // namespace lockstep
