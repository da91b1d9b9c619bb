#include "data/tokenizer/normalizers.h"

#include "core/error.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {

using Normalizing = BpeDefinition::Normalizer::Kind;

Normalizers::Normalizers(const std::vector<BpeDefinition::Normalizer>& all, const char* member)
    : member_(member) {
  in_context(
      [&] {
        for (const auto& what : all) {
          auto& pattern = all_.emplace_back(One{what, std::nullopt}).pattern;
          if (what.kind != Normalizing::replace) continue;
          pattern.emplace(what.pattern);
          if (pattern->may_match_nothing())
            throw DataError(
                str("Replace: the pattern ", what.pattern,
                    " may match nothing; expected one that matches at least one character"));
        }
      },
      member);
}

std::string Normalizers::apply(std::string text, Bpe::Place place) const {
  const auto most = most_bytes_of(text.size());
  const bool is_behind_text = place == Bpe::Place::behind_text;
  for (const auto& [what, pattern] : all_) {
    if (what.kind == Normalizing::form)
      text = normalized(text, what.form);
    else if (what.kind == Normalizing::replace && is_behind_text &&
             what.pattern.starts_with(R"(\A)"))
      continue;  // the text does not start here
    else if (what.kind == Normalizing::replace)
      text = in_context([&] { return replaced(text, *pattern, what.content, most); }, member_);
    else if (!is_behind_text && !text.empty())
      text.insert(0, what.content);
  }
  return text;
}

std::string replaced(std::string_view text, const SplitPattern& pattern, std::string_view content,
                     std::size_t most) {
  std::string out;
  pattern.split(text, [&](std::string_view part, bool matches) {
    out += matches ? content : part;
    if (out.size() > most)
      throw DataError(str("Replace makes a text longer than ", most, " bytes; expected at most 64 ",
                          "times its length"));
  });
  return out;
}

}  // namespace lockstep
