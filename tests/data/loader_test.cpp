#include "data/loader.h"

#include <chrono>
#include <condition_variable>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <thread>

#include "data/order.h"
#include "tests/allocations.h"
#include "tests/data/shards.h"
#include "tests/no_threads.h"

namespace lockstep::testing::loader_test {

constexpr std::int64_t kLength = 8;  // of a sequence

Tokens row(ConstTensor tensor, std::int64_t i) {
  const auto* data = tensor.as<std::int32_t>() + i * tensor.shape[1];
  return {data, data + tensor.shape[1]};
}

class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    write_dataset(directory_ / "d", tokens_, 97);
    const Arena::Scope scope(pinned_);  // what a buffer holds before it is filled
    const auto all = pinned_.allocate("poison", DType::uint8, {pinned_.capacity_bytes()});
    std::fill(all.data, all.data + all.bytes(), std::byte{0x7f});
  }

  Loader::Config config(std::int64_t global_batch) const {
    Loader::Config config;
    config.sources = {{.paths = {(directory_ / "d").string()}}};
    config.seed = 42;
    config.sequence_length = int{kLength};
    config.global_batch_sequences = global_batch;
    return config;
  }

  // Expects inputs and targets of row i to be sample `sample` of the dataset.
  void expect_sample(const Batch& batch, std::int64_t i, std::int64_t sample) const {
    EXPECT_EQ(row(batch.inputs, i), slice(tokens_, sample * kLength, kLength)) << "row " << i;
    EXPECT_EQ(row(batch.targets, i), slice(tokens_, sample * kLength + 1, kLength)) << "row " << i;
  }
  static void expect_masked(const Batch& batch, std::int64_t i) {
    EXPECT_EQ(row(batch.inputs, i), Tokens(kLength, 0)) << "row " << i;
    EXPECT_EQ(row(batch.targets, i), Tokens(kLength, -1)) << "row " << i;
  }

  // What all `ranks` read in the steps [0, steps), concatenated in the order of the global batch;
  // masked rows must be at the end of a step's and are left out.
  std::vector<Tokens> read_all(int ranks, int sequences, std::int64_t global_batch, int steps) {
    std::vector<Tokens> all;
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank)
      loaders.push_back(
          std::make_unique<Loader>(config(global_batch), sequences, rank, ranks, pinned_));
    for (int step = 0; step < steps; ++step) {
      bool masked = false;
      for (int micro = 0; micro < loaders[0]->micro_steps(); ++micro) {
        for (const auto& loader : loaders) {
          const auto batch = loader->batch(step * global_batch, micro);
          for (int i = 0; i < sequences; ++i) {
            auto tokens = row(batch.inputs, i);
            const auto targets = row(batch.targets, i);
            EXPECT_TRUE(!masked || targets[0] == -1) << "a valid row behind a masked one";
            masked = masked || targets[0] == -1;
            tokens.insert(tokens.end(), targets.begin(), targets.end());
            if (!masked) all.push_back(tokens);
          }
          loader->release(batch);
        }
      }
    }
    return all;
  }

  const Tokens tokens_ = random_documents(1'001);  // 125 windows of 8 and the token behind
  TemporaryDirectory directory_;
  Arena pinned_{Device{}, Arena::Memory::pinned_host, std::int64_t{1} << 21};
};

TEST_F(LoaderTest, batches_hold_the_samples_of_the_order_across_epochs) {
  Loader loader(config(6), 6, 0, 1, pinned_);
  EXPECT_EQ(loader.samples(), 125);
  EXPECT_EQ(loader.micro_steps(), 1);
  for (std::int64_t first = 0; first < 300; first += 6) {
    const auto batch = loader.batch(first, 0);
    EXPECT_EQ(batch.inputs.shape, (Shape{6, kLength}));
    for (std::int64_t i = 0; i < 6; ++i)
      expect_sample(batch, i, sample_at(42, 125, first + i));
    loader.release(batch);
  }
}

TEST_F(LoaderTest, without_shuffling_windows_follow_each_other) {
  auto in_order = config(10);
  in_order.shuffle = false;
  Loader loader(in_order, 10, 0, 1, pinned_);
  for (std::int64_t first = 0; first < 200; first += 10) {
    const auto batch = loader.batch(first, 0);
    for (std::int64_t i = 0; i < 10; ++i)
      expect_sample(batch, i, (first + i) % 125);
    loader.release(batch);
  }
}

TEST_F(LoaderTest, one_pass_masks_what_lies_behind_the_last_sample) {
  auto once = config(60);
  once.shuffle = once.repeat = false;
  Loader loader(once, 60, 0, 1, pinned_);
  for (std::int64_t first = 0; first < 240; first += 60) {
    const auto batch = loader.batch(first, 0);
    for (std::int64_t i = 0; i < 60; ++i) {
      if (first + i < 125)
        expect_sample(batch, i, first + i);
      else
        expect_masked(batch, i);
    }
    loader.release(batch);
  }
}

TEST_F(LoaderTest, one_pass_over_some_samples_masks_the_others) {
  auto some = config(60);
  some.shuffle = some.repeat = false;
  some.most_samples = 70;
  Loader loader(some, 60, 0, 1, pinned_);
  EXPECT_EQ(loader.samples(), 70);
  const auto batch = loader.batch(60, 0);
  expect_sample(batch, 9, 69);
  expect_masked(batch, 10);
  loader.release(batch);
  some.most_samples = 1000;
  EXPECT_EQ(Loader(some, 60, 0, 1, pinned_).samples(), 125);
}

TEST_F(LoaderTest, a_batch_that_does_not_divide_is_rounded_up_and_masked) {
  Loader loader(config(7), 3, 0, 1, pinned_);
  ASSERT_EQ(loader.micro_steps(), 3);
  for (const std::int64_t first : {0, 7, 14}) {
    for (int micro = 0; micro < 3; ++micro) {
      const auto batch = loader.batch(first, micro);
      for (std::int64_t i = 0, in_batch = std::int64_t{3} * micro; i < 3; ++i, ++in_batch) {
        if (in_batch < 7)
          expect_sample(batch, i, sample_at(42, 125, first + in_batch));
        else
          expect_masked(batch, i);
      }
      loader.release(batch);
    }
  }
}

TEST_F(LoaderTest, any_number_of_ranks_and_any_micro_batch_reads_the_same_global_order) {
  const auto expected = read_all(1, 1, 13, 6);
  ASSERT_EQ(expected.size(), 13u * 6u);
  for (const int ranks : {1, 2, 3, 7})
    for (const int sequences : {1, 2, 5, 13, 20})
      EXPECT_EQ(read_all(ranks, sequences, 13, 6), expected) << ranks << " x " << sequences;
}

TEST_F(LoaderTest, resuming_anywhere_continues_the_uninterrupted_order) {
  std::map<std::pair<std::int64_t, int>, std::vector<Tokens>> uninterrupted;
  const auto rows = [](const Batch& batch) {
    std::vector<Tokens> all;
    for (std::int64_t i = 0; i < batch.inputs.shape[0]; ++i)
      for (const auto& t : {batch.inputs, batch.targets, batch.positions, batch.document_start})
        all.push_back(row(t, i));
    return all;
  };
  auto masked = config(9);
  masked.document_mask = true;
  Loader whole(masked, 4, 0, 1, pinned_);
  for (std::int64_t first = 0; first < 180; first += 9) {
    for (int micro = 0; micro < 3; ++micro) {
      const auto batch = whole.batch(first, micro);
      uninterrupted[{first, micro}] = rows(batch);
      whole.release(batch);
    }
  }
  for (std::int64_t start = 0; start < 180; start += 9) {
    Loader resumed(masked, 4, 0, 1, pinned_);
    for (std::int64_t first = start; first < std::min<std::int64_t>(180, start + 27); first += 9) {
      for (int micro = 0; micro < 3; ++micro) {
        const auto batch = resumed.batch(first, micro);
        EXPECT_EQ(rows(batch), (uninterrupted[{first, micro}])) << start << " " << first;
        resumed.release(batch);
      }
    }
  }
  for (const std::int64_t first : {90, 9, 9, 171, 0})  // jumps of one loader
    for (const int micro : {1, 0, 2}) {
      const auto batch = whole.batch(first, micro);
      EXPECT_EQ(rows(batch), (uninterrupted[{first, micro}]));
      whole.release(batch);
    }
}

// Nothing is compared before the end, so that each jump comes while the threads read ahead.
TEST_F(LoaderTest, a_jump_forgets_what_is_being_read) {
  Loader loader(config(50), 50, 0, 1, pinned_);
  std::vector<std::pair<std::int64_t, Tokens>> read;
  for (std::int64_t round = 0; round < 200; ++round) {
    for (std::int64_t step = 0; step <= round % 5; ++step) {
      const auto first = 1'001 * round + 50 * step;
      const auto batch = loader.batch(first, 0);
      const auto* inputs = batch.inputs.as<std::int32_t>();
      read.emplace_back(first, Tokens(inputs, inputs + 50 * kLength));
      loader.release(batch);
    }
  }
  for (const auto& [first, inputs] : read)
    for (std::int64_t i = 0; i < 50; ++i)
      ASSERT_EQ(slice(inputs, i * kLength, kLength),
                slice(tokens_, sample_at(42, 125, first + i) * kLength, kLength));
}

TEST_F(LoaderTest, with_the_document_mask_positions_restart_at_each_document) {
  auto masked = config(5);
  masked.document_mask = true;
  Loader loader(masked, 5, 0, 1, pinned_);
  int restarts = 0;
  for (std::int64_t first = 0; first < 125; first += 5) {
    const auto batch = loader.batch(first, 0);
    for (std::int64_t i = 0; i < 5; ++i) {
      const auto inputs = row(batch.inputs, i);
      Tokens starts, positions;
      for (std::int32_t t = 0; t < kLength; ++t) {
        const bool begins = t == 0 || inputs[static_cast<std::size_t>(t)] == 256;
        starts.push_back(begins ? t : starts.back());
        positions.push_back(begins ? 0 : positions.back() + 1);
        restarts += begins && t > 0;
      }
      EXPECT_EQ(row(batch.document_start, i), starts);
      EXPECT_EQ(row(batch.positions, i), positions);
    }
    loader.release(batch);
  }
  EXPECT_GT(restarts, 20);
}

TEST_F(LoaderTest, without_it_a_window_is_one_document_and_so_is_a_masked_one) {
  Tokens count;
  for (std::int32_t t = 0; t < kLength; ++t)
    count.push_back(t);
  for (const bool document_mask : {false, true}) {
    auto c = config(1);
    c.document_mask = document_mask;
    Loader loader(c, 10, 0, 1, pinned_);
    for (std::int64_t first = 0; first < 8; ++first) {
      const auto batch = loader.batch(first, 0);
      EXPECT_EQ(bool(batch.document_start), document_mask);
      for (std::int64_t i = document_mask ? 1 : 0; i < 10; ++i) {
        if (document_mask) {
          EXPECT_EQ(row(batch.document_start, i), Tokens(kLength, 0));
        }
        EXPECT_EQ(row(batch.positions, i), count);
      }
      loader.release(batch);
    }
  }
}

// One token of sample 77 is no byte: the batch that holds it is refused, those around it are not.
TEST_F(LoaderTest, a_bad_token_stops_the_batch_that_holds_it_and_no_other) {
  Tokens bad = tokens_;
  const std::int64_t token = 77 * kLength + 3, shard = token / 97;
  bad[static_cast<std::size_t>(token)] = 257;
  write_dataset(directory_ / "d", bad, 97);
  Loader loader(config(4), 4, 0, 1, pinned_);
  int refused = 0;
  for (std::int64_t first = 0; first < 125; first += 4) {
    bool holds = false;
    for (std::int64_t i = 0; i < 4; ++i)
      holds = holds || sample_at(42, 125, first + i) == 77;
    if (!holds) {
      loader.release(loader.batch(first, 0));
      continue;
    }
    ++refused;
    const auto message = message_of<DataError>([&] { loader.batch(first, 0); });
    expect_contains(message,
                    str("part_", 100 + shard, ".bin: at byte ", 1024 + 2 * (token - shard * 97),
                        ": token ", token - shard * 97, " is 257, expected ids below 257"));
    for (int again = 0; again < Loader::kBuffers; ++again)
      expect_contains(message_of<DataError>([&] { loader.batch(first, 0); }), "is 257");
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(LoaderTest, a_token_beyond_the_vocabulary_of_the_model_is_refused) {
  auto small = config(4);
  small.vocabulary = 256;
  EXPECT_EQ(message_of<ConfigError>([&] { const Loader loader(small, 4, 0, 1, pinned_); }),
            "model.vocabulary is 256, but " + small.sources.front().paths.front() +
                " holds tokens of a vocabulary of 257");
  const auto foreign =
      directory_ / "foreign.bin";  // what its tokenizer's vocabulary is, nobody says
  spit(foreign, gpt2_shard(tokens_));
  small.sources = {{.paths = {foreign.string()}}};
  Loader loader(small, 4, 0, 1, pinned_);
  expect_contains(message_of<DataError>([&] { loader.batch(0, 0); }), "expected ids below 256");
}

TEST_F(LoaderTest, a_file_cut_during_the_run_reaches_the_caller) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  loader.release(loader.batch(0, 0));
  std::filesystem::resize_file(directory_ / "d" / "part_103.bin", 1'030);
  const auto message = message_of<DataError>([&] {
    for (std::int64_t first = 4; first < 500; first += 4)
      loader.release(loader.batch(first, 0));
  });
  expect_contains(message, "part_103.bin");
}

// The files are cut behind the first batch: what was read ahead by then is still right.
TEST_F(LoaderTest, at_least_two_batches_are_read_ahead) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  [[maybe_unused]] const auto held = loader.batch(0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int shard = 100; shard <= 110; ++shard)
    std::filesystem::resize_file(directory_ / "d" / str("part_", shard, ".bin"), 0);
  std::int64_t good = 0;
  try {
    for (std::int64_t first = 4;; first += 4, ++good) {
      const auto batch = loader.batch(first, 0);
      for (std::int64_t i = 0; i < 4; ++i)
        expect_sample(batch, i, sample_at(42, 125, first + i));
      loader.release(batch);
    }
  } catch (const DataError&) {
  }
  EXPECT_EQ(good, Loader::kBuffers - 1);
  loader.release(held);
}

TEST_F(LoaderTest, time_is_waited_only_where_the_threads_are_behind) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  loader.release(loader.batch(0, 0));
  const auto first_wait = loader.waited_seconds();
  EXPECT_GT(first_wait, 0);
  for (std::int64_t first = 4; first < 40; first += 4) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    loader.release(loader.batch(first, 0));
  }
  EXPECT_LT(loader.waited_seconds() - first_wait, 0.09);  // half of what was slept
}

TEST_F(LoaderTest, batches_in_hand_stay_as_they_are_however_slow_they_are_released) {
  Loader loader(config(3), 3, 0, 1, pinned_);
  std::vector<std::pair<std::int64_t, Batch>> held;
  for (std::int64_t first = 0; first < 600; first += 3) {
    held.emplace_back(first, loader.batch(first, 0));
    if (held.size() < Loader::kBuffers - 1) continue;
    const auto any = static_cast<std::ptrdiff_t>(first) % (Loader::kBuffers - 1);
    for (const auto& [at, batch] : held)
      for (std::int64_t i = 0; i < 3; ++i)
        expect_sample(batch, i, sample_at(42, 125, at + i));
    loader.release(held[static_cast<std::size_t>(any)].second);
    held.erase(held.begin() + any);
  }
}

TEST_F(LoaderTest, holding_every_buffer_is_an_error_not_a_hang) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  std::vector<Batch> held;
  for (std::int64_t first = 0; first < 4 * Loader::kBuffers; first += 4)
    held.push_back(loader.batch(first, 0));
  EXPECT_THROW(loader.batch(4 * Loader::kBuffers, 0), Error);
  loader.release(held[0]);
  EXPECT_THROW(loader.release(held[0]), Error);
  loader.release(loader.batch(4 * Loader::kBuffers, 0));
}

TEST_F(LoaderTest, it_ends_at_any_time) {
  for (int round = 0; round < 50; ++round) {
    Loader loader(config(40), 40, 0, 1, pinned_);
    for (std::int64_t first = 0; first < std::int64_t{40} * (round % 4); first += 40)
      loader.release(loader.batch(first, 0));
    if (round % 3 == 0) loader.batch(1'000'000'000'000, 0);
  }
}

TEST_F(LoaderTest, a_step_allocates_nothing) {
  auto masked = config(8);
  masked.document_mask = true;
  Loader loader(masked, 4, 0, 1, pinned_);
  const auto steps = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t first = from; first < to; first += 8)
      for (int micro = 0; micro < 2; ++micro)
        loader.release(loader.batch(first, micro));
  };
  steps(0, 80);
  const auto before = allocations();
  steps(80, 800);
  EXPECT_EQ(allocations(), before);
  const std::string copy = loader.dataset().fingerprint();
  EXPECT_EQ(copy.size(), 32u);
  EXPECT_GT(allocations(), before) << "the count does not count";
}

TEST_F(LoaderTest, a_measuring_arena_counts_the_same_bytes) {
  Arena measure = Arena::measure(Device{});
  { Loader loader(config(8), 4, 0, 1, measure); }
  const auto before = pinned_.used_bytes();
  Loader loader(config(8), 4, 0, 1, pinned_);
  EXPECT_EQ(measure.peak_bytes(), pinned_.used_bytes() - before);
  EXPECT_EQ(Loader::pinned_bytes(4, int{kLength}), measure.peak_bytes());
  EXPECT_GE(measure.peak_bytes(), Loader::kBuffers * 4 * 4 * kLength * 4);
}

TEST_F(LoaderTest, what_cannot_be_is_refused) {
  auto long_windows = config(4);
  long_windows.sequence_length = 1'001;
  expect_contains(message_of<DataError>([&] { Loader(long_windows, 4, 0, 1, pinned_); }),
                  "1001 tokens, fewer than one window of 1001");
  long_windows.sequence_length = 1'000;
  EXPECT_EQ(Loader(long_windows, 4, 0, 1, pinned_).samples(), 1);
  EXPECT_THROW(Loader(config(0), 4, 0, 1, pinned_), Error);
  EXPECT_THROW(Loader(config(4), 0, 0, 1, pinned_), Error);
  EXPECT_THROW(Loader(config(4), 4, 2, 2, pinned_), Error);
  Loader loader(config(4), 4, 0, 1, pinned_);
  EXPECT_THROW(loader.batch(-1, 0), Error);
  EXPECT_THROW(loader.batch(0, 1), Error);
}

TEST_F(LoaderTest, the_far_end_of_a_long_run_is_as_good_a_place_to_start_as_any) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  const std::int64_t first = 1'000'000'000'000;
  const auto batch = loader.batch(first, 0);
  for (std::int64_t i = 0; i < 4; ++i)
    expect_sample(batch, i, sample_at(42, 125, first + i));
  loader.release(batch);
}

// A directory under the address https://far, and what is asked of it.
class FarFiles final : public ShardFiles {
 public:
  explicit FarFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  ReadFile open(const std::string& path) override {
    const auto name = path.substr(path.rfind('/') + 1);
    const std::lock_guard lock(mutex_);
    ++opened_[name];
    return ReadFile(directory_ / path.substr(std::string_view("https://far/").size()));
  }
  void set_ahead(const void* /*reader*/, const std::vector<std::string>& paths) override {
    const std::lock_guard lock(mutex_);
    ahead_ = paths;
    changed_.notify_all();
  }
  std::map<std::string, int> opened() {
    const std::lock_guard lock(mutex_);
    return opened_;
  }
  std::size_t ahead() {
    const std::lock_guard lock(mutex_);
    return ahead_.size();
  }
  // A batch may come before another thread has looked ahead.
  bool come_to_be_ahead(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10),
                             [&] { return ahead_.size() == count; });
  }
  bool is_ahead(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return std::find(ahead_.begin(), ahead_.end(), path) != ahead_.end();
  }

 private:
  std::filesystem::path directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> opened_;
  std::vector<std::string> ahead_;
};

TEST_F(LoaderTest, sources_share_what_lies_ahead_and_a_loader_that_ends_takes_it_back) {
  FarFiles files(directory_.path());
  auto c = config(4);
  c.sources.clear();
  c.files = &files;
  for (int s = 0; s < 4; ++s) {
    const auto name = str("far", s);
    write_dataset(directory_ / name, random_documents(10 * 300, static_cast<std::uint64_t>(s)), 10);
    c.sources.push_back({.paths = {"https://far/" + name}, .weight = 1});
  }
  {
    Loader loader(c, 4, 0, 1, pinned_);
    loader.release(loader.batch(0, 0));
    EXPECT_TRUE(files.come_to_be_ahead(2 * 4 * 256)) << files.ahead();  // two files a shard
  }
  EXPECT_EQ(files.ahead(), 0u);
}

// Shards of a directory, of which one does not come until files are stopped.
class StuckFiles final : public ShardFiles {
 public:
  explicit StuckFiles(std::string stuck) : stuck_(std::move(stuck)) {}
  ReadFile open(const std::string& path) override {
    std::unique_lock lock(mutex_);
    if (!path.ends_with(stuck_)) return ReadFile(path);
    is_waited_for_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_stopped_; });
    throw AccessError("stopped");
  }
  void stop() override {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  void wait_until_it_is_waited_for() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_waited_for_; });
  }
  bool is_stopped() {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  }

 private:
  std::string stuck_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_waited_for_ = false, is_stopped_ = false;
};

TEST_F(LoaderTest, an_error_elsewhere_does_not_wait_for_a_shard_that_does_not_come) {
  write_dataset(directory_ / "many", random_documents(97 * 20), 97);
  StuckFiles files("part_101.bin");
  auto c = config(4);
  c.sources = {{.paths = {(directory_ / "many").string()}}};
  c.shuffle = false;
  c.files = &files;
  {
    Loader loader(c, 4, 0, 1, pinned_);
    const StopOnError stop(&files);
    EXPECT_EQ(loader.dataset().shards(), 20u);
  }
  EXPECT_FALSE(files.is_stopped()) << "without an error files go on";
  const auto text = message_of<Error>([&] {
    Loader loader(c, 4, 0, 1, pinned_);
    const StopOnError stop(&files);
    loader.release(loader.batch(0, 0));
    files.wait_until_it_is_waited_for();
    throw Error("something else");
  });
  EXPECT_EQ(text, "something else");
  EXPECT_TRUE(files.is_stopped());
}

TEST_F(LoaderTest, without_threads_there_is_no_batch) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  {
    const NoThreads none;
    expect_contains(message_of<TransientError>([&] { loader.batch(0, 0); }),
                    "no thread can be started");
  }
  loader.release(loader.batch(0, 0));
}

TEST_F(LoaderTest, distant_shards_are_named_ahead_and_closed_behind) {
  const auto tokens = random_documents(97 * 20);
  write_dataset(directory_ / "many", tokens, 97);
  FarFiles files(directory_.path());
  auto here = config(4), far = config(4);
  here.sources = {{.paths = {(directory_ / "many").string()}}};
  far.sources = {{.paths = {"https://far/many"}}};
  here.shuffle_shards = far.shuffle_shards = 3;  // 36 windows: 9 steps
  far.files = &files;
  Loader local(here, 4, 0, 1, pinned_), distant(far, 4, 0, 1, pinned_);
  EXPECT_EQ(Loader::shards_at_once(far), 7);
  for (std::int64_t step = 0; step < 20 * 12 / 4; ++step) {
    const auto a = local.batch(4 * step, 0), b = distant.batch(4 * step, 0);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(row(a.targets, i), row(b.targets, i));
      const auto first = distant.sources().at(4 * step + i).row.first;
      const auto path = distant.dataset().shard_path(distant.dataset().shard_of(first));
      EXPECT_TRUE(files.is_ahead(path)) << step << ' ' << path;
      EXPECT_TRUE(files.is_ahead(ends_name(path)));
    }
    local.release(a);
    distant.release(b);
    EXPECT_LE(distant.dataset().open_shards(), 9u);
  }
  const auto opened = files.opened();
  for (const auto& shard : distant.dataset().lists()[0].shards)
    EXPECT_LE(opened.at(shard.name), 2) << shard.name;  // the next epoch is read ahead
}

}  // namespace lockstep::testing::loader_test
