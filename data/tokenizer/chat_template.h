// ChatTemplate: the texts that stand before and behind what each role says. Markers of one role
// after the other, without a language: not the Jinja templates of Hugging Face.
#pragma once

#include <map>
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
  bool trims = false;  // white space around what is said is left out

  // Throws DataError naming `where` for what is not
  //   {"roles": {"user": {"prefix": "User: ", "suffix": "\n"}, "assistant": ...}}
  static ChatTemplate parse(std::string_view text, const std::string& where);

  // Throws DataError where a text holds <|NAME|>, and the tokenizer no special token of that name:
  // it would become the letters of it.
  void check(const Tokenizer& tokenizer) const;
};

// What is said, as it stands in the text: of a template that trims without white space at both
// ends, by what Python's str.strip(), and so Jinja's `trim`, takes for such.
std::string_view content_of(const ChatTemplate& chat_template, std::string_view content);

// "chatml" and "llama3", which trims as Meta's own does, or a file. Throws DataError naming what is
// wrong.
ChatTemplate chat_template(const std::string& what);

inline constexpr const char* kAssistant = "assistant";  // who is to be learnt from

}  // namespace lockstep
