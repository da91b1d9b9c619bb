// Prompts: texts that a model continues. They are read from a file and encoded as tokens.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/input_defects.h"
#include "data/tokenizer/tokenizer.h"
#include "model/generate.h"

namespace lockstep {

struct PromptText {
  std::string text;
  std::string where;  // place of the text, for errors
};

// Parses lines {"prompt": TEXT}. Other members and empty lines are ignored. `what` names the file.
// `odd` counts accepted irregularities, see mended_json_lines(). Throws DataError naming the file
// and a wrong line, or if there is no prompt.
std::vector<PromptText> parse_prompts(std::string_view lines, const std::string& what,
                                      InputDefects& odd);

bool holds_prompt_lines(const std::filesystem::path& file);  // whether it is NAME.jsonl
// Reads NAME.jsonl as above; any other file is one prompt. Throws DataError if such a file ends in
// zero bytes.
std::vector<PromptText> read_prompts(const std::filesystem::path& file, InputDefects& odd);

struct EncodedPrompts {
  std::vector<Prompt> prompts;  // one for each text
  Tally full;  // texts that leave no position to generate; their prompts are cut and generate none
};
// Encodes each text as the beginning of a document: after the document token, if the tokenizer has
// one, unless the text begins with it. Each prompt generates `tokens` tokens, or as many as the
// model's `positions` leave. Bytes without a token are dropped and counted in `odd`. Throws
// UsageError naming a prompt without any token, or the first prompt if none leaves a position.
EncodedPrompts encode_prompts(std::span<const PromptText> texts, std::int64_t tokens,
                              const Tokenizer& tokenizer, std::int64_t positions,
                              InputDefects& odd);

}  // namespace lockstep
