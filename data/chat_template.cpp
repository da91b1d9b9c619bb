#include "data/chat_template.h"

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = 1 << 20;

ChatTemplate of_markers(const std::string& name, const std::string& before_role,
                        const std::string& behind_role, const std::string& suffix) {
  ChatTemplate made{name, {}};
  for (const char* role : {"system", "user", kAssistant, "tool"})
    made.roles[role] = {str(before_role, role, behind_role), suffix};
  return made;
}

void check_markers(const std::string& name, std::string_view text, const Tokenizer& tokenizer) {
  for (std::size_t at = 0; (at = text.find("<|", at)) != std::string_view::npos;) {
    const auto end = text.find("|>", at + 2);
    if (end == std::string_view::npos) return;
    const auto marker = text.substr(at, end + 2 - at);
    const auto ids = tokenizer.encode(marker);
    if (ids.size() != 1 || !tokenizer.is_special(ids[0]))
      throw DataError(str("the chat template ", name, " needs the special token ", marker,
                          ", which the tokenizer ", tokenizer.about().name, " does not have"));
    at = end + 2;
  }
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, 4);
  return in_context(
      [&] {
        ChatTemplate made{where, {}};
        for (const auto& [role, texts] : json.at("roles").as_object())
          made.roles[role] = {text_at(texts, "prefix"), text_at(texts, "suffix")};
        if (!made.roles.contains(kAssistant))
          throw DataError(str("\"roles\" has no \"", kAssistant, "\", who is to be learnt from"));
        return made;
      },
      where);
}

void ChatTemplate::check(const Tokenizer& tokenizer) const {
  for (const auto& [role, texts] : roles) {
    check_markers(name, texts.prefix, tokenizer);
    check_markers(name, texts.suffix, tokenizer);
  }
}

ChatTemplate chat_template(const std::string& what) {
  if (what == "chatml") return of_markers(what, "<|im_start|>", "\n", "<|im_end|>\n");
  if (what == "llama3")
    return of_markers(what, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>");
  if (!path_exists(what))
    throw DataError(str(what, ": no such chat template; expected chatml, llama3, or a file"));
  return ChatTemplate::parse(read_text(what, kMostBytes), what);
}

}  // namespace lockstep
