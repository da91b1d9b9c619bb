// Json: a parsed JSON value. Objects keep the order of their keys; a duplicate key, nesting deeper
// than the limit, or anything after the value is refused, naming the byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/function_ref.h"

namespace lockstep {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json();                                                  // null
  Json(bool value) : value_(value) {}                      // NOLINT(google-explicit-constructor)
  Json(std::int64_t value) : value_(value) {}              // NOLINT(google-explicit-constructor)
  Json(int value) : value_(std::int64_t{value}) {}         // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}    // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)

  // Out of line: inlined, g++ 12 warns of members of the variant that are not there.
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  // Throws DataError "WHAT: at byte N: ...". `depth`: the most levels of nesting allowed.
  static Json parse(std::string_view text, const std::string& what, int depth = 8);

  // indent < 0: one line. Numbers that are not finite become null (JSON has none).
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // The value as a type; throws DataError "expected a string, found an array" otherwise. as_double
  // accepts integers.
  bool as_bool() const;
  std::int64_t as_integer() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  const Json* find(std::string_view key) const;  // of an object; nullptr where absent
  const Json& at(std::string_view key) const;    // throws DataError naming the missing key
  void set(std::string key, Json value);         // of an object (null becomes one); replaces
  void push(Json value);                         // of an array (null becomes one)

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// Members of an object, checked. Throw DataError naming the key, what was expected and what is
// there.
std::int64_t integer_at(const Json& object, const char* key, std::int64_t least, std::int64_t most);
const std::string& text_at(const Json& object, const char* key);
const std::string& hash_at(const Json& object, const char* key);  // as hash_hex writes it

// Calls act(json, line) for each line of text that is not empty; lines are counted from 1. Throws
// DataError naming `what` and the line, also of what act() throws.
void for_each_json_line(std::string_view text, const std::string& what,
                        FunctionRef<void(const Json& json, std::int64_t line)> act);

}  // namespace lockstep
