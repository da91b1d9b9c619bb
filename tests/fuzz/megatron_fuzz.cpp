// Any Megatron index is refused, or says of each document where it ends, rising within the tokens.
#include <algorithm>

#include "data/megatron.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

template <class Number>
void append(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string index_of(std::uint8_t code, int token_bytes, const std::vector<std::int32_t>& lengths,
                     const std::vector<std::int64_t>& documents) {
  std::string bytes("MMIDIDX\0\0", 9);
  append(bytes, std::uint64_t{1});
  append(bytes, code);
  append(bytes, std::uint64_t{lengths.size()});
  append(bytes, std::uint64_t{documents.size()});
  for (const auto length : lengths)
    append(bytes, length);
  std::int64_t offset = 0;
  for (const auto length : lengths) {
    append(bytes, offset);
    offset += std::int64_t{length} * token_bytes;
  }
  for (const auto document : documents)
    append(bytes, document);
  return bytes;
}

// Not a DataError: what passed the check may not be refused later.
void use(const MegatronIndex& index) {
  std::vector<std::int64_t> all;
  try {
    index.for_each([&](std::int64_t end) { all.push_back(end); });
    for (std::size_t i = 0; i < all.size(); ++i)
      LOCKSTEP_CHECK(all[i] > (i == 0 ? 0 : all[i - 1]) && all[i] <= index.tokens(), "end ",
                     all[i]);
    for (const std::int64_t token : {std::int64_t{0}, index.tokens() / 2, index.tokens()}) {
      const auto found = index.first_after(token);
      const auto above = std::upper_bound(all.begin(), all.end(), token);
      LOCKSTEP_CHECK(found == index.count() ? above == all.end()
                                            : above != all.end() && index.end(found) == *above,
                     "the first end above ", token);
    }
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {index_of(8, 2, {3, 0, 5, 2}, {0, 2, 2, 4}), index_of(4, 4, {7}, {0, 1}),
          index_of(5, 8, {1, 1, 1}, {0, 1, 2, 3})};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  static const fuzz::MemoryFile file;
  file.set(data, size);
  try {
    const MegatronIndex index(ReadFile(file.path()));
    (void)index.first_after(index.tokens() / 2);  // as a run does, which has not checked all
    index.check();
    fuzz::use(index);
  } catch (const DataError&) {
  }
  return 0;
}
