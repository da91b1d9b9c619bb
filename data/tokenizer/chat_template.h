// ChatTemplate has the texts before and after the message of each role. It has only markers per
// role and no template language; it does not read the Jinja templates of Hugging Face.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace lockstep {

struct ChatTemplate {
  struct Role {
    std::string prefix, suffix;
  };
  std::string name;
  std::map<std::string, Role, std::less<>> roles;
  bool trims = false;  // true: white space around messages is removed

  // Throws DataError naming `where` unless `text` has the form
  //   {"roles": {"user": {"prefix": "User: ", "suffix": "\n"}, "assistant": ...}}
  static ChatTemplate parse(std::string_view text, const std::string& where);

  // Throws DataError if a text contains <|NAME|> and the tokenizer has no special token of that
  // name, because it would be encoded as letters.
  void check(const Tokenizer& tokenizer) const;
};

// Returns the message as it appears in the text. If the template trims, white space is removed at
// both ends, as defined by str.strip() of Python and `trim` of Jinja.
std::string_view content_of(const ChatTemplate& chat_template, std::string_view content);

// Returns "chatml", "llama3" (which trims as Meta's template does), or the template in a file.
// Throws DataError naming the problem.
ChatTemplate chat_template(const std::string& what);

// Appends the tokens of a part of a conversation or an example, which begins after `ids`. Parts are
// encoded separately, so no token spans two. trusted: names of special tokens become these tokens.
void encode_part(const Tokenizer& tokenizer, std::string_view text, bool trusted,
                 std::vector<std::int32_t>& ids, Tokenizer::Memory& memory);

// The Jinja template that comes with a model, and its file.
struct ModelTemplate {
  std::string text;
  std::filesystem::path path;
};
// Finds it in a directory: chat_template.jinja, chat_template.json or tokenizer_config.json. Throws
// DataError for an invalid file.
std::optional<ModelTemplate> model_template(const std::filesystem::path& directory);
// Returns the chat_template() whose markers a Jinja template has; empty if it has none.
std::string recognised_template(std::string_view jinja);

inline constexpr const char* kAssistant = "assistant";  // the role that is trained on

}  // namespace lockstep
