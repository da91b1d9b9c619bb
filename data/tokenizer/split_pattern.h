// SplitPattern: a regular expression by which a tokenizer cuts text into words, as Hugging Face's
// `tokenizers` reads it (Oniguruma), by PCRE2 with its just-in-time compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace lockstep {

class SplitPattern {
 public:
  // Throws DataError, naming the place, where it is no regular expression, or one that PCRE2 would
  // read otherwise (data/tokenizer/oniguruma.h).
  explicit SplitPattern(const std::string& pattern);
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  bool may_match_nothing() const;

  // Calls visit(part, matches) of all parts of `text`, which is valid UTF-8, in their order: what
  // the pattern matches, and what is between. From any thread.
  void split(std::string_view text, FunctionRef<void(std::string_view, bool)> visit) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace lockstep
