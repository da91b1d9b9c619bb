// Members of Hugging Face's config.json: typed access, and the check of those that must have one
// value. families_config.cpp reads with it.
#pragma once

#include <string>
#include <utility>

#include "core/json.h"
#include "model/config.h"

namespace lockstep {

constexpr char kKeepOne[] = "Keep the right one of the two.";

// Reads members of an object. A message names the file, the member, what is expected and what is
// there. null is a value like any other: only given() takes it for an absent member.
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
  // "FILE: KEY: expected EXPECTED, got VALUE. ADVICE"; nullptr is "nothing".
  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json* got,
                           const std::string& advice = "") const;
  std::int64_t integer(const char* key) const {
    const Json& value = needed(key);
    if (!value.is_integer()) refuse(key, "an integer", &value);
    return value.as_integer();
  }
  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : integer(key);
  }
  double number(const char* key) const {
    const Json& value = needed(key);
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
  // A size that stands under one of two names; both may be there when they are equal.
  std::int64_t integer_of(const char* key, const char* alias) const {
    if (find(alias) == nullptr) return integer(key);
    const auto size = integer(alias);
    if (integer(key, size) == size) return size;
    refuse(alias, str(key, " (", integer(key), ")"), find(alias), kKeepOne);
  }
  const Json& json() const { return json_; }
  const std::string& file() const { return file_; }

 private:
  const Json& needed(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) throw DataError(str(file_, ": ", key, ": missing"));
    return *value;
  }

  const Json& json_;
  std::string file_;
};

// Whether two values are equal; 1 equals 1.0.
bool is_same(const Json& a, const Json& b);

// Throws DataError if a member that must have one of some values in this family has another one.
// These are the members that change what `transformers` computes to what Lockstep cannot compute.
void check_fixed_members(const Keys& keys, Family family);

}  // namespace lockstep
