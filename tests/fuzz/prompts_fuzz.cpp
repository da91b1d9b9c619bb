// Any file of prompts is refused, or holds prompts that stand in rising lines and become tokens
// that leave room.
#include "tests/fuzz/fuzz.h"
#include "train/prompts.h"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  return {
      "{\"prompt\":\"The sky is "
      "\"}\n\n{\"id\":7,\"prompt\":\"\\u00e4\\n\"}\r\n{\"prompt\":\"\\ud800\","
      "\"x\":NaN}"};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  constexpr std::int64_t kPositions = 13, kTokens = 4;
  return fuzz::check_text(
      [](std::string_view text) {
        OddInput odd;
        const auto texts = parse_prompts(text, "input", odd);
        LOCKSTEP_CHECK(!texts.empty(), "no prompt");
        std::int64_t line = 0;
        for (const auto& [prompt, where] : texts) {
          const auto here = std::stoll(where.substr(where.rfind(' ')));
          LOCKSTEP_CHECK(here > line, "line ", here, " behind line ", line);
          line = here;
        }
        const ByteTokenizer tokenizer;
        std::vector<Prompt> prompts;
        try {
          prompts = encode_prompts(texts, kTokens, tokenizer, kPositions, odd).prompts;
        } catch (const UsageError&) {  // none leaves room
          return;
        }
        for (std::size_t i = 0; i < prompts.size(); ++i) {
          const auto& [ids, tokens, number] = prompts[i];
          LOCKSTEP_CHECK(number == i && std::ssize(ids) + tokens <= kPositions && tokens <= kTokens,
                         "prompt ", i, ": ", ids.size(), " + ", tokens, " tokens");
          LOCKSTEP_CHECK(ids.front() == tokenizer.about().document_token, "no start");
          if (tokens == 0) continue;
          LOCKSTEP_CHECK(tokenizer.decode(std::span(ids).subspan(1)) == texts[i].text,
                         "other text");
        }
      },
      data, size);
}
