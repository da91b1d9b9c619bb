#include "core/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/git_lfs.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

// Walks the text and shares how far it got, since the parser's events carry no position.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** shared) : at_(at), shared_(shared) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *shared_ = ++at_;
    return *this;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** shared_;
};

// Builds a Json from the parser's events. `open_` holds the containers not yet closed.
class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Builder(const std::string& what, int depth, const char* begin, const char* const* at)
      : what_(what), depth_(depth), begin_(begin), at_(at) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(number_integer_t value) { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) {
    // Beyond int64 a double, as the parser does beyond uint64: as_integer() then refuses it.
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) { return add(Json(value)); }
  bool string(string_t& value) { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) { fail("binary data"); }
  bool start_object(std::size_t /*size*/) { return start(true); }
  bool start_array(std::size_t /*size*/) { return start(false); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }

  bool key(string_t& name) {
    Open& top = open_.back();
    if (is_duplicate(top, name)) fail(str("the key \"", name, "\" occurs twice"));
    top.object.emplace_back(std::move(name), Json());
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) {
    // The library's text repeats the position in front of the reason, and quotes what it read,
    // which need not be UTF-8.
    std::string text = error.what();
    text.erase(0, text.find(": ") + 2);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
    fail_at(position > 0 ? position - 1 : 0, text);
  }

  Json take() { return std::move(root_); }

 private:
  struct Open {
    bool is_object = false;
    Json::Object object;  // the last key's value may still be to come
    Json::Array array;
    std::unordered_set<std::string> seen;  // the object's keys, once there are many
  };

  static bool is_duplicate(Open& top, const std::string& name) {
    constexpr std::size_t kMany = 16;
    const auto& object = top.object;
    if (object.size() < kMany)
      return std::any_of(object.begin(), object.end(), [&](auto& m) { return m.first == name; });
    if (top.seen.empty())
      for (const auto& member : object)
        top.seen.insert(member.first);
    return !top.seen.insert(name).second;
  }

  bool start(bool is_object) {
    if (open_.size() >= static_cast<std::size_t>(depth_))
      fail(str("nested deeper than ", depth_, " levels"));
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return add(done.is_object ? Json(std::move(done.object)) : Json(std::move(done.array)));
  }

  bool add(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is_object)
      open_.back().object.back().second = std::move(value);
    else
      open_.back().array.push_back(std::move(value));
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail_at(static_cast<std::size_t>(*at_ - begin_ - 1), what);  // the last byte taken
  }
  [[noreturn]] void fail_at(std::size_t position, const std::string& what) const {
    throw DataError(str(what_, ": at byte ", position, ": ", what));
  }

  const std::string& what_;
  int depth_;
  const char* begin_;
  const char* const* at_;
  std::vector<Open> open_;
  Json root_;
};

void dump_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_at(text).bytes;
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += length == 0 ? kReplacement : text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

// The shortest text that reads back as the same bits, marked as a fraction so that it also reads
// back as a double.
void dump_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void dump_value(std::string& out, const Json& json, int indent, int level);

// `each` writes member i.
template <class Each>
void dump_members(std::string& out, std::size_t count, int indent, int level, const Each& each) {
  const auto new_line = [&](int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    new_line(level + 1);
    each(i);
  }
  if (count > 0) new_line(level);
}

void dump_value(std::string& out, const Json& json, int indent, int level) {
  if (json.is_null()) out += "null";
  if (json.is_bool()) out += json.as_bool() ? "true" : "false";
  if (json.is_integer()) out += std::to_string(json.as_integer());
  if (json.is_number() && !json.is_integer()) dump_double(out, json.as_double());
  if (json.is_string()) dump_string(out, json.as_string());
  if (json.is_array()) {
    const auto& array = json.as_array();
    out += '[';
    dump_members(out, array.size(), indent, level,
                 [&](std::size_t i) { dump_value(out, array[i], indent, level + 1); });
    out += ']';
  }
  if (json.is_object()) {
    const auto& object = json.as_object();
    out += '{';
    dump_members(out, object.size(), indent, level, [&](std::size_t i) {
      dump_string(out, object[i].first);
      out += indent < 0 ? ":" : ": ";
      dump_value(out, object[i].second, indent, level + 1);
    });
    out += '}';
  }
}

const char* kind(const Json& json) {
  return json.is_null()      ? "null"
         : json.is_bool()    ? "a boolean"
         : json.is_integer() ? "an integer"
         : json.is_number()  ? "a number"
         : json.is_string()  ? "a string"
         : json.is_array()   ? "an array"
                             : "an object";
}

[[noreturn]] void fail_type(const char* expected, const Json& json) {
  throw DataError(str("expected ", expected, ", found ", kind(json)));
}

}  // namespace

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::parse(std::string_view text, const std::string& what, int depth) {
  if (text.starts_with(kGitLfsPointer))
    throw DataError(str(what, ": expected JSON, ", kGitLfsAdvice));
  // The parser takes a zero byte for the end of the text.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    throw DataError(str(what, ": at byte ", zero, ": a zero byte"));
  const char* at = text.data();
  Builder builder(what, depth, text.data(), &at);
  nlohmann::json::sax_parse(Cursor(text.data(), &at), Cursor(text.data() + text.size(), &at),
                            &builder);
  return builder.take();
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(out, *this, indent, 0);
  return out;
}

bool Json::as_bool() const {
  if (!is_bool()) fail_type("a boolean", *this);
  return std::get<bool>(value_);
}
std::int64_t Json::as_integer() const {
  if (!is_integer()) fail_type("an integer", *this);
  return std::get<std::int64_t>(value_);
}
double Json::as_double() const {
  if (is_integer()) return static_cast<double>(as_integer());
  if (!is_number()) fail_type("a number", *this);
  return std::get<double>(value_);
}
const std::string& Json::as_string() const {
  if (!is_string()) fail_type("a string", *this);
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  if (!is_array()) fail_type("an array", *this);
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  if (!is_object()) fail_type("an object", *this);
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : as_object())
    if (name == key) return &value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) throw DataError(str("the key \"", key, "\" is missing"));
  return *value;
}

void Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  as_object();
  auto& object = std::get<Object>(value_);
  for (auto& [name, old] : object) {
    if (name != key) continue;
    old = std::move(value);
    return;
  }
  object.emplace_back(std::move(key), std::move(value));
}

void Json::push(Json value) {
  if (is_null()) value_ = Array{};
  as_array();
  std::get<Array>(value_).push_back(std::move(value));
}

std::int64_t integer_at(const Json& object, const char* key, std::int64_t least,
                        std::int64_t most) {
  const Json& json = object.at(key);
  if (!json.is_integer())
    throw DataError(str('"', key, "\" is ", json.dump(), ", expected an integer"));
  const auto value = json.as_integer();
  if (value < least || value > most)
    throw DataError(str('"', key, "\" is ", value, ", expected ", least,
                        least == most       ? std::string()
                        : most == INT64_MAX ? " or more"
                                            : str(" to ", most)));
  return value;
}

const std::string& text_at(const Json& object, const char* key) {
  const Json& json = object.at(key);
  if (!json.is_string())
    throw DataError(str('"', key, "\" is ", json.dump(), ", expected a string"));
  return json.as_string();
}

const std::string& hash_at(const Json& object, const char* key) {
  constexpr std::size_t kDigits = 32;
  const auto& text = text_at(object, key);
  if (text.size() != kDigits || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw DataError(
        str('"', key, "\" is \"", text, "\", expected ", kDigits, " hexadecimal digits"));
  return text;
}

void for_each_json_line(std::string_view text, const std::string& what,
                        FunctionRef<void(const Json& json, std::int64_t line)> act) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto where = str(what, ": line ", line);
    const Json json = Json::parse(one, where);
    in_context([&] { act(json, line); }, where);
  }
}

}  // namespace lockstep
