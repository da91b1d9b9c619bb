// Any list of document ends is refused, or rises within its shard and is searched rightly. The
// first two bytes of the input are the tokens of the shard, the rest is the list.
#include <algorithm>
#include <cstring>

#include "data/document_ends.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

std::string list(std::uint16_t tokens, const std::vector<std::uint64_t>& ends) {
  std::string bytes(reinterpret_cast<const char*>(&tokens), sizeof tokens);
  for (const auto end : ends)
    bytes.append(reinterpret_cast<const char*>(&end), sizeof end);
  return bytes;
}

void check(const std::filesystem::path& path, std::int64_t bytes, std::int64_t tokens) {
  const EndsList ends(ReadFile(path), bytes / 8, tokens);
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

}  // namespace

std::vector<std::string> seeds() {
  return {list(100, {1, 2, 50, 99, 100}), list(65535, {65535}), list(7, {})};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lockstep::fuzz::MemoryFile file;
  std::uint16_t tokens = 0;
  if (size < sizeof tokens) return 0;
  std::memcpy(&tokens, data, sizeof tokens);
  file.set(data + 2, size - 2);
  try {
    lockstep::fuzz::check(file.path(), static_cast<std::int64_t>(size) - 2, tokens);
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
