// Any file of prompts is rejected, or has prompts in rising lines, whose tokens leave free
// positions.
#include "tests/fuzz/fuzz.h"
#include "train/infer/prompts.h"

namespace lockstep::fuzz::prompts_fuzz {

Seeds seeds() {
  return {
      "{\"prompt\":\"The sky is "
      "\"}\n\n{\"id\":7,\"prompt\":\"\\u00e4\\n\"}\r\n{\"prompt\":\"\\ud800\","
      "\"x\":NaN}"};
}

void check(std::string_view text) {
  constexpr std::int64_t kPositions = 13, kTokens = 4;
  InputDefects odd;
  const auto texts = parse_prompts(text, "input", odd);
  LOCKSTEP_CHECK(!texts.empty(), "no prompt");
  std::int64_t line = 0;
  for (const auto& [prompt, where] : texts) {
    const auto here = std::stoll(where.substr(where.rfind(' ')));
    LOCKSTEP_CHECK(here > line, "line ", here, " after line ", line);
    line = here;
  }
  const ByteTokenizer tokenizer;
  std::vector<Prompt> prompts;
  try {
    prompts = encode_prompts(texts, kTokens, tokenizer, kPositions, odd).prompts;
  } catch (const UsageError&) {  // no prompt leaves free positions
    return;
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& [ids, tokens, number] = prompts[i];
    LOCKSTEP_CHECK(number == i && std::ssize(ids) + tokens <= kPositions && tokens <= kTokens,
                   "prompt ", i, ": ", ids.size(), " + ", tokens, " tokens");
    LOCKSTEP_CHECK(ids.front() == tokenizer.about().document_token, "no start");
    if (tokens == 0) continue;
    LOCKSTEP_CHECK(tokenizer.decode(std::span(ids).subspan(1)) == texts[i].text, "other text");
  }
}

const Target target("prompts", seeds, check);

}  // namespace lockstep::fuzz::prompts_fuzz
