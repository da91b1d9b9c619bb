#include "data/tokenizer/chat_template.h"

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostTemplateBytes = 1 << 20;
constexpr std::int64_t kMostConfigBytes = std::int64_t{256} << 20;  // of a tokenizer_config.json
constexpr int kConfigDepth = 16;

ChatTemplate of_markers(const std::string& name, const std::string& before_role,
                        const std::string& behind_role, const std::string& suffix) {
  ChatTemplate made{.name = name, .roles = {}};
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

// Returns the number of bytes of white space at the start of a text, or at its end.
std::size_t space_at(std::string_view text, bool end) {
  using namespace std::string_view_literals;
  static constexpr std::string_view kSpaces[] = {
      "\t"sv,     "\n"sv,     "\v"sv,     "\f"sv,     "\r"sv,     "\x1c"sv,
      "\x1d"sv,   "\x1e"sv,   "\x1f"sv,   " "sv,      "\u0085"sv, "\u00a0"sv,
      "\u1680"sv, "\u2000"sv, "\u2001"sv, "\u2002"sv, "\u2003"sv, "\u2004"sv,
      "\u2005"sv, "\u2006"sv, "\u2007"sv, "\u2008"sv, "\u2009"sv, "\u200a"sv,
      "\u2028"sv, "\u2029"sv, "\u202f"sv, "\u205f"sv, "\u3000"sv};
  for (const auto space : kSpaces)
    if (end ? text.ends_with(space) : text.starts_with(space)) return space.size();
  return 0;
}

}  // namespace

std::string_view content_of(const ChatTemplate& chat_template, std::string_view content) {
  if (!chat_template.trims) return content;
  while (const auto bytes = space_at(content, false))
    content.remove_prefix(bytes);
  while (const auto bytes = space_at(content, true))
    content.remove_suffix(bytes);
  return content;
}

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, 4);
  return in_context(
      [&] {
        ChatTemplate made{.name = where, .roles = {}};
        for (const auto& [role, texts] : json.at("roles").as_object())
          made.roles[role] = {text_at(texts, "prefix"), text_at(texts, "suffix")};
        if (!made.roles.contains(kAssistant))
          throw DataError(
              str("\"roles\" has no \"", kAssistant, "\", the role that is trained on"));
        return made;
      },
      where);
}

void ChatTemplate::check(const Tokenizer& tokenizer) const {
  for (const auto& [role, texts] : roles)
    for (const auto& text : {texts.prefix, texts.suffix}) {
      check_markers(name, text, tokenizer);
      in_context([&] { tokenizer.encode(text); }, "the chat template ", name, ": \"", role, '"');
    }
}

ChatTemplate chat_template(const std::string& what) {
  if (what == "chatml") return of_markers(what, "<|im_start|>", "\n", "<|im_end|>\n");
  if (what == "llama3") {
    auto made = of_markers(what, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>");
    made.trims = true;
    return made;
  }
  if (!path_exists(what))
    throw DataError(str(what, ": no such chat template; expected chatml, llama3, or a file"));
  return ChatTemplate::parse(read_text(what, kMostTemplateBytes), what);
}

void encode_part(const Tokenizer& tokenizer, std::string_view text, bool trusted,
                 std::vector<std::int32_t>& ids, Tokenizer::Memory& memory) {
  const auto document = tokenizer.about().document_token;
  const bool is_first = ids.empty() || (ids.size() == 1 && ids.front() == document);
  memory.place = is_first                           ? Bpe::Place::front
                 : tokenizer.is_special(ids.back()) ? Bpe::Place::behind_token
                                                    : Bpe::Place::behind_text;
  if (trusted)
    tokenizer.encode(text, ids, memory);
  else
    tokenizer.encode_plain(text, ids, memory);
}

std::optional<ModelTemplate> model_template(const std::filesystem::path& directory) {
  if (const auto path = directory / "chat_template.jinja"; path_exists(path))
    return ModelTemplate{read_text(path, kMostTemplateBytes), path};
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const auto path = directory / name;
    if (!path_exists(path)) continue;
    const Json json = Json::parse(read_text(path, kMostConfigBytes), path.string(), kConfigDepth);
    const Json* text = json.is_object() ? json.find("chat_template") : nullptr;
    if (text != nullptr && text->is_string()) return ModelTemplate{text->as_string(), path};
    if (text == nullptr || !text->is_array()) continue;
    for (const Json& one : text->as_array())  // [{"name": "default", "template": TEXT}, ...]
      if (one.is_object() && text_at(one, "name") == "default")
        return ModelTemplate{text_at(one, "template"), path};
  }
  return std::nullopt;
}

std::string recognised_template(std::string_view jinja) {
  const auto has = [&](std::string_view marker) {
    return jinja.find(marker) != std::string_view::npos;
  };
  if (has("<|im_start|>") && has("<|im_end|>")) return "chatml";
  if (has("<|start_header_id|>") && has("<|eot_id|>")) return "llama3";
  return {};
}

}  // namespace lockstep
