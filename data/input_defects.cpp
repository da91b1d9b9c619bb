#include "data/input_defects.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/error.h"
#include "core/log.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

constexpr const char* kNames[] = {"refuse", "drop", "replace"};

// Returns the code of \uXXXX at the start of `text`, or -1.
int escaped_code(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return -1;
  unsigned code = 0;
  const char* end = text.data() + 6;
  return std::from_chars(end - 4, end, code, 16).ptr == end ? static_cast<int>(code) : -1;
}

bool is_high(int code) {
  return 0xd800 <= code && code < 0xdc00;
}
bool is_low(int code) {
  return 0xdc00 <= code && code < 0xe000;
}

// Mender copies lines of JSON and corrects defects on the way.
class Mender {
 public:
  Mender(std::string_view text, const std::string& what, InputDefects& odd)
      : rest_(text), what_(what), odd_(odd) {}

  std::string mended() {
    while (!rest_.empty()) {
      if (in_string_)
        string_character();
      else
        other_character();
    }
    return std::move(out_);
  }

 private:
  std::string where() const { return str(what_, ": line ", line_); }

  void take(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }
  void replace(std::size_t bytes, std::string_view by, Tally& tally) {
    tally.note(where());
    out_ += by;
    rest_.remove_prefix(bytes);
  }

  void end_line() {
    in_string_ = false;
    depth_ = 0;
    behind_value_ = returned_ = false;
    ++line_;
    take(1);
  }

  void string_character() {
    const char c = rest_.front();
    if (c == '\n') return end_line();
    if (c == '\\') return escape();
    if (c == '"') in_string_ = false;
    if (const auto [bytes, skip] = utf8_at(rest_); bytes > 0)
      take(bytes);
    else
      replace(skip, kReplacement, odd_.text);
  }

  void escape() {
    const int code = escaped_code(rest_);
    if (!is_high(code) && !is_low(code)) return take(rest_.substr(1).starts_with('\n') ? 1 : 2);
    if (is_high(code) && is_low(escaped_code(rest_.substr(6)))) return take(12);
    replace(6, "\\ufffd", odd_.text);
  }

  void other_character() {
    const char c = rest_.front();
    if (c == '\n') return end_line();
    if (const auto bytes = not_a_number_at(rest_); bytes > 0)
      return replace(bytes, "null", odd_.numbers);
    if (c == '"') in_string_ = true;
    if (depth_ == 0) {
      if (c == '{' && returned_) throw DataError(str(where(), ": ", kReturnsAlone));
      returned_ = behind_value_ && (c == '\r' || (returned_ && (c == ' ' || c == '\t')));
    }
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') behind_value_ = --depth_ == 0;
    take(1);
  }

  std::string_view rest_;
  const std::string& what_;
  InputDefects& odd_;
  std::string out_;
  std::int64_t line_ = 1, depth_ = 0;
  bool in_string_ = false;
  bool behind_value_ = false;  // the object of the line has ended
  bool returned_ = false;      // and after it there was \r, and only space since
};

void warn(const Tally& tally, const char* one, const char* more) {
  if (tally.count > 0)
    log_warning(tally.count, " ", tally.count == 1 ? one : more, "; the first: ", tally.first);
}

}  // namespace

const char* name(MissingBytes missing) {
  return kNames[static_cast<std::size_t>(missing)];
}

MissingBytes missing_bytes(const std::string& name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames))
    throw UsageError(str("--missing-bytes ", name, ": expected refuse, drop or replace"));
  return static_cast<MissingBytes>(found - std::begin(kNames));
}

void Tally::note(const std::string& where, std::int64_t places) {
  if (places == 0) return;
  if (count == 0) first = where;
  count += places;
}

void Tally::add(const Tally& later) {
  note(later.first, later.count);
}

void InputDefects::add(const InputDefects& later) {
  text.add(later.text);
  numbers.add(later.numbers);
  bytes.add(later.bytes);
  returns.add(later.returns);
  zeros.add(later.zeros);
}

void warn_of(const InputDefects& odd, MissingBytes missing) {
  warn(odd.text, "place was not valid Unicode and was replaced by U+FFFD",
       "places were not valid Unicode and were replaced by U+FFFD");
  warn(odd.numbers, "unused value is NaN or Infinity, which JSON does not allow",
       "unused values are NaN or Infinity, which JSON does not allow");
  if (missing == MissingBytes::replace)
    warn(odd.bytes, "character has a byte without a token and was replaced by U+FFFD",
         "characters have a byte without a token and were replaced by U+FFFD");
  else
    warn(odd.bytes, "byte has no token in the vocabulary and was dropped",
         "bytes have no token in the vocabulary and were dropped");
  warn(odd.returns, R"(text file has lines that end with \r alone, which is kept)",
       R"(text files have lines that end with \r alone, which is kept)");
  warn(odd.zeros,
       "file ends with zero bytes, which became tokens; if writing it was interrupted, copy it and "
       "pack it again",
       "files end with zero bytes, which became tokens; if writing them was interrupted, copy them "
       "and pack them again");
}

void note_invalid(std::string_view text, Tally& tally,
                  FunctionRef<std::string(std::size_t byte)> where) {
  for (std::size_t at = 0;; at += utf8_at(text.substr(at)).skip) {
    at += valid_utf8(text.substr(at));
    if (at == text.size()) return;
    if (tally.count++ == 0) tally.first = where(at);
  }
}

std::string mended_json_lines(std::string_view text, const std::string& what, InputDefects& odd) {
  refuse_zeros_at_end(what, std::ssize(text), count_zeros_at_end(text));
  return Mender(text, what, odd).mended();
}

std::string with_quoted_not_numbers(std::string_view text) {
  std::string out;
  for (bool in_string = false; !text.empty();) {
    const auto word = in_string ? 0 : not_a_number_at(text);
    const auto bytes = word > 0 ? word : in_string && text.front() == '\\' ? 2 : 1;
    if (text.front() == '"') in_string = !in_string;
    const auto taken = text.substr(0, bytes);
    out += word > 0 ? str('"', taken, '"') : std::string(taken);
    text.remove_prefix(taken.size());
  }
  return out;
}

std::size_t not_a_number_at(std::string_view text) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
    if (text.starts_with(word)) return word.size();
  return 0;
}

std::int64_t count_zeros_at_end(std::string_view text) {
  const auto last = text.find_last_not_of('\0');
  const auto kept = last == std::string_view::npos ? 0 : last + 1;
  return static_cast<std::int64_t>(text.size() - kept);
}

std::string zeros_at_end(std::int64_t bytes, std::int64_t zeros) {
  return str(zeros, zeros == 1 ? " zero byte" : " zero bytes", ", from byte ", bytes - zeros,
             " of its text");
}

void refuse_zeros_at_end(const std::string& file, std::int64_t bytes, std::int64_t zeros) {
  if (zeros == 0) return;
  throw DataError(str(file, ": ends with ", zeros_at_end(bytes, zeros),
                      "; the write was probably interrupted. Copy the file again, or keep the "
                      "bytes before: head -c ",
                      bytes - zeros));
}

}  // namespace lockstep
