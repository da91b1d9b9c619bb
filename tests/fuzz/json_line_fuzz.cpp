// Any line is taken or refused as core/json takes or refuses what mended_json_lines() makes of it,
// with the same texts; but for twice the same key, and numbers without a double, which core
// refuses.
#include "core/json.h"
#include "data/json_line.h"
#include "data/odd_input.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

bool is_of_core_alone(const std::string& why) {
  for (const char* reason : {"twice", "number overflow", "nested"})
    if (why.find(reason) != std::string::npos) return true;
  return false;
}

Json mended(std::string_view text) {
  OddInput odd;
  return Json::parse(mended_json_lines(text, "line", odd), "line", 256);
}

// A list of objects.
void check_list(std::string_view text) {
  JsonLine line("talk.messages", {"role", "content"});
  bool taken = true;
  try {
    line.scan(text);
  } catch (const JsonLine::Problem& problem) {
    LOCKSTEP_CHECK(problem.byte <= text.size(), "byte ", problem.byte, " of ", text.size());
    taken = false;
  }
  try {
    const auto json = mended(text);
    const auto& list = json.at("talk").at("messages").as_array();
    for (const auto& element : list) {
      element.at("role").as_string();
      element.at("content").as_string();
    }
    LOCKSTEP_CHECK(taken && line.elements() == list.size(), "refused what core takes");
    for (std::size_t i = 0; i < list.size(); ++i)
      LOCKSTEP_CHECK(line.value(i, 0) == list[i].at("role").as_string() &&
                         line.value(i, 1) == list[i].at("content").as_string(),
                     "another text");
  } catch (const DataError& error) {
    LOCKSTEP_CHECK(!taken || is_of_core_alone(error.what()),
                   "takes what core refuses: ", error.what());
  }
}

void check(std::string_view text) {
  check_list(text);
  JsonLine line({"text", "meta.body"});
  bool taken = true;
  try {
    line.scan(text);
  } catch (const JsonLine::Problem& problem) {
    LOCKSTEP_CHECK(problem.byte <= text.size(), "byte ", problem.byte, " of ", text.size());
    taken = false;
  }
  try {
    const auto json = mended(text);
    const auto& value = json.at("text").as_string();
    const auto& nested = json.at("meta").at("body").as_string();
    LOCKSTEP_CHECK(taken, "refused what core takes");
    LOCKSTEP_CHECK(line.value(0) == value && line.value(1) == nested, "another text");
  } catch (const DataError& error) {
    LOCKSTEP_CHECK(!taken || is_of_core_alone(error.what()),
                   "takes what core refuses: ", error.what());
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      R"({"text": "a\u00e9\ud83d\ude00\n", "meta": {"body": "b", "n": [1, -2.5e3, true, null]}})",
      R"({"talk": {"messages": [{"role": "user", "content": "a\\u00e9"},)"
      R"({"n": [1], "content": "", "role": ""}]}, "x": 1})",
      R"({"meta":{"body":""},"x":[{},[],"\\\""],"text":""})"};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::check_text(lockstep::fuzz::check, data, size);
}
