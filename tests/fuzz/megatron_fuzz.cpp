// Any Megatron index is rejected, or has the end of each document, rising within the tokens.
#include <algorithm>

#include "data/megatron.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::megatron_fuzz {
std::string index_of(std::uint8_t code, int token_bytes, const std::vector<std::int32_t>& lengths,
                     const std::vector<std::int64_t>& documents) {
  std::vector<std::int64_t> offsets;
  std::int64_t offset = 0;
  for (const auto length : lengths) {
    offsets.push_back(offset);
    offset += std::int64_t{length} * token_bytes;
  }
  return std::string("MMIDIDX\0\0", 9) + raw(std::uint64_t{1}) + raw(code) + raw(lengths.size()) +
         raw(documents.size()) + raw(lengths) + raw(offsets) + raw(documents);
}

void check_ends(const MegatronIndex& index) {
  std::vector<std::int64_t> all;
  index.for_each([&](std::int64_t end) { all.push_back(end); });
  for (std::size_t i = 0; i < all.size(); ++i)
    LOCKSTEP_CHECK(all[i] > (i == 0 ? 0 : all[i - 1]) && all[i] <= index.tokens(), "end ", all[i]);
  for (const std::int64_t token : {std::int64_t{0}, index.tokens() / 2, index.tokens()}) {
    const auto found = index.first_after(token);
    const auto above = std::upper_bound(all.begin(), all.end(), token);
    LOCKSTEP_CHECK(found == index.count() ? above == all.end()
                                          : above != all.end() && index.end(found) == *above,
                   "the first end above ", token);
  }
}

void check(const std::filesystem::path& path) {
  const MegatronIndex index{ReadFile(path)};
  (void)index.first_after(index.tokens() / 2);  // as a run does, without a check of all ends
  index.check();
  must_accept([&] { check_ends(index); });
}

Seeds seeds() {
  return {index_of(8, 2, {3, 0, 5, 2}, {0, 2, 2, 4}), index_of(4, 4, {7}, {0, 1}),
          index_of(5, 8, {1, 1, 1}, {0, 1, 2, 3})};
}

const Target target("megatron", seeds, check);

}  // namespace lockstep::fuzz::megatron_fuzz
