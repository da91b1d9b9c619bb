#include "data/pack/json_line.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/odd_input.h"

namespace lockstep {
namespace {

constexpr int kMostLevels = 256;

constexpr std::uint64_t repeated(unsigned char byte) {
  return std::uint64_t{0x0101010101010101} * byte;
}

// The high bit of each byte that ends a run of plain characters: a quote, a backslash, a control
// character, or no ASCII. Exact up to the first of them (a borrow goes upwards).
std::uint64_t special_bytes(std::uint64_t eight) {
  const auto zero = [](std::uint64_t x) { return (x - repeated(1)) & ~x; };
  return (zero(eight ^ repeated('"')) | zero(eight ^ repeated('\\')) |
          ((eight - repeated(0x20)) & ~eight) | eight) &
         repeated(0x80);
}

std::size_t plain_bytes(const char* at, const char* end) {
  const char* begin = at;
  for (; end - at >= 8; at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    static_assert(std::endian::native == std::endian::little);
    if (const auto special = special_bytes(eight); special != 0)
      return static_cast<std::size_t>(at - begin) +
             static_cast<std::size_t>(std::countr_zero(special)) / 8;
  }
  const auto is_plain = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 &&
           c != '"' && c != '\\';
  };
  while (at < end && is_plain(*at))
    ++at;
  return static_cast<std::size_t>(at - begin);
}

void append_utf8(std::string& text, unsigned code) {
  const auto put = [&](unsigned byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

// ", but "id", "title": the first members that the object has.
std::string members_of(std::string_view object) {
  constexpr std::size_t kMost = 5, kLongest = 40;
  std::string text;
  try {
    const auto json = Json::parse(object, "line", kMostLevels + 1);
    for (std::size_t count = 0; const auto& [name, value] : json.as_object()) {
      if (count++ == kMost) return text + ", ...";
      text += str(count == 1 ? ", but " : ", ",
                  name.size() > kLongest ? "one of a long name" : Json(name).dump());
    }
  } catch (const DataError&) {  // as of keys that are there twice
    return "";
  }
  return text;
}

bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

}  // namespace

JsonLine::JsonLine(const std::vector<std::string>& fields) {
  LOCKSTEP_CHECK(fields.size() <= 8, fields.size(), " fields");
  for (const auto& name : fields) {
    Field field;
    field.name = name;
    for (std::size_t at = 0; at <= name.size();) {
      const auto dot = std::min(name.find('.', at), name.size());
      field.path.push_back(name.substr(at, dot - at));
      at = dot + 1;
    }
    fields_.push_back(std::move(field));
  }
}

JsonLine::JsonLine(const std::string& list, const std::vector<std::string>& fields)
    : JsonLine(std::vector<std::string>{list}) {
  element_ = std::make_unique<JsonLine>(fields);
}

void JsonLine::fail(const std::string& what) const {
  throw Problem{static_cast<std::size_t>(at_ - begin_), what};
}

void JsonLine::give_back(std::size_t most) {
  const auto clear = [&](std::string& text) {
    if (text.capacity() > most) std::string().swap(text);
  };
  clear(key_);
  for (auto& field : fields_)
    clear(field.value);
  if (element_) element_->give_back(most);
  std::size_t bytes = 0;
  for (const auto& value : values_)
    bytes += sizeof(std::string) + value.capacity();
  if (bytes <= most) return;
  std::vector<std::string>().swap(values_);
  elements_ = 0;
}

void JsonLine::scan(std::string_view line) {
  begin_ = at_ = line.data();
  end_ = begin_ + line.size();
  replaced_ = numbers_ = elements_ = 0;
  scan_fields(1);
  const char* behind = at_;
  skip_space();
  if (at_ == end_) return;
  const bool returns = *at_ == '{' && std::find(behind, at_, '\r') != at_;
  fail(returns ? kReturnsAlone : "expected the end of the line behind the object");
}

// Of the object that comes next.
void JsonLine::scan_fields(int levels) {
  for (auto& field : fields_)
    field.found = false;
  skip_space();
  if (at_ == end_ || *at_ != '{') fail("expected an object, {");
  const char* first = at_;
  scan_object({(1U << fields_.size()) - 1, 0}, levels);
  for (const auto& field : fields_)
    if (!field.found)
      throw Problem{static_cast<std::size_t>(first - begin_),
                    str("the object has no member \"", field.name, "\"",
                        members_of({first, static_cast<std::size_t>(at_ - first)})),
                    true};
}

void JsonLine::skip_space() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r'))
    ++at_;
}

void JsonLine::expect(char c, const char* what) {
  skip_space();
  if (at_ == end_ || *at_ != c) fail(str("expected ", what));
  ++at_;
}

// Those that a member called so of the object at `place` may be or hold.
unsigned JsonLine::below(Place place, const std::string& key) const {
  unsigned fields = 0;
  for (std::size_t f = 0; f < fields_.size(); ++f)
    if ((place.fields >> f & 1) != 0 && fields_[f].path[place.depth] == key) fields |= 1U << f;
  return fields;
}

// The field that the value at `place` is. A value that is one field and holds another is no string
// for one of them.
JsonLine::Field* JsonLine::wanted(Place place) {
  for (std::size_t f = 0; f < fields_.size(); ++f)
    if ((place.fields >> f & 1) != 0 && fields_[f].path.size() == place.depth) return &fields_[f];
  return nullptr;
}

template <class Element>
void JsonLine::scan_array(int levels, Element&& scan) {
  if (levels > kMostLevels) fail(str("nested deeper than ", kMostLevels, " levels"));
  ++at_;
  skip_space();
  if (at_ < end_ && *at_ == ']') {
    ++at_;
    return;
  }
  for (;;) {
    scan();
    skip_space();
    if (at_ < end_ && *at_ == ']') break;
    expect(',', "a comma or ] behind an element");
  }
  ++at_;
}

void JsonLine::scan_value(Place place, int levels) {
  skip_space();
  if (at_ == end_) fail("the line ends where a value is expected");
  auto* field = place.fields == 0 ? nullptr : wanted(place);
  if (field != nullptr) {
    if (*at_ != (element_ ? '[' : '"')) {
      const char* first = at_;
      scan_value({}, levels);  // which may be no JSON
      at_ = first;
      fail(str("the member \"", field->name, "\" is not ", element_ ? "a list" : "a string"));
    }
    if (field->found) fail(str("the member \"", field->name, "\" is there twice"));
    field->found = true;
    if (element_) return scan_array(levels + 1, [&] { scan_element(levels + 2); });
    field->value.clear();
    return scan_string(&field->value);
  }
  switch (*at_) {
    case '{': return scan_object(place, levels + 1);
    case '[': return scan_array(levels + 1, [&] { scan_value({}, levels + 1); });
    case '"': return scan_string(nullptr);
    case 't':
    case 'f':
    case 'n': return scan_word();
    default: return skip_not_a_number() ? void() : scan_number();
  }
}

void JsonLine::scan_object(Place place, int levels) {
  if (levels > kMostLevels) fail(str("nested deeper than ", kMostLevels, " levels"));
  ++at_;
  skip_space();
  if (at_ < end_ && *at_ == '}') {
    ++at_;
    return;
  }
  for (;;) {
    skip_space();
    if (at_ == end_ || *at_ != '"') fail("expected a key in quotes");
    unsigned fields = 0;
    if (place.fields == 0) {
      scan_string(nullptr);
    } else {
      key_.clear();
      scan_string(&key_);
      fields = below(place, key_);
    }
    expect(':', "a colon behind the key");
    scan_value({fields, place.depth + 1}, levels);
    skip_space();
    if (at_ < end_ && *at_ == '}') break;
    expect(',', "a comma or } behind a member");
  }
  ++at_;
}

void JsonLine::scan_element(int levels) {
  auto& element = *element_;
  element.begin_ = begin_;
  element.at_ = at_;
  element.end_ = end_;
  element.replaced_ = element.numbers_ = 0;
  element.scan_fields(levels);
  at_ = element.at_;
  replaced_ += element.replaced_;
  numbers_ += element.numbers_;
  const auto count = element.fields_.size();
  const auto first = elements_++ * count;
  if (values_.size() < first + count) values_.resize(first + count);
  for (std::size_t f = 0; f < count; ++f)
    values_[first + f].swap(element.fields_[f].value);
}

void JsonLine::scan_word() {
  const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
  for (const std::string_view word : {"true", "false", "null"})
    if (rest.starts_with(word)) {
      at_ += word.size();
      return;
    }
  fail("no JSON: expected true, false, null, or text in quotes");
}

std::size_t JsonLine::scan_digits() {
  const char* begin = at_;
  while (at_ < end_ && is_digit(*at_))
    ++at_;
  return static_cast<std::size_t>(at_ - begin);
}

bool JsonLine::skip_not_a_number() {
  const auto bytes = not_a_number_at({at_, static_cast<std::size_t>(end_ - at_)});
  at_ += bytes;
  if (bytes > 0) ++numbers_;
  return bytes > 0;
}

void JsonLine::scan_number() {
  if (*at_ == '-') ++at_;
  const char* first = at_;
  const auto digits = scan_digits();
  if (digits == 0) fail("no JSON: expected a value, of text in quotes");
  if (digits > 1 && *first == '0') fail("a number begins with 0");
  if (at_ < end_ && *at_ == '.') {
    ++at_;
    if (scan_digits() == 0) fail("expected a digit behind the point");
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (scan_digits() == 0) fail("expected a digit of the exponent");
  }
}

void JsonLine::scan_string(std::string* value) {
  ++at_;
  for (;;) {
    const auto plain = plain_bytes(at_, end_);
    if (value != nullptr) value->append(at_, plain);
    at_ += plain;
    if (at_ == end_) fail("the line ends within a string");
    if (*at_ == '"') break;
    if (*at_ == '\\') {
      scan_escape(value);
      continue;
    }
    if (static_cast<unsigned char>(*at_) < 0x20)
      fail("a control character in a string, which must be escaped");
    const char* first = at_;
    do {
      const auto [bytes, skip] = utf8_at({at_, static_cast<std::size_t>(end_ - at_)});
      if (bytes == 0) {
        if (value != nullptr) value->append(first, at_);
        add_replacement(value);
        first = at_ + skip;
      }
      at_ += bytes > 0 ? bytes : skip;
    } while (at_ < end_ && static_cast<unsigned char>(*at_) >= 0x80);
    if (value != nullptr) value->append(first, at_);
  }
  ++at_;
}

unsigned JsonLine::scan_hex() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < end_ ? *at_ : ' ';
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c))
      code = 16 * code + static_cast<unsigned>(c - '0');
    else if ('a' <= lower && lower <= 'f')
      code = 16 * code + static_cast<unsigned>(lower - 'a') + 10;
    else
      fail("expected four hexadecimal digits behind \\u");
  }
  return code;
}

void JsonLine::scan_escape(std::string* value) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  ++at_;
  const auto letter = at_ < end_ ? kLetters.find(*at_) : std::string_view::npos;
  if (letter != std::string_view::npos) {
    ++at_;
    if (value != nullptr) *value += kMeant[letter];
    return;
  }
  if (at_ == end_ || *at_ != 'u') fail("an escape that JSON does not have");
  ++at_;
  auto code = scan_hex();
  if (0xd800 <= code && code < 0xdc00 && end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u') {
    const char* second = at_;
    at_ += 2;
    const auto low = scan_hex();
    if (0xdc00 <= low && low < 0xe000)
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    else
      at_ = second;  // a character of its own
  }
  if (0xd800 <= code && code < 0xe000)
    add_replacement(value);
  else if (value != nullptr)
    append_utf8(*value, code);
}

// U+FFFD, which is counted where the value is read.
void JsonLine::add_replacement(std::string* value) {
  if (value == nullptr) return;
  if (value != &key_) ++replaced_;
  append_utf8(*value, 0xfffd);
}

}  // namespace lockstep
