#include "data/pack/json_line.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "data/input_defects.h"

namespace lockstep {
namespace {

constexpr int kMostLevels = 256;

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
  } catch (const DataError&) {  // such as keys that occur twice
    return "";
  }
  return text;
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
  json_ = JsonScanner(line);
  replaced_ = numbers_ = elements_ = 0;
  scan_fields(1);
  const auto after = json_.byte();
  json_.skip_space();
  if (json_.at_end()) return;
  const bool returns = json_.next() == '{' && json_.since(after).find('\r') != line.npos;
  json_.fail(returns ? kReturnsAlone : "expected the end of the line after the object");
}

// Scans the next object for the fields.
void JsonLine::scan_fields(int levels) {
  for (auto& field : fields_)
    field.found = false;
  json_.skip_space();
  if (json_.next() != '{') json_.fail("expected an object, {");
  const auto first = json_.byte();
  scan_object({(1U << fields_.size()) - 1, 0}, levels);
  for (const auto& field : fields_)
    if (!field.found)
      throw Problem{
          first,
          str("the object has no member \"", field.name, "\"", members_of(json_.since(first))),
          true};
}

// Returns the fields that the member `key` of the object at `place` may be or contain.
unsigned JsonLine::below(Place place, const std::string& key) const {
  unsigned fields = 0;
  for (std::size_t f = 0; f < fields_.size(); ++f)
    if ((place.fields >> f & 1) != 0 && fields_[f].path[place.depth] == key) fields |= 1U << f;
  return fields;
}

// Returns the field whose value is at `place`, or null. If another field lies below it, both cannot
// be strings.
JsonLine::Field* JsonLine::wanted(Place place) {
  for (std::size_t f = 0; f < fields_.size(); ++f)
    if ((place.fields >> f & 1) != 0 && fields_[f].path.size() == place.depth) return &fields_[f];
  return nullptr;
}

// Enters the object or list; returns whether it has an element.
bool JsonLine::enter(char close, int levels) {
  if (levels > kMostLevels) json_.fail(str("nested deeper than ", kMostLevels, " levels"));
  json_.skip(1);
  json_.skip_space();
  return !json_.take(close);
}

template <class Element>
void JsonLine::scan_array(int levels, Element&& scan) {
  if (!enter(']', levels)) return;
  do
    scan();
  while (!json_.ends(']', "a comma or ] after an element"));
}

void JsonLine::scan_value(Place place, int levels) {
  json_.skip_space();
  if (json_.at_end()) json_.fail("the line ends where a value is expected");
  if (auto* field = place.fields == 0 ? nullptr : wanted(place)) {
    if (json_.next() != (element_ ? '[' : '"')) {
      const auto first = json_.byte();
      scan_value({}, levels);  // which may not be JSON
      throw Problem{
          first, str("the member \"", field->name, "\" is not ", element_ ? "a list" : "a string")};
    }
    if (field->found) json_.fail(str("the member \"", field->name, "\" occurs twice"));
    field->found = true;
    if (element_) return scan_array(levels + 1, [&] { scan_element(levels + 2); });
    field->value.clear();
    replaced_ += json_.string(&field->value);
    return;
  }
  switch (json_.next()) {
    case '{': return scan_object(place, levels + 1);
    case '[': return scan_array(levels + 1, [&] { scan_value({}, levels + 1); });
    case '"': return void(json_.skip_string());
    case 't':
    case 'f':
    case 'n':
      if (!json_.take_word()) json_.fail("not JSON: expected true, false, null, or text in quotes");
      return;
    default: return scan_number();
  }
}

void JsonLine::scan_object(Place place, int levels) {
  if (!enter('}', levels)) return;
  do {
    json_.skip_space();
    if (json_.next() != '"') json_.fail("expected a key in quotes");
    key_.clear();
    json_.string(place.fields == 0 ? nullptr : &key_);
    const auto fields = place.fields == 0 ? 0 : below(place, key_);
    json_.expect(':', "a colon after the key");
    scan_value({fields, place.depth + 1}, levels);
  } while (!json_.ends('}', "a comma or } after a member"));
}

void JsonLine::scan_element(int levels) {
  auto& element = *element_;
  element.json_ = json_;
  element.replaced_ = element.numbers_ = 0;
  element.scan_fields(levels);
  json_ = element.json_;
  replaced_ += element.replaced_;
  numbers_ += element.numbers_;
  const auto count = element.fields_.size();
  const auto first = elements_++ * count;
  if (values_.size() < first + count) values_.resize(first + count);
  for (std::size_t f = 0; f < count; ++f)
    values_[first + f].swap(element.fields_[f].value);
}

void JsonLine::scan_number() {
  if (const auto bytes = not_a_number_at(json_.rest()); bytes > 0) {
    json_.skip(bytes);
    ++numbers_;
    return;
  }
  if (json_.next() != '-' && !json_.at_digit())
    json_.fail("not JSON: expected a value, with text in quotes");
  json_.number();
  if (!json_.at_digit()) return;
  json_.digits("");
  json_.fail("a number begins with 0");
}

}  // namespace lockstep
