#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_patterns.h"

namespace lockstep {
namespace {

using Normalizer = BpeDefinition::Normalizer;
using Step = BpeDefinition::Step;
using Kind = Step::Kind;

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, which represents a space

// Patterns that always split text at two kinds of places:
// - before a space that precedes a letter
// - after a line end that is between a character other than a space and a letter
// No match spans such a place, and no earlier match looks beyond it.
constexpr std::string_view kKnownPatterns[] = {kGpt2Words, kLlama3Words, kQwenWords};

bool is_known(const Step& step) {
  return step.kind == Kind::isolate &&
         std::find(std::begin(kKnownPatterns), std::end(kKnownPatterns), step.pattern) !=
             std::end(kKnownPatterns);
}

// A pattern of digits neither splits nor joins text at such a place.
bool is_of_digits(const Step& step) {
  return step.kind == Kind::isolate && (step.pattern == R"(\p{N})" || step.pattern == R"(\p{N}+)");
}

// At least one pattern splits text there; digits alone do not.
bool parts_words(const BpeDefinition& definition) {
  const auto& [normalizers, steps] = std::tie(definition.normalizers, definition.steps);
  return std::any_of(steps.begin(), steps.end(), is_known) &&
         std::all_of(steps.begin(), steps.end(),
                     [](const auto& step) { return is_known(step) || is_of_digits(step); }) &&
         std::all_of(normalizers.begin(), normalizers.end(),
                     [](const auto& one) { return one.kind == Normalizer::Kind::form; });
}

// Whether a word may start at each run of marks. This holds if no token that a merge makes has a
// mark after another character, because then no merge joins two words.
bool marks_begin_words(const BpeDefinition& definition) {
  if (definition.byte_tokens.empty() || definition.whole_words ||
      !definition.tokens.contains(std::string(kSpaceMark)))
    return false;
  std::unordered_set<std::int32_t> merged;
  for (const auto& merge : definition.merges)
    merged.insert(merge.merged);
  return std::all_of(definition.tokens.begin(), definition.tokens.end(), [&](const auto& token) {
    std::string_view text = token.first;
    while (text.starts_with(kSpaceMark))
      text.remove_prefix(kSpaceMark.size());
    return text.find(kSpaceMark) == std::string_view::npos || !merged.contains(token.second);
  });
}

// Returns the byte of "<0x0A>"; -1 if it is not a byte token.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  int byte = -1;
  const auto* end = token.data() + 5;
  return std::from_chars(token.data() + 3, end, byte, 16).ptr == end ? byte : -1;
}

// Whether a match of an added token may span such a place.
bool may_span_a_cut(const AddedToken& token) {
  return token.lstrip || token.rstrip || token.content.find_first_of(" \n") != std::string::npos;
}

}  // namespace

BpeTokenizer::BpeTokenizer(const BpeDefinition& definition, About about)
    : Tokenizer(std::move(about)),
      normalizers_(definition.normalizers, "normalizer"),
      bpe_(definition.tokens, definition.merges, definition.whole_words, definition.byte_tokens),
      marks_begin_words_(marks_begin_words(definition)),
      bytes_of_(static_cast<std::size_t>(definition.vocabulary())),
      is_special_(bytes_of_.size()),
      can_cut_(parts_words(definition)) {
  for (const auto& step : definition.steps) {
    steps_.push_back({step, std::nullopt});
    if (step.kind != Kind::prefix) steps_.back().pattern.emplace(step.pattern);
  }
  const Normalizers decoder(definition.decoded, "decoder");
  const auto bytes_of = [&](const std::string& written) {
    if (definition.byte_tokens.empty()) return written;
    const int byte = byte_of(written);
    return byte >= 0 ? std::string{static_cast<char>(byte)} : decoder.apply(written, Place::front);
  };
  for (const auto& [written, id] : definition.tokens)
    bytes_of_[static_cast<std::size_t>(id)] = bytes_of(written);
  std::vector<AddedToken> all, plain;
  for (auto token : definition.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (token.normalized) token.content = normalizers_.apply(token.content, Place::front);
    bytes_of_[id] = bytes_of(token.content);
    is_special_[id] = token.special;
    if (may_span_a_cut(token)) can_cut_ = false;
    has_letter_tokens_ = has_letter_tokens_ || is_letter(token.content);
    if (!token.special) plain.push_back(token);
    all.push_back(std::move(token));
  }
  added_ = added_of(all);
  plain_ = added_of(plain);
}

// Separates the tokens that are searched before normalization from those searched after.
BpeTokenizer::Added BpeTokenizer::added_of(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> before, behind;
  for (const auto& token : tokens)
    (token.normalized ? behind : before).push_back(token);
  return {AddedTokens(before), AddedTokens(behind)};
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
  // The first part has the place of the whole text. Each other part follows a token.
  const auto encode_text = [&](std::string_view whole, Place place) {
    added.behind_normalizers.split(whole, [&](std::string_view part, const AddedToken* token) {
      const auto at = part.data() == whole.data() ? place : Place::behind_token;
      if (token != nullptr)
        ids.push_back(token->id);
      else if (memory.missing_bytes == MissingBytes::replace && !missing_bytes().empty())
        encode_part(with_replacements(part, memory), 0, at, ids, memory);
      else
        encode_part(part, 0, at, ids, memory);
    });
  };
  added.before_normalizers.split(text, [&](std::string_view part, const AddedToken* token) {
    const auto place = part.data() == text.data() ? memory.place : Place::behind_token;
    if (token != nullptr)
      ids.push_back(token->id);
    else if (normalizers_.empty())
      encode_text(part, place);
    else
      encode_text(normalizers_.apply(std::string(part), place), place);
  });
}

// Replaces each character with a byte without a token by U+FFFD.
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

void BpeTokenizer::encode_part(std::string_view text, std::size_t step, Place place,
                               std::vector<std::int32_t>& ids, Memory& memory) const {
  if (step == steps_.size()) return encode_words(text, ids, memory);
  const auto& [what, pattern] = steps_[step];
  const auto kind = what.kind;
  const auto encode_next = [&](std::string_view part, Place at) {
    if (step + 1 < steps_.size())
      encode_part(part, step + 1, at, ids, memory);
    else
      encode_words(part, ids, memory);
  };
  if (kind == Kind::prefix) {
    const bool is_there = text.starts_with(what.content) || place == Place::behind_text ||
                          (what.is_first && place != Place::front);
    return is_there ? encode_next(text, place) : encode_next(str(what.content, text), place);
  }
  if (kind == Kind::replace)
    return encode_next(replaced(text, *pattern, what.content, most_bytes_of(text.size())), place);
  const auto visit = [&](std::string_view part) {
    encode_next(part, part.data() == text.data() ? place : Place::behind_token);
  };
  if (kind == Kind::isolate)
    return pattern->split(text, [&](std::string_view part, bool /*matches*/) { visit(part); });
  if (kind == Kind::keep_matches || kind == Kind::drop_matches)
    return pattern->split(text, [&](std::string_view part, bool matches) {
      if (matches == (kind == Kind::keep_matches)) visit(part);
    });
  // A match and its neighbour on one side form one word.
  std::string_view word;
  bool matched = false;  // `word` ends with a match
  pattern->split(text, [&](std::string_view part, bool matches) {
    const bool joins =
        kind == Kind::merge_with_previous ? matches && !matched : !matches && matched;
    if (joins && !word.empty()) {
      word = {word.data(), word.size() + part.size()};
    } else {
      if (!word.empty()) visit(word);
      word = part;
    }
    matched = matches;
  });
  if (!word.empty()) visit(word);
}

// Each remaining part is a word, or several words if marks start them.
void BpeTokenizer::encode_words(std::string_view text, std::vector<std::int32_t>& ids,
                                Memory& memory) const {
  if (!marks_begin_words_) return bpe_.encode(text, ids, memory);
  while (!text.empty()) {
    std::size_t end = 0;
    while (text.substr(end).starts_with(kSpaceMark))
      end += kSpaceMark.size();
    end = std::min(text.find(kSpaceMark, end), text.size());
    bpe_.encode(text.substr(0, end), ids, memory);
    text.remove_prefix(end);
  }
}

std::size_t BpeTokenizer::last_cut(std::string_view text) const {
  if (!can_cut_) return 0;
  for (std::size_t i = text.size(); i-- > 1;) {
    const char before = text[i - 1];
    if ((before != ' ' && before != '\n') || !is_letter(text.substr(i))) continue;
    if (i == 1) break;
    const bool behind_space = is_space(last_character(text.substr(0, i - 1)));
    // Before an added token all spaces are one word; elsewhere the last space belongs to the next
    // word.
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
