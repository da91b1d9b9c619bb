// Prompts: texts that a model goes on from, read from a file and made into tokens.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/odd_input.h"
#include "data/tokenizer/tokenizer.h"
#include "model/generate.h"

namespace lockstep {

struct PromptText {
  std::string text;
  std::string where;  // for errors
};

// Of lines {"prompt": TEXT}; other members and empty lines are passed over. `what` names the file.
// `odd` counts what is accepted as mended_json_lines() does. Throws DataError naming the file and
// the line that is wrong, or where there is no prompt.
std::vector<PromptText> parse_prompts(std::string_view lines, const std::string& what,
                                      OddInput& odd);

bool holds_prompt_lines(const std::filesystem::path& file);  // NAME.jsonl
// Of NAME.jsonl as above; any other file is one prompt. Throws DataError where zero bytes end it.
std::vector<PromptText> read_prompts(const std::filesystem::path& file, OddInput& odd);

struct EncodedPrompts {
  std::vector<Prompt> prompts;  // one of each text
  Tally full;  // texts that leave no position for a token: theirs is cut, and gets none
};
// Each as the begin of a document: behind the document token, where the tokenizer has one, unless
// the text begins with its name. Each gets `tokens` to generate, or as many as the model's
// `positions` leave. Bytes without a token are dropped, and counted by `odd`. Throws UsageError
// naming a prompt that has no token, or the first where none leaves a position.
EncodedPrompts encode_prompts(std::span<const PromptText> texts, std::int64_t tokens,
                              const Tokenizer& tokenizer, std::int64_t positions, OddInput& odd);

}  // namespace lockstep
