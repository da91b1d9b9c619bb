// ChatTemplate: the texts that stand before and behind what each role says. Markers of one role
// after the other, without a language: not the Jinja templates of Hugging Face.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace lockstep {

struct ChatTemplate {
  struct Role {
    std::string prefix, suffix;
  };
  std::string name;
  std::map<std::string, Role, std::less<>> roles;

  // Throws DataError naming `where` for what is not
  //   {"roles": {"user": {"prefix": "User: ", "suffix": "\n"}, "assistant": ...}}
  static ChatTemplate parse(std::string_view text, const std::string& where);

  // Throws DataError where a text holds <|NAME|>, and the tokenizer no special token of that name:
  // it would become the letters of it.
  void check(const Tokenizer& tokenizer) const;
};

// "chatml" and "llama3", or a file. Throws DataError naming what is wrong.
ChatTemplate chat_template(const std::string& what);

inline constexpr const char* kAssistant = "assistant";  // who is to be learnt from

}  // namespace lockstep
