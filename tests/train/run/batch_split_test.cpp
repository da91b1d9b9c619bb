#include "train/run/batch_split.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "data/loader.h"
#include "tests/data/shards.h"
#include "tests/wording.h"

namespace lockstep::testing::batch_split_test {

struct Case {
  std::int64_t sequences, ranks, tensor, micro_batch, computed;
};

Config config_of(const Case& one) {
  constexpr std::int64_t kLength = 16;
  Config c;
  c.train.sequence_length = kLength;
  c.train.batch_tokens = one.sequences * kLength;
  c.train.micro_batch = one.micro_batch;
  c.layout.ranks = one.ranks;
  c.layout.tensor = one.tensor;
  c.layout.shard = one.ranks / one.tensor;
  return c;
}

// Counts the sequences that the loaders of all data parallel ranks return in a step: all, and the
// masked ones.
std::pair<std::int64_t, std::int64_t> read(const Config& c, const std::filesystem::path& dataset) {
  std::int64_t all = 0, masked = 0;
  const auto ranks = static_cast<int>(c.layout.ranks / c.layout.tensor);
  for (int rank = 0; rank < ranks; ++rank) {
    Arena pinned(Device{}, Arena::Memory::host, 1 << 20);
    Loader loader({.sources = {{.paths = {dataset.string()}}},
                   .sequence_length = static_cast<int>(c.train.sequence_length),
                   .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length},
                  static_cast<int>(c.train.micro_batch), rank, ranks, pinned);
    for (int m = 0; m < loader.micro_steps(); ++m) {
      const Batch batch = loader.batch(0, m);
      for (std::int64_t i = 0; i < c.train.micro_batch; ++i) {
        ++all;
        const auto* targets = batch.targets.as<std::int32_t>() + i * c.train.sequence_length;
        masked += std::all_of(targets, targets + c.train.sequence_length,
                              [](std::int32_t target) { return target == -1; });
      }
      loader.release(batch);
    }
  }
  return {all, masked};
}

TEST(BatchSplit, a_step_is_split_as_loaders_read_it) {
  const TemporaryDirectory directory;
  write_dataset(directory / "d", random_documents(40 * 16 + 1), 997);
  for (const Case& one :
       {Case{8, 1, 1, 4, 8}, Case{8, 4, 1, 2, 8}, Case{3, 1, 1, 2, 4}, Case{2, 4, 1, 1, 4},
        Case{2, 4, 2, 1, 2}, Case{8, 3, 1, 2, 12}, Case{9, 6, 2, 1, 9}, Case{12, 2, 1, 4, 16}}) {
    const Config c = config_of(one);
    const auto split = step_split(c);
    const auto [all, masked] = read(c, directory / "d");
    SCOPED_TRACE(str(one.sequences, " sequences on ", one.ranks, " ranks"));
    EXPECT_EQ(split.computed, one.computed);
    EXPECT_EQ(split.computed, all);
    EXPECT_EQ(split.computed - split.sequences, masked);
    EXPECT_EQ(split.micro_batches * split.data_ranks * one.micro_batch, all);
    EXPECT_EQ(masked_in_words(c).empty(), masked == 0);
  }
}

TEST(BatchSplit, reports_masked_sequences_and_how_to_avoid_them) {
  for (const Case& one : {Case{512, 1024, 1, 1, 1024}, Case{6, 2, 1, 2, 8}, Case{3, 1, 1, 2, 4}}) {
    const auto text = masked_in_words(config_of(one));
    for (const auto number : {one.sequences, one.computed, one.computed - one.sequences})
      expect_contains(text, std::to_string(number));
    expect_wording("train/batch_split", str(one.sequences, " sequences on ", one.ranks, " ranks"),
                   text);
  }
}

}  // namespace lockstep::testing::batch_split_test
