#include "dist/job/roster.h"

#include <gtest/gtest.h>

#include "core/zstd.h"

namespace lockstep::testing::roster_test {

TEST(Roster, keeps_the_host_of_each_rank) {
  const Roster roster{.pid = 4711, .hosts = {"n1", "n1", "", "n3"}};
  const auto read = decode_roster(encode(roster));
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.hosts, roster.hosts);
}

TEST(Roster, takes_few_bytes_a_host) {
  Roster roster;
  for (int rank = 0; rank < 16'384; ++rank)
    roster.hosts.push_back(str("gpu-node-", 1000 + 7 * (rank / 8), ".cluster.example.org"));
  EXPECT_LT(encode(roster).size(), 40u * 2048);
}

TEST(Roster, that_is_damaged_is_an_error) {
  auto bytes = encode({.pid = 1, .hosts = {"n1", "n2"}});
  EXPECT_THROW(decode_roster(std::span(bytes).first(bytes.size() - 1)), DataError);
  EXPECT_THROW(decode_roster(as_bytes("no zstd")), DataError);
  EXPECT_THROW(decode_roster({}), DataError);
  EXPECT_THROW(decode_roster(zstd_compressed(as_bytes("x"))), DataError);
  EXPECT_THROW(decode_roster(zstd_compressed(BodyWriter().number(1).number(5000).take())),
               DataError);
}

TEST(Zstd, restores_bytes_of_any_size) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20}) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<std::byte>(i % 251);
    EXPECT_TRUE(zstd_decompressed(zstd_compressed(bytes), size) == bytes) << size;
  }
}

TEST(Zstd, rejects_more_than_the_caller_allows) {
  EXPECT_THROW(zstd_decompressed(zstd_compressed(Bytes(1001)), 1000), DataError);
  EXPECT_EQ(zstd_decompressed(zstd_compressed(Bytes(1000)), 1000).size(), 1000u);
}

}  // namespace lockstep::testing::roster_test
