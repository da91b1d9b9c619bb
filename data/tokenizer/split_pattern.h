// SplitPattern is a regular expression that splits text into words. It has the syntax of Oniguruma,
// as in `tokenizers` of Hugging Face, and runs in PCRE2 with its just-in-time compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace lockstep {

class SplitPattern {
 public:
  // Throws DataError naming the place for an invalid expression, or one that PCRE2 would read
  // differently (data/tokenizer/oniguruma.h).
  explicit SplitPattern(const std::string& pattern);
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  bool may_match_nothing() const;

  // Calls visit(part, matches) for all parts of `text`, which is valid UTF-8, in order: the matches
  // and the text between them. From any thread.
  void split(std::string_view text, FunctionRef<void(std::string_view, bool)> visit) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace lockstep
