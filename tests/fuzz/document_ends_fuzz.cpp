// Any list of document ends is rejected, or rises within its shard and is searched correctly. The
// first two bytes of the input are the tokens of the shard, the rest is the list.
#include <algorithm>

#include "data/document_ends.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::document_ends_fuzz {
std::string list(std::uint16_t tokens, const std::vector<std::uint64_t>& ends) {
  return raw(tokens) + raw(ends);
}

void check(std::string_view input) {
  static const MemoryFile file;
  if (input.size() < 2) return;
  const std::int64_t tokens = number_at<std::uint16_t>(input, 0);
  file.set(input.substr(2));
  const EndsList ends(ReadFile(file.path()), (std::ssize(input) - 2) / 8, tokens);
  for (const std::int64_t token : {std::int64_t{0}, tokens / 2, tokens}) {
    const auto found = ends.first_after(token);
    LOCKSTEP_CHECK(0 <= found && found <= ends.count(), "found ", found, " of ", ends.count());
  }
  std::vector<std::int64_t> all;
  ends.for_each([&](std::int64_t end) { all.push_back(end); });
  for (const std::int64_t token : {std::int64_t{0}, tokens / 2, tokens}) {
    const auto above = std::upper_bound(all.begin(), all.end(), token) - all.begin();
    LOCKSTEP_CHECK(ends.first_after(token) == above, "the first end above ", token);
    std::vector<std::int64_t> behind;
    ends.for_each_within(token, tokens, [&](std::int64_t end) { behind.push_back(end); });
    LOCKSTEP_CHECK(std::equal(behind.begin(), behind.end(), all.begin() + above, all.end()),
                   "the ends above ", token);
  }
  LOCKSTEP_CHECK(all.empty() || (all.front() >= 1 && all.back() <= tokens), "an end outside");
}

Seeds seeds() {
  return {list(100, {1, 2, 50, 99, 100}), list(65535, {65535}), list(7, {})};
}

const Target target("document_ends", seeds, check);

}  // namespace lockstep::fuzz::document_ends_fuzz
