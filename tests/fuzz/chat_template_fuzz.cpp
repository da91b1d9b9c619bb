// Any chat template is rejected, or has the assistant and only texts of its file. If a tokenizer is
// accepted for it, each marker is one special token of the tokenizer.
#include "core/json.h"
#include "data/tokenizer/chat_template.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::chat_template_fuzz {
void check_markers(const std::string& text, const Tokenizer& tokenizer) {
  for (std::size_t at = 0; (at = text.find("<|", at)) != std::string::npos; ++at) {
    const auto end = text.find("|>", at + 2);
    if (end == std::string::npos) return;
    const auto ids = tokenizer.encode(text.substr(at, end + 2 - at));
    LOCKSTEP_CHECK(ids.size() == 1 && tokenizer.is_special(ids[0]), "a marker as ", ids.size(),
                   " tokens in ", text);
    at = end + 1;
  }
}

void check(std::string_view text) {
  const auto made = ChatTemplate::parse(text, "input");
  LOCKSTEP_CHECK(made.roles.contains(kAssistant), "no assistant role");
  const auto json = Json::parse(text, "input");
  const auto& roles = json.at("roles").as_object();
  LOCKSTEP_CHECK(roles.size() == made.roles.size(), roles.size(), " roles");
  for (const auto& [role, texts] : roles)
    LOCKSTEP_CHECK(made.roles.at(role).prefix == texts.at("prefix").as_string() &&
                       made.roles.at(role).suffix == texts.at("suffix").as_string(),
                   "another text of ", role);
  static const auto tokenizer = open_tokenizer(LOCKSTEP_TOKENIZERS "/qwen3");
  made.check(*tokenizer);
  for (const auto& [role, texts] : made.roles) {
    check_markers(texts.prefix, *tokenizer);
    check_markers(texts.suffix, *tokenizer);
  }
}

Seeds seeds() {
  return {R"({"roles": {"user": {"prefix": "User: ", "suffix": "\n"},)"
          R"("assistant": {"prefix": "", "suffix": "\u00e9\n\n"}}})",
          R"({"roles": {"assistant": {"prefix": "<|im_start|>a\n", "suffix": "<|im_end|>"},)"
          R"("system": {"prefix": "<|endoftext|><|im_start|>", "suffix": "|><|"}}})"};
}

const Target target("chat_template", seeds, check);

}  // namespace lockstep::fuzz::chat_template_fuzz
