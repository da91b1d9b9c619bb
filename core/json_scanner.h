// JsonScanner reads the tokens of a JSON text (RFC 8259) one after the other, without building
// values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/error.h"

namespace lockstep {

class JsonScanner {
 public:
  struct Problem {
    std::size_t byte;  // of the text
    std::string what;
    bool lacks_member = false;  // a valid object lacks a member
  };

  // The text must live as long as the scanner.
  explicit JsonScanner(std::string_view text = {})
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  std::size_t byte() const { return static_cast<std::size_t>(at_ - begin_); }
  std::string_view since(std::size_t byte) const { return {begin_ + byte, at_}; }
  std::string_view rest() const { return {at_, end_}; }
  bool at_end() const { return at_ == end_; }
  char next() const { return at_ < end_ ? *at_ : '\0'; }
  bool at_digit() const { return '0' <= next() && next() <= '9'; }
  [[noreturn]] void fail(std::string_view what) const;  // throws Problem

  void skip(std::size_t bytes) { at_ += bytes; }
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r'))
      ++at_;
  }
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool take_word() { return take("true") || take("false") || take("null"); }

  void expect(char c, const char* what) {  // skips space first
    skip_space();
    if (!take(c)) fail(str("expected ", what));
  }
  // After an element. Returns false after a comma: another element follows.
  bool ends(char close, const char* what) {
    skip_space();
    if (take(close)) return true;
    expect(',', what);
    return false;
  }

  void digits(const char* none);  // `none`: the message if there is none
  std::string_view number();      // begins at - or a digit; takes no more digits after a leading 0

  // Both begin at a quote. string() appends the decoded string to `value`, unless it is null. It
  // returns the number of U+FFFD that replace lone surrogates of escapes or invalid UTF-8.
  std::size_t string(std::string* value);
  std::string_view skip_string() {  // returns the text between the quotes, escapes undecoded
    const char* first = at_ + 1;
    string(nullptr);
    return {first, at_ - 1};
  }

 private:
  unsigned hex();
  bool escape(std::string* value);  // returns whether it became U+FFFD

  const char *begin_, *at_, *end_;
};

}  // namespace lockstep
