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

// Sets in the syntax of a class. kSpaces is White_Space, which is \s; that of PCRE2 also has
// U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Superscripts and fractions of Latin-1, which belong to \w outside of classes only.
constexpr std::string_view kWordAlone = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr std::string_view kNoHex = R"(\x{0}-\x{2f}\x{3a}-\x{40}\x{47}-\x{60}\x{67}-\x{10ffff})";

constexpr std::size_t kMostOnigurumaBytes = std::size_t{1} << 16,
                      kMostLevels = 16;  // of nested classes

constexpr std::string_view kCategories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// Letters that Oniguruma also matches as one character if it ignores case: sharp s, ligatures.
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

// Returns the range in the syntax of a class.
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

// Returns the general category of Unicode 16, or its complement, in the syntax of a class: that of
// PCRE2 (Unicode 14) and the newer characters.
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

// Returns the script in the syntax of a class. Its name may have capitals and underscores.
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
    if (!groups_.empty()) refuse("unclosed group");
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t begin = 0;  // position in out_
    bool asserts = false, ignored_case = false;
    bool consumed_before = false;  // the text before it has at least one character
    bool may_be_empty = false;     // one of its branches so far may match nothing
  };
  // A character or a set, in a class or alone.
  struct Member {
    std::string text;
    bool is_set = false, is_complement = false;  // is_complement: complement of `text`
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
    if (rest_.empty()) refuse("the pattern ends early");
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
    if (take(R"(\A)")) {  // start of a text
      out_ += R"(\A)";
      atom_.reset();
      return;
    }
    begin_atom(out_.size(), false);
    if (take(".")) {
      out_ += R"([^\n])";
    } else if (take("[")) {
      const bool complement = take("^");
      if (complement) refuse_ignored_case("a negated class");
      out_ += str(complement ? "[^" : "[", members(1), ']');
    } else {
      if (is_ascii(c)) letter_ = lower(c);
      const auto pair = {before, letter_};
      if (ignores_case_ && std::find(std::begin(kFoldedPairs), std::end(kFoldedPairs),
                                     std::string(pair)) != std::end(kFoldedPairs))
        refuse("the letters ", std::string(pair), " cannot be combined with (?i)");
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
    if (ignores_case_) refuse(what, " cannot be combined with (?i); expected ASCII");
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
    if (rest_.starts_with("(?")) refuse("unsupported group ", rest_.substr(0, 4));
    take("(");
    begin_group(false);
    out_ += "(?:";  // its match is never used
  }

  void begin_group(bool asserts) {
    groups_.push_back({out_.size(), asserts, ignores_case_, std::exchange(consumed_, false)});
  }

  void close_group() {
    if (groups_.empty()) refuse("unmatched )");
    take(")");
    out_ += ')';
    end_branch();
    const auto group = groups_.back();
    groups_.pop_back();
    ignores_case_ = group.ignored_case;
    consumed_ = group.consumed_before;
    if (!group.asserts) begin_atom(group.begin, group.may_be_empty);
  }

  // If a repeated group matches nothing, Oniguruma ends the loop and PCRE2 continues.
  void check_atom(bool at_most_once) const {
    if (!atom_) refuse("nothing to repeat");
    if (atom_may_be_empty_ && !at_most_once) refuse("a repeated group may match nothing");
  }

  void read_repeat() {
    check_atom(rest_.starts_with('?'));
    if (!rest_.starts_with('+')) consumed_ = consumed_before_atom_;
    out_ += take_bytes(1);
    if (rest_.starts_with('?') || rest_.starts_with('+')) out_ += take_bytes(1);
    atom_.reset();
  }

  // Reads {n}, {n,}, {n,m} or {,m}. A + after it repeats that again.
  void read_interval() {
    check_atom(false);
    const auto begin = rest_;
    take("{");
    const auto least = take_number();
    const bool comma = take(",");
    const auto most = comma ? take_number() : least;
    if (!take("}") || (least.empty() && most.empty())) {
      rest_ = begin;
      refuse("{ repeats nothing; write \\{ for the character");
    }
    out_ += str('{', least.empty() ? "0" : least, comma ? "," : "", comma ? most : "", '}');
    if (least.find_first_not_of('0') == std::string_view::npos) consumed_ = consumed_before_atom_;
    if (take("+")) {
      out_.insert(*atom_, "(?:");
      out_ += ")+";
    } else if (rest_.starts_with('?')) {
      if (least == most) refuse("? after {", least, "}, which Oniguruma reads as none or all");
      out_ += take_bytes(1);
    }
    atom_.reset();
  }

  std::string_view take_number() {
    return take_bytes(std::min(rest_.find_first_not_of("0123456789"), rest_.size()));
  }

  // Reads up to the end of a class.
  std::string members(std::size_t level) {
    if (level > kMostLevels) refuse("more than ", kMostLevels, " nested classes");
    std::string out;
    for (bool first = true;; first = false) {
      if (rest_.empty()) refuse("unclosed class");
      if (!first && take("]")) return out;
      if (rest_.starts_with("&&")) refuse("&& in a class is not supported");
      if (rest_.starts_with("[:")) refuse("[: in a class is not supported; write \\p{...}");
      if (rest_.starts_with("[^")) refuse("[^ in a class is not supported");
      if (take("[")) {
        out += members(level + 1);
        continue;
      }
      if (rest_.starts_with('-') && (!first || rest_.starts_with("--")) && !rest_.starts_with("-]"))
        refuse("- in a class is not a range; write \\- for the character");
      const auto from = read_member();
      if (from.is_complement) refuse("\\W or \\P of a script in a class is not supported");
      out += from.text;
      if (!rest_.starts_with('-') || rest_.starts_with("-]")) continue;
      take("-");
      const auto to = rest_.starts_with('[') ? Member{"", true} : read_member();
      if (from.is_set || to.is_set) refuse("a range needs a character at each end");
      out += str('-', to.text);
    }
  }

  // Reads a character, or an escape of a set.
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
      default: rest_ = before; refuse("\\", c, " is not supported");
    }
  }

  // Reads \xHH for ASCII, \x{H...}, \uHHHH.
  Member read_code(char kind) {
    const bool braces = kind == 'x' && take("{");
    const auto most = std::min<std::size_t>(rest_.size(), braces ? 8 : kind == 'x' ? 2 : 4);
    std::uint32_t code = 0;
    const char* first = rest_.data();
    const auto digits =
        static_cast<std::size_t>(std::from_chars(first, first + most, code, 16).ptr - first);
    if (digits == 0 || (kind == 'u' && digits < 4) || (kind == 'x' && !braces && code >= 0x80))
      refuse("\\", kind, " needs the hexadecimal code of a character");
    if (code >= 0x80) refuse_ignored_case("a character code");
    const auto number = take_bytes(digits);
    if (braces && !take("}")) refuse("unclosed \\x{");
    return {str(R"(\x{)", number, '}')};
  }

  // Reads a general category or a script.
  Member read_property(bool complement) {
    if (!take("{")) refuse("expected { after \\p");
    if (take("^")) complement = !complement;
    const auto name = take_bytes(std::min(rest_.find('}'), rest_.size()));
    const bool is_category =
        std::find(std::begin(kCategories), std::end(kCategories), name) != std::end(kCategories);
    const bool is_name = std::all_of(name.begin(), name.end(),
                                     [](char c) { return is_letter_or_digit(c) || c == '_'; });
    if (!take("}") || name.empty() || !is_name) refuse("\\p needs the name of a property");
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
  // Whether the branch has matched at least one character, with the last atom and without it.
  bool consumed_ = false, consumed_before_atom_ = false, atom_may_be_empty_ = false;
  std::vector<Group> groups_;        // open groups
  std::optional<std::size_t> atom_;  // position in out_ of the last atom, which can be repeated
  bool ignores_case_ = false;
  bool newer_ = false;  // use Unicode 16
  char letter_ = 0;     // last letter that was read; 0: something else
};

}  // namespace

std::string pcre2_of(const std::string& pattern, bool newer) {
  if (pattern.size() > kMostOnigurumaBytes)
    throw DataError(
        str("a pattern of ", pattern.size(), " bytes, expected at most ", kMostOnigurumaBytes));
  return Translator(pattern, newer).translated();
}

}  // namespace lockstep
