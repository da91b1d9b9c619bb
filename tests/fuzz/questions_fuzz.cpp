// Any file of questions is rejected, or has valid questions.
#include "core/error.h"
#include "tests/fuzz/fuzz.h"
#include "train/infer/choices.h"

namespace lockstep::fuzz::questions_fuzz {

Seeds seeds() {
  return {
      "{\"context\":\"The sky is \",\"choices\":[\"blue\",\"green\"],\"label\":0}\n\n"
      "{\"choice_contexts\":[\"A \",\"B\"],\"choices\":[\"x\",\"x\"],\"label\":1,\"id\":\"7\"}\r\n"
      "{\"context\":\"\\u00a0\",\"choices\":[\"a\",\"b\",\"c\"],\"label\":2,\"id\":7,"
      "\"x\":[NaN,-Infinity,\"\\ud800\"]}"};
}

void check(std::string_view text) {
  InputDefects odd;
  const auto questions = parse_questions(text, "input", odd);
  LOCKSTEP_CHECK(!questions.empty(), "no question");
  std::int64_t line = 0;
  for (const Question& question : questions) {
    LOCKSTEP_CHECK(question.line > line, "line ", question.line);
    line = question.line;
    LOCKSTEP_CHECK(question.label < question.choices.size(), "label ", question.label);
    for (std::size_t i = 0; i < question.choices.size(); ++i)
      must_accept([&] { return question.context(i); });
  }
}

const Target target("questions", seeds, check);

}  // namespace lockstep::fuzz::questions_fuzz
