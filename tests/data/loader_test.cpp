#include "data/loader.h"

#include <algorithm>
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

class LoaderTest : public DirectoryTest {
 protected:
  LoaderTest() {
    write_dataset(directory_ / "d", tokens_, 97);
    const Arena::Scope scope(pinned_);  // what a buffer holds before it is filled
    const auto all = pinned_.allocate("poison", DType::uint8, {pinned_.capacity_bytes()});
    std::fill(all.data, all.data + all.bytes(), std::byte{0x7f});
  }

  Loader::Config config(std::int64_t global_batch, const std::string& dataset = "d") const {
    Loader::Config config;
    config.sources = {{.paths = {at(dataset)}}};
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
  // Shows each batch, of `step` samples, of the samples [from, to).
  template <class Look>
  static void each_batch(Loader& loader, std::int64_t from, std::int64_t to, std::int64_t step,
                         const Look& look) {
    for (auto first = from; first < to; first += step)
      for (int micro = 0; micro < loader.micro_steps(); ++micro) {
        const auto batch = loader.batch(first, micro);
        look(batch, first, micro);
        loader.release(batch);
      }
  }
  static void skim(Loader& loader, std::int64_t from, std::int64_t to, std::int64_t step) {
    each_batch(loader, from, to, step, [](const auto&...) {});
  }
  // Expects row i of a step from sample `first` on to be what the order of seed 42 has there.
  void expect_in_order(const Batch& batch, std::int64_t first, std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i)
      expect_sample(batch, i, sample_at(42, 125, first + i));
  }

  const Tokens tokens_ = random_documents(1'001);  // 125 windows of 8 and the token behind
  Arena pinned_{Device{}, Arena::Memory::pinned_host, std::int64_t{1} << 21};
};

TEST_F(LoaderTest, batches_have_the_samples_of_the_order_from_any_start) {
  Loader loader(config(6), 6, 0, 1, pinned_);
  EXPECT_EQ(loader.samples(), 125);
  EXPECT_EQ(loader.micro_steps(), 1);
  const auto look = [&](const Batch& batch, std::int64_t first, int) {
    EXPECT_EQ(batch.inputs.shape, (Shape{6, kLength}));
    expect_in_order(batch, first, 6);
  };
  each_batch(loader, 0, 300, 6, look);
  constexpr std::int64_t kFar = 1'000'000'000'000;  // the far end of a long run
  for (const std::int64_t first : {std::int64_t{90}, std::int64_t{6}, std::int64_t{6}, kFar}) {
    each_batch(loader, first, first + 12, 6, look);  // a jump
    Loader resumed(config(6), 6, 0, 1, pinned_);
    each_batch(resumed, first, first + 24, 6, look);
  }
}

TEST_F(LoaderTest, without_shuffle_windows_are_in_order_once_or_repeated) {
  for (const auto& [repeat, most, samples] :
       {std::tuple{true, 0, 125}, std::tuple{false, 0, 125}, std::tuple{false, 70, 70},
        std::tuple{false, 1000, 125}}) {
    auto in_order = config(60);
    in_order.shuffle = false;
    in_order.repeat = repeat;
    in_order.most_samples = most;
    Loader loader(in_order, 60, 0, 1, pinned_);
    EXPECT_EQ(loader.samples(), samples);
    for (std::int64_t first = 0; first < 240; first += 60) {
      const auto batch = loader.batch(first, 0);
      for (std::int64_t i = 0; i < 60; ++i) {
        if (repeat || first + i < samples)
          expect_sample(batch, i, (first + i) % samples);
        else
          expect_masked(batch, i);
      }
      loader.release(batch);
    }
  }
}

// Row i of a step is sample first + i on any rank, and masked after the step's samples.
TEST_F(LoaderTest, returns_the_same_tokens_for_any_number_of_ranks_and_micro_batch) {
  constexpr std::int64_t kStep = 13;
  for (const int ranks : {1, 2, 3, 7})
    for (const int sequences : {1, 2, 5, 13, 20}) {
      SCOPED_TRACE(str(ranks, " x ", sequences));
      for (int rank = 0; rank < ranks; ++rank) {
        Loader loader(config(kStep), sequences, rank, ranks, pinned_);
        EXPECT_EQ(loader.micro_steps(), (kStep + ranks * sequences - 1) / (ranks * sequences));
        each_batch(loader, 0, 3 * kStep, kStep, [&](const Batch& batch, auto first, int micro) {
          for (std::int64_t i = 0; i < sequences; ++i) {
            const auto in_step = (std::int64_t{micro} * ranks + rank) * sequences + i;
            if (in_step < kStep)
              expect_sample(batch, i, sample_at(42, 125, first + in_step));
            else
              expect_masked(batch, i);
          }
        });
      }
    }
}

TEST_F(LoaderTest, the_documents_are_the_same_after_any_start_or_jump) {
  auto masked = config(9);  // micro-steps of 4, 4 and 1
  masked.document_mask = true;
  const auto rows_of = [](const Batch& batch) {
    std::vector<Tokens> all;
    for (std::int64_t i = 0; i < batch.inputs.shape[0]; ++i)
      for (const auto& t : {batch.inputs, batch.targets, batch.positions, batch.document_start})
        all.push_back(row(t, i));
    return all;
  };
  std::map<std::pair<std::int64_t, int>, std::vector<Tokens>> whole;
  Loader loader(masked, 4, 0, 1, pinned_);
  each_batch(loader, 0, 180, 9, [&](const Batch& batch, std::int64_t first, int micro) {
    whole[{first, micro}] = rows_of(batch);
  });
  const auto same = [&](const Batch& batch, std::int64_t first, int micro) {
    EXPECT_EQ(rows_of(batch), whole.at({first, micro})) << first << ", " << micro;
  };
  for (const std::int64_t start : {0, 9, 63, 117, 126, 153}) {  // across the end of the epoch too
    Loader resumed(masked, 4, 0, 1, pinned_);
    each_batch(resumed, start, start + 27, 9, same);
  }
  for (const std::int64_t first : {90, 9, 9, 171, 0})
    for (const int micro : {1, 0, 2}) {
      const auto batch = loader.batch(first, micro);
      same(batch, first, micro);
      loader.release(batch);
    }
}

// Nothing is compared before the end, so that each jump comes while the threads read ahead.
TEST_F(LoaderTest, a_jump_discards_batches_in_progress) {
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
  each_batch(loader, 0, 125, 5, [&](const Batch& batch, std::int64_t, int) {
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
  });
  EXPECT_GT(restarts, 20);
}

TEST_F(LoaderTest, without_the_document_mask_each_window_is_one_document) {
  for (const bool document_mask : {false, true}) {
    auto c = config(1);
    c.document_mask = document_mask;
    Loader loader(c, 10, 0, 1, pinned_);
    each_batch(loader, 0, 8, 1, [&](const Batch& batch, std::int64_t, int) {
      EXPECT_EQ(bool(batch.document_start), document_mask);
      for (std::int64_t i = document_mask ? 1 : 0; i < 10; ++i) {
        if (document_mask) {
          EXPECT_EQ(row(batch.document_start, i), Tokens(kLength, 0));
        }
        EXPECT_EQ(row(batch.positions, i), (Tokens{0, 1, 2, 3, 4, 5, 6, 7}));
      }
    });
  }
}

// One token of sample 77 is no byte: the batch that holds it is refused, those around it are not.
TEST_F(LoaderTest, a_bad_token_fails_only_its_own_batch) {
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
    const auto byte = 1024 + 2 * (token - shard * 97);
    for (int again = 0; again <= Loader::kBuffers; ++again)
      expect_refusal<DataError>("data/loader", "token of no byte",
                                {str("part_", 100 + shard, ".bin: at byte ", byte, ": "),
                                 str("token ", token - shard * 97, " "), " 257"},
                                [&] { loader.batch(first, 0); });
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(LoaderTest, a_token_beyond_the_vocabulary_of_the_model_is_an_error) {
  auto small = config(4);
  small.vocabulary = 256;
  expect_refusal<ConfigError>("data/loader", "vocabulary of the model",
                              {"model.vocabulary", "256", "257", at("d")},
                              [&] { Loader(small, 4, 0, 1, pinned_); });
  write("foreign.bin", gpt2_shard(tokens_));  // its vocabulary is unknown
  small.sources = {{.paths = {at("foreign.bin")}}};
  Loader loader(small, 4, 0, 1, pinned_);
  expect_refusal<DataError>("data/loader", "token beyond the vocabulary", {"foreign.bin", "256"},
                            [&] { loader.batch(0, 0); });
}

TEST_F(LoaderTest, a_file_truncated_during_the_run_is_reported_to_the_caller) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  skim(loader, 0, 4, 4);
  std::filesystem::resize_file(directory_ / "d/part_103.bin", 1'030);
  expect_contains(message_of<DataError>([&] { skim(loader, 4, 500, 4); }), "part_103.bin");
}

// Opens shards of this machine, and of `far` under the address https://far, and notes what is asked
// of it. Those that are gated do not come until the gate is opened, or files are stopped.
class WatchedFiles final : public ShardFiles {
 public:
  explicit WatchedFiles(std::filesystem::path far, std::vector<std::string> gated = {})
      : far_(std::move(far)), gated_(std::move(gated)) {}

  ReadFile open(const std::string& path) override {
    std::unique_lock lock(mutex_);
    const auto name = path.substr(path.rfind('/') + 1);
    ++opened_[name];
    changed_.notify_all();
    if (std::ranges::find(gated_, name) != gated_.end())
      changed_.wait(lock, [&] { return is_open_ || is_stopped_; });
    if (is_stopped_) throw AccessError("stopped");
    constexpr std::string_view kFar = "https://far/";
    if (!path.starts_with(kFar)) return ReadFile(path);
    auto file = far_ / path.substr(kFar.size());
    // For shards that are not there the first one stands in.
    if (!std::filesystem::exists(file))
      file.replace_filename("part_100" + file.extension().string());
    return ReadFile(file);
  }
  void set_ahead(const void* /*reader*/, const std::vector<std::string>& paths) override {
    note([&] { ahead_ = paths; });
  }
  void stop() override {
    note([&] { is_stopped_ = true; });
  }
  void open_gate() {
    note([&] { is_open_ = true; });
  }
  void wait_for(const std::string& name) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return opened_.contains(name); });
  }
  // A batch may come before another thread has looked ahead.
  void wait_for_ahead(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ahead_.size() == count; });
  }
  std::map<std::string, int> opened() {
    const std::lock_guard lock(mutex_);
    return opened_;
  }
  std::vector<std::string> ahead() {
    const std::lock_guard lock(mutex_);
    return ahead_;
  }
  bool is_stopped() {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  }

 private:
  template <class Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  const std::filesystem::path far_;
  const std::vector<std::string> gated_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> opened_;
  std::vector<std::string> ahead_;
  bool is_open_ = false, is_stopped_ = false;
};

// Batches in order of 32 tokens and the one behind, of shards of 16 tokens: batch i is of the
// shards 2 i to 2 i + 2.
class LoaderInOrder : public LoaderTest {
 protected:
  LoaderInOrder() { write_dataset(directory_ / "in_order", tokens_, 16); }
  Loader::Config config(WatchedFiles& files) const {
    auto c = LoaderTest::config(4, "in_order");
    c.shuffle = false;
    c.files = &files;
    return c;
  }
};

TEST_F(LoaderInOrder, while_a_batch_is_held_only_the_other_buffers_are_filled) {
  static_assert(Loader::kBuffers == 4);
  WatchedFiles files(directory_.path());
  {
    Loader loader(config(files), 4, 0, 1, pinned_);
    loader.batch(0, 0);
    files.wait_for("part_108.bin");  // the last one of batch 3
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(files.opened().contains("part_109.bin")) << "of batch 4";
}

TEST_F(LoaderInOrder, waiting_time_counts_only_if_the_threads_are_late) {
  WatchedFiles files(directory_.path(), {"part_105.bin", "part_106.bin"});
  Loader loader(config(files), 4, 0, 1, pinned_);
  loader.release(loader.batch(0, 0));
  const auto first_wait = loader.waited_seconds();
  EXPECT_GT(first_wait, 0);
  // Both threads are behind batch 1 when one of them is at batch 2 and the other one at batch 3.
  files.wait_for("part_105.bin");
  files.wait_for("part_106.bin");
  loader.release(loader.batch(32 / kLength, 0));
  EXPECT_EQ(loader.waited_seconds(), first_wait);
  files.open_gate();
}

TEST_F(LoaderInOrder, an_error_elsewhere_does_not_wait_for_a_missing_shard) {
  WatchedFiles files(directory_.path(), {"part_103.bin"});
  {
    Loader loader(config(files), 4, 0, 1, pinned_);
    const StopOnError stop(&files);
    EXPECT_EQ(loader.dataset().shards(), 63u);
  }
  EXPECT_FALSE(files.is_stopped()) << "without an error files go on";
  const auto text = message_of<Error>([&] {
    Loader loader(config(files), 4, 0, 1, pinned_);
    const StopOnError stop(&files);
    loader.release(loader.batch(0, 0));
    files.wait_for("part_103.bin");
    throw Error("something else");
  });
  EXPECT_EQ(text, "something else");
  EXPECT_TRUE(files.is_stopped());
}

TEST_F(LoaderTest, held_batches_do_not_change_before_their_release) {
  Loader loader(config(3), 3, 0, 1, pinned_);
  std::vector<std::pair<std::int64_t, Batch>> held;
  for (std::int64_t first = 0; first < 600; first += 3) {
    held.emplace_back(first, loader.batch(first, 0));
    if (held.size() < Loader::kBuffers - 1) continue;
    const auto any = static_cast<std::ptrdiff_t>(first) % (Loader::kBuffers - 1);
    for (const auto& [begin, batch] : held)
      expect_in_order(batch, begin, 3);
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

TEST_F(LoaderTest, can_be_destroyed_at_any_time) {
  for (int round = 0; round < 50; ++round) {
    Loader loader(config(40), 40, 0, 1, pinned_);
    skim(loader, 0, std::int64_t{40} * (round % 4), 40);
    if (round % 3 == 0) loader.batch(1'000'000'000'000, 0);
  }
}

TEST_F(LoaderTest, a_step_allocates_nothing) {
  auto masked = config(8);
  masked.document_mask = true;
  Loader loader(masked, 4, 0, 1, pinned_);
  skim(loader, 0, 80, 8);
  const auto before = allocations();
  skim(loader, 80, 800, 8);
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

TEST_F(LoaderTest, invalid_arguments_are_an_error) {
  auto long_windows = config(4);
  long_windows.sequence_length = 1'001;
  expect_refusal<DataError>("data/loader", "fewer tokens than a window", {"1001 tokens"},
                            [&] { Loader(long_windows, 4, 0, 1, pinned_); });
  long_windows.sequence_length = 1'000;
  EXPECT_EQ(Loader(long_windows, 4, 0, 1, pinned_).samples(), 1);
  EXPECT_THROW(Loader(config(0), 4, 0, 1, pinned_), Error);
  EXPECT_THROW(Loader(config(4), 0, 0, 1, pinned_), Error);
  EXPECT_THROW(Loader(config(4), 4, 2, 2, pinned_), Error);
  Loader loader(config(4), 4, 0, 1, pinned_);
  EXPECT_THROW(loader.batch(-1, 0), Error);
  EXPECT_THROW(loader.batch(0, 1), Error);
}

TEST_F(LoaderTest, sources_share_the_shards_ahead_and_the_destructor_clears_them) {
  WatchedFiles files(directory_.path());
  auto c = config(4);
  c.sources.clear();
  c.files = &files;
  for (int s = 0; s < 4; ++s) {
    const auto name = str("far", s);
    auto manifest =
        write_dataset(directory_ / name, random_documents(10, static_cast<std::uint64_t>(s)), 10);
    for (int i = 1; i < 300; ++i) {
      manifest.shards.push_back(manifest.shards[0]);
      manifest.shards.back().file = str("part_", 100 + i, ".bin");
    }
    write_manifest(directory_ / name, manifest);
    c.sources.push_back({.paths = {"https://far/" + name}, .weight = 1});
  }
  {
    Loader loader(c, 4, 0, 1, pinned_);
    loader.release(loader.batch(0, 0));
    files.wait_for_ahead(std::size_t{2} * 4 * 256);  // two files a shard
  }
  EXPECT_TRUE(files.ahead().empty());
}

TEST_F(LoaderTest, without_threads_a_batch_is_an_error) {
  Loader loader(config(4), 4, 0, 1, pinned_);
  {
    const NoThreads none;
    expect_refusal<TransientError>("data/loader", "without threads", {},
                                   [&] { loader.batch(0, 0); });
  }
  loader.release(loader.batch(0, 0));
}

TEST_F(LoaderTest, remote_shards_are_announced_ahead_and_closed_after_use) {
  write_dataset(directory_ / "many", random_documents(97 * 20), 97);
  WatchedFiles files(directory_.path());
  auto here = config(4, "many"), far = here;
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
      const auto ahead = files.ahead();
      EXPECT_EQ(std::ranges::count(ahead, path), 1) << step << ' ' << path;
      EXPECT_EQ(std::ranges::count(ahead, ends_name(path)), 1);
    }
    local.release(a);
    distant.release(b);
    EXPECT_LE(distant.dataset().open_shards(), 9u);
  }
  for (const auto& [name, times] : files.opened())
    EXPECT_LE(times, 2) << name;  // the next epoch is read ahead
}

}  // namespace lockstep::testing::loader_test
