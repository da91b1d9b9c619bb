// Any line is taken or refused as core/json takes or refuses it, with the same texts; but for twice
// the same key, halves of surrogate pairs, and numbers without a double, which core refuses.
#include "core/json.h"
#include "data/json_line.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

void check(std::string_view text) {
  JsonLine line({"text", "meta.body"});
  bool taken = true;
  try {
    line.scan(text);
  } catch (const JsonLine::Problem& problem) {
    LOCKSTEP_CHECK(problem.byte <= text.size(), "byte ", problem.byte, " of ", text.size());
    taken = false;
  }
  try {
    const auto json = Json::parse(text, "line", 256);
    const auto& value = json.at("text").as_string();
    const auto& nested = json.at("meta").at("body").as_string();
    LOCKSTEP_CHECK(taken, "refused what core takes");
    LOCKSTEP_CHECK(line.value(0) == value && line.value(1) == nested, "another text");
  } catch (const DataError& error) {
    const std::string why = error.what();
    const auto alone = [&](const char* reason) { return why.find(reason) != std::string::npos; };
    LOCKSTEP_CHECK(!taken || alone("twice") || alone("surrogate") || alone("number overflow") ||
                       alone("nested"),
                   "takes what core refuses: ", why);
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {
      R"({"text": "a\u00e9\ud83d\ude00\n", "meta": {"body": "b", "n": [1, -2.5e3, true, null]}})",
      R"({"meta":{"body":""},"x":[{},[],"\\\""],"text":""})"};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::check_text(lockstep::fuzz::check, data, size);
}
