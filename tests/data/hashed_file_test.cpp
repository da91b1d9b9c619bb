#include "data/hashed_file.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "tests/files.h"

namespace lockstep::testing::hashed_file_test {

// Writes that are buffered and ones too large for it, in any order; and continuing from any length.
TEST(HashedFile, has_the_written_bytes_in_order) {
  const TemporaryDirectory directory;
  const auto path = directory / "file";
  std::mt19937_64 random(7);
  std::string all;
  for (int begin = 0; begin < 20; ++begin) {
    const std::string header = "a header of 20 bytes";
    const auto kept = begin == 0 ? 0 : header.size() + random() % (all.size() - header.size());
    all.replace(0, std::min(all.size(), header.size()), header);
    all.resize(std::max(kept, header.size()));
    HashedFile file(path, std::as_bytes(std::span(header)), static_cast<std::int64_t>(kept));
    for (int i = 0; i < 30; ++i) {
      constexpr std::size_t kSizes[] = {0, 1, 7'606, 131'072, 131'073, 140'000, 262'144, 400'000};
      const std::string bytes(kSizes[random() % 8], static_cast<char>(random()));
      file.write(std::as_bytes(std::span(bytes)));
      all += bytes;
      if (random() % 8 == 0) file.flush();
    }
    file.commit();
    ASSERT_TRUE(slurp(path) == all) << begin;
    ASSERT_EQ(file.hash(), hash_hex(all)) << begin;
  }
}

}  // namespace lockstep::testing::hashed_file_test
