// JsonLine reads the texts of named fields of a line of JSON (RFC 8259), or of each object of a
// list in it, and checks the whole line. It is several times as fast as core/json, which builds
// values. It accepts and counts two things that are not JSON, but that programs write: NaN,
// Infinity and -Infinity outside of the fields, and text that is not Unicode.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_scanner.h"

namespace lockstep {

class JsonLine {
 public:
  // Names with dots are members of members: "meta.text".
  explicit JsonLine(const std::vector<std::string>& fields);

  // Reads the fields of each element of the list that is the member `list`.
  JsonLine(const std::string& list, const std::vector<std::string>& fields);

  // Scans an object in which each field is a string, or the list an array of such objects, once.
  // Throws Problem. At most 256 levels are nested. Other keys may occur twice.
  void scan(std::string_view line);

  using Problem = JsonScanner::Problem;

  const std::string& value(std::size_t field) const { return fields_[field].value; }
  std::size_t elements() const { return elements_; }
  const std::string& value(std::size_t element, std::size_t field) const {
    return values_[element * element_->fields_.size() + field];
  }
  std::size_t replaced() const { return replaced_; }  // U+FFFD in the values
  std::size_t numbers() const { return numbers_; }    // values that are NaN or Infinity

  void give_back(std::size_t most);  // memory for values of more bytes, which are lost

 private:
  struct Field {
    std::string name;
    std::vector<std::string> path;
    std::string value;
    bool found = false;
  };
  // Which fields are at or below a value, a bit each, and how many names deep the value is.
  struct Place {
    unsigned fields = 0;
    std::size_t depth = 0;
  };

  void scan_fields(int levels);
  void scan_element(int levels);
  bool enter(char close, int levels);
  void scan_value(Place place, int levels);
  void scan_object(Place place, int levels);
  template <class Element>
  void scan_array(int levels, Element&& scan);  // scan(): one element
  void scan_number();
  unsigned below(Place place, const std::string& key) const;
  Field* wanted(Place place);

  std::vector<Field> fields_;
  std::unique_ptr<JsonLine> element_;  // where a list is the one field
  std::size_t elements_ = 0;
  std::vector<std::string> values_;  // of elements, each with all its fields; more from before
  std::string key_;
  JsonScanner json_;
  std::size_t replaced_ = 0, numbers_ = 0;
};

}  // namespace lockstep
