// Access to members of Hugging Face's config.json by type, and the check of members that must have
// a fixed value. families_config.cpp uses it to read the file.
#pragma once

#include <string>
#include <utility>

#include "core/json.h"
#include "model/config.h"

namespace lockstep {

constexpr char kKeepOne[] = "Keep the right one of the two.";
constexpr char kSetRight[] =
    "Set the value that the weights were made with, or choose another model.";

// Keys reads members of an object. A message names the file, the member, the expected value and the
// value found. null is a value like any other: only given() treats it as an absent member.
class Keys {
 public:
  Keys(const Json& json, std::string file) : json_(json), file_(std::move(file)) {
    if (!json.is_object()) throw DataError(str(file_, ": expected a JSON object"));
  }
  const Json* find(const char* key) const { return json_.find(key); }
  const Json* given(const char* key) const {
    const Json* value = find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  // Message: "FILE: KEY: expected EXPECTED, got VALUE. ADVICE"; nullptr is printed as "nothing".
  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json* got,
                           const std::string& advice = "") const;
  std::int64_t integer(const char* key) const;  // accepts whole numbers such as 64.0
  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : integer(key);
  }
  double number(const char* key) const {
    const Json& value = needed(key, "a number");
    if (!value.is_number()) refuse(key, "a number", &value);
    return value.as_double();
  }
  double number(const char* key, double otherwise) const {
    return find(key) == nullptr ? otherwise : number(key);
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) refuse(key, "true or false", value);
    return value->as_bool();
  }
  // A value from 1 to `most`.
  std::int64_t size(const char* key, std::int64_t most) const {
    const auto value = integer(key);
    if (value < 1 || value > most) refuse(key, str("1 to ", most), find(key), kSetRight);
    return value;
  }
  // A size stored under one of two names. Both may be present if they are equal.
  std::int64_t size_of(const char* key, const char* alias, std::int64_t most) const {
    if (find(alias) == nullptr) return size(key, most);
    const auto value = size(alias, most);
    if (find(key) == nullptr || size(key, most) == value) return value;
    refuse(alias, str(key, " (", integer(key), ")"), find(alias), kKeepOne);
  }
  const Json& json() const { return json_; }
  const std::string& file() const { return file_; }

 private:
  const Json& needed(const char* key, const char* expected) const;

  const Json& json_;
  std::string file_;
};

// Whether two values are equal; 1 equals 1.0.
bool is_same(const Json& a, const Json& b);

// Throws DataError if a member with a fixed set of values in this family has another value. With
// another value of such a member, `transformers` computes something that Lockstep cannot compute.
void check_fixed_members(const Keys& keys, Family family);

}  // namespace lockstep
