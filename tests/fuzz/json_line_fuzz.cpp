// The scanner of lines accepts a line if core/json accepts the result of mended_json_lines(), with
// the same texts. Exceptions are duplicate keys and numbers beyond a double, which core rejects.
#include "core/json.h"
#include "data/input_defects.h"
#include "data/pack/json_line.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::json_line_fuzz {
bool is_of_core_alone(const std::string& why) {
  for (const char* reason : {"twice", "number overflow", "nested"})
    if (why.find(reason) != std::string::npos) return true;
  return false;
}

using Texts = std::vector<std::string>;  // those of the fields, in order

void check_line(std::string_view text, JsonLine& line, Texts (*by_core)(const Json&),
                Texts (*by_line)(const JsonLine&)) {
  bool taken = true;
  try {
    line.scan(text);
  } catch (const JsonLine::Problem& problem) {
    LOCKSTEP_CHECK(problem.byte <= text.size(), "byte ", problem.byte, " of ", text.size());
    taken = false;
  }
  try {
    InputDefects odd;
    const auto texts = by_core(Json::parse(mended_json_lines(text, "line", odd), "line", 256));
    LOCKSTEP_CHECK(taken, "refused what core takes");
    LOCKSTEP_CHECK(by_line(line) == texts, "another text");
  } catch (const DataError& error) {
    LOCKSTEP_CHECK(!taken || is_of_core_alone(error.what()),
                   "takes what core refuses: ", error.what());
  }
}

void check(std::string_view text) {
  JsonLine list("talk.messages", {"role", "content"});
  check_line(
      text, list,
      [](const Json& json) {
        Texts texts;
        for (const auto& element : json.at("talk").at("messages").as_array())
          for (const char* field : {"role", "content"})
            texts.push_back(element.at(field).as_string());
        return texts;
      },
      [](const JsonLine& line) {
        Texts texts;
        for (std::size_t i = 0; i < line.elements(); ++i)
          for (const std::size_t field : {0, 1})
            texts.push_back(line.value(i, field));
        return texts;
      });
  JsonLine fields({"text", "meta.body"});
  check_line(
      text, fields,
      [](const Json& json) {
        return Texts{json.at("text").as_string(), json.at("meta").at("body").as_string()};
      },
      [](const JsonLine& line) {
        return Texts{line.value(0), line.value(1)};
      });
}

Seeds seeds() {
  return {
      R"({"text": "a\u00e9\ud83d\ude00\n", "meta": {"body": "b", "n": [1, -2.5e3, true, null]}})",
      R"({"talk": {"messages": [{"role": "user", "content": "a\\u00e9"},)"
      R"({"n": [1], "content": "", "role": ""}]}, "x": 1})",
      R"({"meta":{"body":""},"x":[{},[],"\\\""],"text":""})"};
}

const Target target("json_line", seeds, check);

}  // namespace lockstep::fuzz::json_line_fuzz
