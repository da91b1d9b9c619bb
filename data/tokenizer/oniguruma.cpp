#include "data/tokenizer/oniguruma.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode_classes.h"

namespace lockstep {
namespace {

// Sets, as they stand within a class. White_Space, which is \s; PCRE2's has U+180E too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// To \w alone, but in no class, these belong too: superscripts and fractions of Latin-1.
constexpr std::string_view kWordAlone = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr std::string_view kNoHex = R"(\x{0}-\x{2f}\x{3a}-\x{40}\x{47}-\x{60}\x{67}-\x{10ffff})";

constexpr std::size_t kMostOnigurumaBytes = std::size_t{1} << 16, kMostLevels = 16;  // of classes

constexpr std::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// Letters that Oniguruma takes for one character too, where it ignores case: sharp s, ligatures.
constexpr std::string_view kFoldedPairs[] = {"ff", "fi", "fl", "ss", "st"};

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}
bool is_letter_or_digit(char c) {
  return ('0' <= c && c <= '9') || ('A' <= c && c <= 'Z') || ('a' <= c && c <= 'z');
}
char lower(char c) {
  return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The range as a class has it.
std::string range_text(std::uint32_t first, std::uint32_t last) {
  const auto code = [](std::uint32_t value) {
    std::array<char, 8> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
    return str(R"(\x{)", std::string_view(digits.data(), end), '}');
  };
  return first == last ? code(first) : str(code(first), '-', code(last));
}

template <class Matches>
std::string newer_ranges(const Matches& matches) {
  std::string text;
  for (const auto& newer : newer_characters())
    if (matches(newer)) text += range_text(newer.first, newer.last);
  return text;
}

// The general category of Unicode 16, or its complement, as a class has it: what PCRE2 has of
// Unicode 14 and the newer characters.
std::string category_set(std::string_view name, bool complement) {
  const auto matches = [&](std::string_view category) {
    return category.starts_with(name) != complement;
  };
  std::string text;
  for (const auto category : kCategories) {
    if (category.size() != 2 || !matches(category)) continue;
    if (category != "Cn") {
      text += str(R"(\p{)", category, '}');
      continue;
    }
    for (const auto& range : unassigned_characters())
      text += range_text(range.first, range.last);
  }
  return text + newer_ranges([&](const auto& newer) { return matches(newer.category); });
}

// The script as a class has it. Its name may have capitals and underscores.
std::string script_set(std::string_view name, bool newer) {
  std::string plain;
  for (const char c : name)
    if (c != '_') plain += lower(c);
  const auto older = str(R"(\p{sc:)", name, '}');
  return newer ? older + newer_ranges([&](const auto& characters) {
                   return characters.script == plain || characters.script_code == plain;
                 })
               : older;
}

std::string word_set(bool newer) {
  return newer ? str(kWord, newer_ranges([](const auto& characters) {
                       const auto category = characters.category;
                       return category[0] == 'L' || category[0] == 'M' || category == "Nd" ||
                              category == "Pc";
                     }))
               : std::string(kWord);
}

class Translator {
 public:
  Translator(const std::string& pattern, bool newer)
      : whole_(pattern), rest_(pattern), newer_(newer) {}

  std::string translated() {
    if (take("(?i)")) {
      out_ = "(?i)";
      ignores_case_ = true;
    }
    while (!rest_.empty())
      read_one();
    if (!groups_.empty()) refuse("a group has no end");
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t begin = 0;  // in out_
    bool asserts = false, ignored_case = false;
    bool consumed_before = false;  // what stands in front of it, a character at least
    bool may_be_empty = false;     // one of its branches, up to now
  };
  // Of a class, or alone.
  struct Member {
    std::string text;
    bool is_set = false, is_complement = false;  // complement: of `text`
    bool is_word = false;
  };

  template <class... What>
  [[noreturn]] void refuse(const What&... what) const {
    throw DataError(str("the pattern ", whole_, " cannot be used: at byte ",
                        whole_.size() - rest_.size(), ": ", what...));
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::string_view take_bytes(std::size_t count) {
    const auto taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view take_character() {
    if (rest_.empty()) refuse("it is cut off");
    return take_bytes(std::max<std::size_t>(utf8_at(rest_).bytes, 1));
  }

  void read_one() {
    const char c = rest_.front();
    const char before = std::exchange(letter_, 0);
    if (c == '(') return open_group();
    if (c == ')') return close_group();
    if (c == '*' || c == '+' || c == '?') return read_repeat();
    if (c == '{') return read_interval();
    if (c == '|' || c == '^' || c == '$') {
      take_bytes(1);
      out_ += c == '|' ? "|" : c == '^' ? "(?m:^)" : "(?m:$)";
      atom_.reset();
      if (c == '|') end_branch();
      return;
    }
    if (take(R"(\A)")) {  // the begin of a text
      out_ += R"(\A)";
      atom_.reset();
      return;
    }
    begin_atom(out_.size(), false);
    if (take(".")) {
      out_ += R"([^\n])";
    } else if (take("[")) {
      const bool complement = take("^");
      if (complement) refuse_ignored_case("a class of what is not");
      out_ += str(complement ? "[^" : "[", members(1), ']');
    } else {
      if (is_ascii(c)) letter_ = lower(c);
      const auto pair = {before, letter_};
      if (ignores_case_ && std::find(std::begin(kFoldedPairs), std::end(kFoldedPairs),
                                     std::string(pair)) != std::end(kFoldedPairs))
        refuse("the letters ", std::string(pair), " where case is ignored");
      const auto member = read_member();
      if (member.text == kNoSpaces)  // faster
        out_ += str("[^", kSpaces, ']');
      else if (member.is_set)
        out_ += str(member.is_complement ? "[^" : "[", member.text,
                    member.is_word ? kWordAlone : "", ']');
      else
        out_ += member.text;
    }
  }

  void begin_atom(std::size_t begin, bool may_be_empty) {
    atom_ = begin;
    atom_may_be_empty_ = may_be_empty;
    consumed_before_atom_ = std::exchange(consumed_, consumed_ || !may_be_empty);
  }

  void end_branch() {
    if (!groups_.empty() && !consumed_) groups_.back().may_be_empty = true;
    consumed_ = false;
  }

  void refuse_ignored_case(std::string_view what) const {
    if (ignores_case_) refuse(what, " where case is ignored; expected ASCII");
  }

  void open_group() {
    constexpr std::pair<std::string_view, bool> kGroups[] = {{"(?:", false}, {"(?i:", false},
                                                             {"(?=", true},  {"(?!", true},
                                                             {"(?<=", true}, {"(?<!", true}};
    atom_.reset();
    for (const auto& [text, asserts] : kGroups)
      if (take(text)) {
        begin_group(asserts);
        out_ += text;
        if (text == "(?i:") ignores_case_ = true;
        return;
      }
    if (rest_.starts_with("(?")) refuse("a group that begins with ", rest_.substr(0, 4));
    take("(");
    begin_group(false);
    out_ += "(?:";  // what it matched is never asked for
  }

  void begin_group(bool asserts) {
    groups_.push_back({out_.size(), asserts, ignores_case_, std::exchange(consumed_, false)});
  }

  void close_group() {
    if (groups_.empty()) refuse("a group ends that never began");
    take(")");
    out_ += ')';
    end_branch();
    const auto group = groups_.back();
    groups_.pop_back();
    ignores_case_ = group.ignored_case;
    consumed_ = group.consumed_before;
    if (!group.asserts) begin_atom(group.begin, group.may_be_empty);
  }

  // Where a repeated group matches nothing Oniguruma ends the loop, and PCRE2 goes on.
  void check_atom(bool at_most_once) const {
    if (!atom_) refuse("nothing to repeat");
    if (atom_may_be_empty_ && !at_most_once) refuse("a repeated group that may match nothing");
  }

  void read_repeat() {
    check_atom(rest_.starts_with('?'));
    if (!rest_.starts_with('+')) consumed_ = consumed_before_atom_;
    out_ += take_bytes(1);
    if (rest_.starts_with('?') || rest_.starts_with('+')) out_ += take_bytes(1);
    atom_.reset();
  }

  // {n}, {n,}, {n,m} or {,m}. A + behind it repeats that again.
  void read_interval() {
    check_atom(false);
    const auto begin = rest_;
    take("{");
    const auto least = take_number();
    const bool comma = take(",");
    const auto most = comma ? take_number() : least;
    if (!take("}") || (least.empty() && most.empty())) {
      rest_ = begin;
      refuse("{ that repeats nothing; write it \\{");
    }
    out_ += str('{', least.empty() ? "0" : least, comma ? "," : "", comma ? most : "", '}');
    if (least.find_first_not_of('0') == std::string_view::npos) consumed_ = consumed_before_atom_;
    if (take("+")) {
      out_.insert(*atom_, "(?:");
      out_ += ")+";
    } else if (rest_.starts_with('?')) {
      if (least == most) refuse("? behind {", least, "}, which Oniguruma takes for none or all");
      out_ += take_bytes(1);
    }
    atom_.reset();
  }

  std::string_view take_number() {
    return take_bytes(std::min(rest_.find_first_not_of("0123456789"), rest_.size()));
  }

  // Up to the end of a class.
  std::string members(std::size_t level) {
    if (level > kMostLevels) refuse("classes within classes, more than ", kMostLevels);
    std::string out;
    for (bool first = true;; first = false) {
      if (rest_.empty()) refuse("a class has no end");
      if (!first && take("]")) return out;
      if (rest_.starts_with("&&")) refuse("&& in a class");
      if (rest_.starts_with("[:")) refuse("[: in a class; write \\p{...}");
      if (rest_.starts_with("[^")) refuse("[^ in a class");
      if (take("[")) {
        out += members(level + 1);
        continue;
      }
      if (rest_.starts_with('-') && (!first || rest_.starts_with("--")) && !rest_.starts_with("-]"))
        refuse("- in a class that is no range; write it \\-");
      const auto from = read_member();
      if (from.is_complement) refuse("\\W or a script's \\P in a class");
      out += from.text;
      if (!rest_.starts_with('-') || rest_.starts_with("-]")) continue;
      take("-");
      const auto to = rest_.starts_with('[') ? Member{"", true} : read_member();
      if (from.is_set || to.is_set) refuse("a range of what is no character");
      out += str('-', to.text);
    }
  }

  // A character, or a set by its escape.
  Member read_member() {
    if (rest_.starts_with('\\')) return read_escape();
    const auto character = take_character();
    if (!is_ascii(character.front())) refuse_ignored_case(character);
    const bool plain = !is_ascii(character.front()) || is_letter_or_digit(character.front()) ||
                       character.front() <= ' ';
    return {plain ? std::string(character) : str('\\', character)};
  }

  Member read_escape() {
    const auto before = rest_;
    take("\\");
    const auto character = take_character();
    const char c = character.front();
    if (!is_ascii(c)) {
      refuse_ignored_case(character);
      return {std::string(character)};
    }
    if (!is_letter_or_digit(c)) return {str('\\', c)};
    constexpr std::string_view kAlike = "tnrfae";
    if (kAlike.find(c) != std::string_view::npos) return {str('\\', c)};
    if (c == 'v') return {R"(\x{b})"};
    if (c == 'x' || c == 'u') return read_code(c);
    refuse_ignored_case(str('\\', c));
    switch (c) {
      case 's': return {std::string(kSpaces), true};
      case 'S': return {std::string(kNoSpaces), true};
      case 'd':
      case 'D': return category("Nd", c == 'D');
      case 'w':
      case 'W': return {word_set(newer_), true, c == 'W', true};
      case 'h': return {std::string(kHex), true};
      case 'H': return {std::string(kNoHex), true};
      case 'p':
      case 'P': return read_property(c == 'P');
      default: rest_ = before; refuse("\\", c, ", which is not read");
    }
  }

  // \xHH of ASCII, \x{H...}, \uHHHH.
  Member read_code(char kind) {
    const bool braces = kind == 'x' && take("{");
    const auto most = std::min<std::size_t>(rest_.size(), braces ? 8 : kind == 'x' ? 2 : 4);
    std::uint32_t code = 0;
    const char* first = rest_.data();
    const auto digits =
        static_cast<std::size_t>(std::from_chars(first, first + most, code, 16).ptr - first);
    if (digits == 0 || (kind == 'u' && digits < 4) || (kind == 'x' && !braces && code >= 0x80))
      refuse("\\", kind, " without a character's number");
    if (code >= 0x80) refuse_ignored_case("a character's number");
    const auto number = take_bytes(digits);
    if (braces && !take("}")) refuse("\\x{ has no end");
    return {str(R"(\x{)", number, '}')};
  }

  // Of a general category, or a script.
  Member read_property(bool complement) {
    if (!take("{")) refuse("\\p without {");
    if (take("^")) complement = !complement;
    const auto name = take_bytes(std::min(rest_.find('}'), rest_.size()));
    const bool is_category =
        std::find(std::begin(kCategories), std::end(kCategories), name) != std::end(kCategories);
    const bool is_name = std::all_of(name.begin(), name.end(),
                                     [](char c) { return is_letter_or_digit(c) || c == '_'; });
    if (!take("}") || name.empty() || !is_name) refuse("\\p without the name of a property");
    if (is_category) return category(name, complement);
    return {script_set(name, newer_), true, complement};
  }

  Member category(std::string_view name, bool complement) const {
    if (newer_) return {category_set(name, complement), true};
    return {str(complement ? R"(\P{)" : R"(\p{)", name, '}'), true};
  }

  const std::string& whole_;
  std::string_view rest_;
  std::string out_;
  // Whether the branch has matched a character at least, with the last atom and without.
  bool consumed_ = false, consumed_before_atom_ = false, atom_may_be_empty_ = false;
  std::vector<Group> groups_;        // that have no end yet
  std::optional<std::size_t> atom_;  // where in out_ begins what could be repeated
  bool ignores_case_ = false;
  bool newer_ = false;  // by Unicode 16
  char letter_ = 0;     // that was read last; 0: something else
};

}  // namespace

std::string pcre2_of(const std::string& pattern, bool newer) {
  if (pattern.size() > kMostOnigurumaBytes)
    throw DataError(
        str("a pattern of ", pattern.size(), " bytes, expected ", kMostOnigurumaBytes, " at most"));
  return Translator(pattern, newer).translated();
}

}  // namespace lockstep
