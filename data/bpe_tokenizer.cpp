#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/unicode.h"

namespace lockstep {
namespace {

using Kind = TokenizerJson::Step::Kind;

// Patterns that part text in front of a space with a letter behind it, and behind a line's end
// between what is no space and a letter, whatever else is there: no match spans such a place, and
// none of those before it looks beyond it.
constexpr std::string_view kKnownPatterns[] = {
    // GPT-2, and SmolLM 2 behind its digits
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    // Llama 3, SmolLM 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 2, 2.5 and 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

bool is_known(const TokenizerJson::Step& step) {
  return step.kind == Kind::isolate &&
         std::find(std::begin(kKnownPatterns), std::end(kKnownPatterns), step.pattern) !=
             std::end(kKnownPatterns);
}

// By which nothing is cut at such a place, and nothing put together.
bool is_of_digits(const TokenizerJson::Step& step) {
  return step.kind == Kind::isolate && (step.pattern == R"(\p{N})" || step.pattern == R"(\p{N}+)");
}

// One pattern at least parts text there; digits alone leave words whole.
bool parts_words(const std::vector<TokenizerJson::Step>& steps) {
  return std::any_of(steps.begin(), steps.end(), is_known) &&
         std::all_of(steps.begin(), steps.end(),
                     [](const auto& step) { return is_known(step) || is_of_digits(step); });
}

// Whether an added token, as it is looked for, may reach over such a place.
bool may_span_a_cut(const AddedToken& token, const std::string& content) {
  return token.lstrip || token.rstrip || content.find_first_of(" \n") != std::string::npos;
}

}  // namespace

BpeTokenizer::BpeTokenizer(const TokenizerJson& json, About about)
    : Tokenizer(std::move(about)),
      forms_(json.forms),
      bpe_(json.tokens, json.merges, json.whole_words),
      bytes_of_(static_cast<std::size_t>(json.vocabulary())),
      is_special_(bytes_of_.size()) {
  for (const auto& step : json.steps) {
    steps_.push_back({step.kind, patterns_.size()});
    if (step.kind != Kind::prefix_space) patterns_.emplace_back(step.pattern);
  }
  for (const auto& [bytes, id] : json.tokens)
    bytes_of_[static_cast<std::size_t>(id)] = bytes;
  can_cut_ = parts_words(json.steps);
  std::vector<AddedToken> plain;
  for (const auto& token : json.added) {
    const auto id = static_cast<std::size_t>(token.id);
    bytes_of_[id] = token.normalized ? with_forms(token.content) : token.content;
    is_special_[id] = token.special;
    if (may_span_a_cut(token, bytes_of_[id])) can_cut_ = false;
    has_letter_tokens_ = has_letter_tokens_ || is_letter(bytes_of_[id]);
    if (!token.special) plain.push_back(token);
  }
  added_ = added_of(json.added);
  plain_ = added_of(plain);
}

BpeTokenizer::Added BpeTokenizer::added_of(const std::vector<AddedToken>& tokens) const {
  std::vector<AddedToken> before, behind;
  for (auto token : tokens) {
    if (token.normalized) token.content = with_forms(token.content);
    (token.normalized ? behind : before).push_back(std::move(token));
  }
  return {AddedTokens(before), AddedTokens(behind)};
}

std::string BpeTokenizer::with_forms(std::string text) const {
  for (const auto form : forms_)
    text = normalized(text, form);
  return text;
}

void BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids,
                          Memory& memory) const {
  encode_with(added_, text, ids, memory);
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                                Memory& memory) const {
  encode_with(plain_, text, ids, memory);
}

void BpeTokenizer::encode_with(const Added& added, std::string_view text,
                               std::vector<std::int32_t>& ids, Memory& memory) const {
  std::string replaced;
  if (valid_utf8(text) != text.size()) {
    replaced = replaced_utf8(text);
    text = replaced;
  }
  const auto words = [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr)
      ids.push_back(token->id);
    else if (memory.missing_bytes == MissingBytes::replace && !missing_bytes().empty())
      encode_part(with_replacements(part, memory), 0, ids, memory);
    else
      encode_part(part, 0, ids, memory);
  };
  added.before_forms.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr)
      ids.push_back(token->id);
    else if (forms_.empty())
      added.behind_forms.split(part, words);
    else
      added.behind_forms.split(with_forms(std::string(part)), words);
  });
}

// U+FFFD in place of each character with a byte that has no token.
std::string BpeTokenizer::with_replacements(std::string_view text, Memory& memory) const {
  std::string kept;
  while (!text.empty()) {
    const auto character = text.substr(0, std::max<std::size_t>(utf8_at(text).bytes, 1));
    const bool is_missing = character.find_first_of(missing_bytes()) != character.npos;
    if (is_missing) ++memory.missing;
    kept += is_missing ? kReplacement : character;
    text.remove_prefix(character.size());
  }
  return kept;
}

void BpeTokenizer::encode_part(std::string_view text, std::size_t step,
                               std::vector<std::int32_t>& ids, Memory& memory) const {
  if (step == steps_.size()) return bpe_.encode(text, ids, memory);
  const auto kind = steps_[step].kind;
  if (kind == Kind::prefix_space) {
    if (text.starts_with(' ')) return encode_part(text, step + 1, ids, memory);
    return encode_part(str(' ', text), step + 1, ids, memory);
  }
  patterns_[steps_[step].pattern].split(text, [&](std::string_view part, bool matches) {
    if (kind == Kind::isolate || matches == (kind == Kind::keep_matches))
      encode_part(part, step + 1, ids, memory);
  });
}

std::size_t BpeTokenizer::last_cut(std::string_view text) const {
  if (!can_cut_) return 0;
  for (std::size_t i = text.size(); i-- > 1;) {
    const char before = text[i - 1];
    if ((before != ' ' && before != '\n') || !is_letter(text.substr(i))) continue;
    if (i == 1) break;
    const bool behind_space = is_space(last_character(text.substr(0, i - 1)));
    // In front of an added token all spaces are one word, elsewhere the last one is the word's.
    if (before == ' ' && !(behind_space && has_letter_tokens_)) return i - 1;
    if (before == '\n' && !behind_space) return i;
  }
  return 0;
}

std::string_view BpeTokenizer::bytes_of(std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return id < 0 || at >= bytes_of_.size() ? std::string_view{} : bytes_of_[at];
}

bool BpeTokenizer::is_special(std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return id >= 0 && at < is_special_.size() && is_special_[at];
}

}  // namespace lockstep
