// Any pattern is rejected, or its parts together are the text.
#include "data/tokenizer/split_pattern.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::split_pattern_fuzz {
void check(std::string_view text) {
  const SplitPattern pattern{std::string(text)};
  const std::string sample = "It's 12 \xc3\xa9\xcc\x81\xc2\xb2 \n\n x";
  std::string joined;
  pattern.split(sample, [&](std::string_view part, bool) {
    LOCKSTEP_CHECK(!part.empty(), "a part of nothing");
    joined += part;
  });
  LOCKSTEP_CHECK(joined == sample, "another text");
}

Seeds seeds() {
  return {
      R"((?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}[\x{41}-\u0061]]+|\s+(?!\S)|\s+$)",
      R"((\w\W|[]\h\S-])??(?<=a|\.)(?!\P{Han}{2,}?)^[^-a]*+)"};
}

const Target target("split_pattern", seeds, check);

}  // namespace lockstep::fuzz::split_pattern_fuzz
