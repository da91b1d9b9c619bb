#include "train/prompts.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

}  // namespace

std::vector<PromptText> parse_prompts(std::string_view lines, const std::string& what) {
  std::vector<PromptText> prompts;
  for_each_json_line(lines, what, [&](const Json& json, std::int64_t line) {
    prompts.push_back({text_at(json, "prompt"), str(what, ": line ", line)});
  });
  if (prompts.empty()) throw DataError(str(what, ": holds no prompt"));
  return prompts;
}

bool holds_prompt_lines(const std::filesystem::path& file) {
  return file.extension() == ".jsonl";
}

std::vector<PromptText> read_prompts(const std::filesystem::path& file) {
  auto text = read_text(file, kMostBytes);
  if (holds_prompt_lines(file)) return parse_prompts(text, file.string());
  return {{std::move(text), file.string()}};
}

std::vector<Prompt> encode_prompts(std::span<const PromptText> texts, std::int64_t tokens,
                                   const Tokenizer& tokenizer, std::int64_t positions) {
  std::vector<Prompt> prompts;
  const auto document = tokenizer.about().document_token;
  for (const PromptText& one : texts) {
    Prompt prompt{.ids = in_context([&] { return tokenizer.encode(one.text); }, one.where),
                  .number = prompts.size()};
    auto& ids = prompt.ids;
    if (document >= 0 && (ids.empty() || ids.front() != document))
      ids.insert(ids.begin(), document);
    if (ids.empty())
      throw UsageError(str(one.where, ": the prompt is empty, and the tokenizer ",
                           tokenizer.about().name,
                           " has no token that starts documents; write some text"));
    const auto room = positions - std::ssize(ids);
    if (room < 0)
      throw UsageError(str(one.where, ": the prompt is ", ids.size(),
                           " tokens, but the model has positions for ", positions, "; shorten it"));
    prompt.tokens = std::min(tokens, room);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace lockstep
