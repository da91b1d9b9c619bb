// Shards as large as their header can say: offsets beyond 2^32 bytes, more tokens than 2^31.
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/pack/pack.h"
#include "data/pack/verify.h"
#include "tests/data/shards.h"

namespace lockstep::testing::large_test {

constexpr std::int64_t kMostInShard = 2147483647;
constexpr std::int64_t kBytes = kMostInShard + 100'000'000;

std::uint8_t byte_at(std::int64_t i) {
  return static_cast<std::uint8_t>(static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15 >> 56);
}
// One document: its beginning, then the bytes.
std::int32_t token_at(std::int64_t i) {
  return i == 0 ? 256 : byte_at(i - 1);
}

void write_text(const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary);
  std::string piece(std::size_t{1} << 20, '\0');
  for (std::int64_t first = 0; first < kBytes; first += std::ssize(piece)) {
    const auto count = std::min<std::int64_t>(std::ssize(piece), kBytes - first);
    for (std::int64_t i = 0; i < count; ++i)
      piece[static_cast<std::size_t>(i)] = static_cast<char>(byte_at(first + i));
    out.write(piece.data(), count);
  }
  LOCKSTEP_CHECK(out.good(), "cannot write ", path.string());
}

TEST(Large, full_a_shard_of_two_billion_tokens_is_packed_verified_and_read_to_its_end) {
  const TemporaryDirectory directory;
  if (std::filesystem::space(directory.path()).available < 4 * kBytes)
    GTEST_SKIP() << "needs " << 4 * kBytes / 1'000'000'000 << " GB in " << directory.path();
  write_text(directory / "text");
  PackOptions options;
  options.inputs = {directory / "text"};
  options.out = directory / "d";
  options.shard_tokens = kMostInShard;
  pack(options);
  std::filesystem::remove(directory / "text");
  const auto verified = verify(directory / "d");
  EXPECT_EQ(verified.damages, std::vector<std::string>{});
  EXPECT_EQ(verified.shards, 2);
  EXPECT_EQ(verified.tokens, kBytes + 1);

  const Dataset dataset({(directory / "d").string()});
  Tokens tokens(1000);
  for (const std::int64_t first :
       {std::int64_t{0}, (std::int64_t{1} << 30) - 500, (std::int64_t{1} << 31) - 500,
        kMostInShard - 999, kBytes + 1 - 1000}) {
    dataset.read(tokens, first);
    for (std::int64_t i = 0; i < std::ssize(tokens); ++i)
      ASSERT_EQ(tokens[static_cast<std::size_t>(i)], token_at(first + i)) << first << " + " << i;
  }

  // The last windows, in the order of the dataset.
  Loader::Config config;
  config.sources = {{.paths = {(directory / "d").string()}}};
  config.sequence_length = 64;
  config.global_batch_sequences = 4;
  config.shuffle = false;
  Arena pinned(Device{}, Arena::Memory::pinned_host, std::int64_t{1} << 20);
  Loader loader(config, 4, 0, 1, pinned);
  EXPECT_EQ(loader.samples(), kBytes / 64);
  const auto first = loader.samples() - 4;
  const Batch batch = loader.batch(first, 0);
  for (std::int64_t i = 0; i < 4 * 64; ++i) {
    ASSERT_EQ(batch.inputs.as<std::int32_t>()[i], token_at(first * 64 + i)) << i;
    ASSERT_EQ(batch.targets.as<std::int32_t>()[i], token_at(first * 64 + i + 1)) << i;
  }
  loader.release(batch);
}

}  // namespace lockstep::testing::large_test
