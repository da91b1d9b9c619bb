// Prompts: texts that a model goes on from, read from a file and made into tokens.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "train/generate.h"

namespace lockstep {

struct PromptText {
  std::string text;
  std::string where;  // for errors
};

// Of lines {"prompt": TEXT}; other members and empty lines are passed over. `what` names the file.
// Throws DataError naming it and the line that is wrong, or where there is no prompt.
std::vector<PromptText> parse_prompts(std::string_view lines, const std::string& what);

bool holds_prompt_lines(const std::filesystem::path& file);  // NAME.jsonl
// Of NAME.jsonl as above; any other file is one prompt.
std::vector<PromptText> read_prompts(const std::filesystem::path& file);

// Each as the begin of a document: behind the document token, where the tokenizer has one, unless
// the text begins with its name. Each gets `tokens` to generate, or as many as the model's
// `positions` leave. Throws UsageError naming a prompt that has no token, or more than positions.
std::vector<Prompt> encode_prompts(std::span<const PromptText> texts, std::int64_t tokens,
                                   const Tokenizer& tokenizer, std::int64_t positions);

}  // namespace lockstep
