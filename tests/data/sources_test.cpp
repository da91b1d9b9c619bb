// A mixture of datasets, as a run reads it: shares, orders, changes on the way and resumes.
#include "data/sources.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/resource.h>

#include "data/loader.h"
#include "data/order.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/shards.h"

namespace lockstep::testing::sources_test {

constexpr int kLength = 8;

class SourcesTest : public DirectoryTest {
 protected:
  SourcesTest() {
    for (int i = 0; i < 3; ++i)
      write_dataset(directory_ / name(i), random_documents(900 + 400 * i, i + 1), 97);
  }
  static std::string name(int i) { return std::string(1, static_cast<char>('a' + i)); }

  DataSource source(const std::string& name, double weight = 1) const {
    return {.paths = {at(name)}, .weight = weight};
  }
  DataSource source(int i, double weight) const { return source(name(i), weight); }
  static Sources::Config config(std::vector<DataSource> sources) {
    return {.sources = std::move(sources), .seed = 42, .sequence_length = kLength};
  }
  static Loader::Config loader_config(std::vector<DataSource> sources, int length = kLength) {
    Loader::Config config;
    config.sources = std::move(sources);
    config.seed = 42;
    config.sequence_length = length;
    config.global_batch_sequences = 4;
    return config;
  }
  static void expect_refused(const std::string& name, std::initializer_list<std::string> pins,
                             const Sources::Config& c) {
    expect_refusal<ConfigError>("data/sources", name, pins, [&] { Sources{c}; });
  }

  // Inputs and targets of the steps of 4 samples in [first, end).
  static std::string read(Loader& loader, std::int64_t first, std::int64_t end) {
    std::string all;
    for (; first < end; first += 4) {
      const auto batch = loader.batch(first, 0);
      for (const auto& tensor : {batch.inputs, batch.targets})
        all.append(reinterpret_cast<const char*>(tensor.data),
                   static_cast<std::size_t>(tensor.bytes()));
      loader.release(batch);
    }
    return all;
  }

  // What a process of `steps` steps from `first` on reads, and the checkpoint behind them: it goes
  // on from the checkpoint of the one before, empty at first.
  std::string run(const std::vector<DataSource>& sources, std::int64_t steps, Json& checkpoint,
                  int length = kLength, RowKind rows = RowKind::windows) {
    auto config = loader_config(sources, length);
    config.rows = rows;
    Loader loader(config, 4, 0, 1, pinned_);
    std::int64_t first = 0;
    if (!checkpoint.is_null()) {
      first = checkpoint.at("first_sample").as_integer();
      const auto carry = [&](const Stretch::Source& source, std::int64_t before) {
        return loader.sources().carried_over(source, before);
      };
      loader.go_on(continued(history_in(checkpoint), first, loader.sources().history().back(),
                             carry, false));
    }
    auto text = read(loader, first, first + 4 * steps);
    Json after;
    after.set("first_sample", first + 4 * steps);
    after.set("stretches", to_json(loader.sources().history()));
    checkpoint = Json::parse(after.dump(), "checkpoint");
    return text;
  }

  // A part of a run, between two changes of it.
  struct Part {
    std::int64_t steps;
    std::vector<DataSource> sources;
    int length = kLength;
  };
  // What processes read of which each is killed after `most` steps.
  std::string run_killed(const std::vector<Part>& parts, std::int64_t most, Json& checkpoint,
                         RowKind rows = RowKind::windows) {
    std::string text;
    for (const auto& [steps, sources, length] : parts)
      for (std::int64_t done = 0; done < steps; done += most)
        text += run(sources, std::min(most, steps - done), checkpoint, length, rows);
    return text;
  }

  Arena pinned_{Device{}, Arena::Memory::pinned_host, std::int64_t{1} << 20};
};

TEST_F(SourcesTest, each_source_has_its_share_and_reads_its_rows_in_epochs) {
  const Sources sources(config({source(0, 6), source(1, 3), source(2, 1)}));
  std::array<std::vector<std::int64_t>, 3> rows;
  constexpr std::array kShares{0.6, 0.3, 0.1};
  for (std::int64_t g = 0; g < 2'000; ++g) {
    const auto [s, row] = sources.at(g);
    rows.at(s).push_back(row.first / kLength);
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_LE(std::abs(static_cast<double>(rows.at(i).size()) -
                         kShares.at(i) * static_cast<double>(g + 1)),
                2);
  }
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(sources.counters(2'000)[s], std::ssize(rows.at(s)));
    const auto seed = static_cast<std::uint64_t>(sources.history()[0].sources[s].seed);
    for (std::int64_t n = 0; n < std::ssize(rows.at(s)); ++n)
      ASSERT_EQ(rows.at(s)[static_cast<std::size_t>(n)],
                sample_at(seed, sources.rows(s).count(), n));
  }
  EXPECT_EQ(sources.total_tokens(), 900 + 1300 + 1700);
}

TEST_F(SourcesTest, weights_by_epochs_read_each_source_that_often) {
  auto a = source(0, 0), b = source(1, 0);
  a.epochs = 3;
  b.epochs = 1.5;
  const Sources sources(config({a, b}));
  const auto of_a = sources.rows(0).count(), of_b = sources.rows(1).count();
  const auto counts = sources.counters(10 * (3 * of_a + 3 * of_b / 2));
  EXPECT_NEAR(static_cast<double>(counts[0]), 30.0 * static_cast<double>(of_a), 10);
  EXPECT_NEAR(static_cast<double>(counts[1]), 15.0 * static_cast<double>(of_b), 10);
}

// Against one process that reads on over all changes: others that are killed and started again.
TEST_F(SourcesTest, killed_runs_read_what_one_reads_that_changes_its_mixture_on_the_way) {
  const std::vector<Part> parts{{30, {source(0, 1)}},
                                {20, {source(1, 1), source(0, 2), source(2, 0.5)}},
                                {25, {source(0, 1), source(2, 2)}},
                                {35, {source(2, 1), source(1, 1), source(0, 1)}}};
  Json whole;
  const auto expected = run_killed(parts, 100, whole);
  for (const std::int64_t most : {1, 3, 7}) {
    Json killed;
    EXPECT_EQ(hash_hex(run_killed(parts, most, killed)), hash_hex(expected)) << most;
    EXPECT_EQ(killed.dump(), whole.dump());
  }
  // The whole history is known at the end: any earlier step is read again as it was.
  Loader last(loader_config(parts.back().sources), 4, 0, 1, pinned_);
  last.go_on(history_in(whole));
  EXPECT_EQ(hash_hex(read(last, 0, 4 * 110)), hash_hex(expected));
  // A source that is named no more cannot be read again.
  Loader without(loader_config({source(0, 1)}), 4, 0, 1, pinned_);
  without.go_on(history_in(whole));
  expect_refusal<DataError>("data/sources", "a source that is named no more",
                            {"sample 121 ", at("b")}, [&] { read(without, 120, 200); });
}

TEST_F(SourcesTest, restarted_runs_read_the_same_rows_when_the_length_changes) {
  const std::vector<DataSource> one{source(0, 1)}, two{source(1, 1), source(0, 2)};
  const std::vector<Part> parts{
      {30, one, 8}, {20, two, 16}, {15, two, 16}, {12, one, 5}, {25, two, 32}};
  for (const auto rows : {RowKind::windows, RowKind::examples, RowKind::packed}) {
    Json whole, killed;
    EXPECT_EQ(hash_hex(run_killed(parts, 100, whole, rows)),
              hash_hex(run_killed(parts, 3, killed, rows)))
        << lockstep::name(rows);
    EXPECT_EQ(killed.dump(), whole.dump());
    EXPECT_EQ(history_in(whole).size(), 4u);
  }
}

TEST_F(SourcesTest, with_a_new_length_the_epoch_continues_without_repeating_rows) {
  Json checkpoint;
  run({source(2, 1)}, 20, checkpoint);  // 80 of 212 rows of 8 of 1700 tokens
  run({source(2, 1)}, 1, checkpoint, 32);
  auto c = config({source(2, 1)});
  c.sequence_length = 32;
  Sources sources(c);
  sources.go_on(history_in(checkpoint));
  EXPECT_EQ(sources.rows(0).count(), 53);
  std::set<std::int64_t> rows;
  for (std::int64_t g = 80; g < 80 + 53 - 20; ++g) {
    const auto row = sources.at(g).row;
    EXPECT_EQ(row.first, 32 * sample_at(42, 53, 20 + g - 80));
    rows.insert(row.first);
  }
  EXPECT_EQ(rows.size(), 33u);
  expect_refusal<DataError>("data/sources", "a row of another length",
                            {"sample 79 ", " 8 tokens", at("c"), " 32"}, [&] { sources.at(79); });
}

TEST_F(SourcesTest, batches_read_ahead_of_a_history_change_are_discarded) {
  const auto two = loader_config({source(0, 1), source(1, 1)});
  Loader loader(two, 4, 0, 1, pinned_), fresh(two, 4, 0, 1, pinned_);
  const auto now = loader.sources().history();
  loader.go_on(Sources(config({source(0, 1)})).history());
  read(loader, 0, 12);
  loader.go_on(now);
  EXPECT_EQ(hash_hex(read(loader, 12, 60)), hash_hex(read(fresh, 12, 60)));
}

TEST_F(SourcesTest, ranks_and_micro_batches_read_the_same_mixture) {
  const auto mixture = loader_config({source(0, 1), source(2, 2)});
  const auto read_by = [&](int ranks, int sequences) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank)
      loaders.push_back(std::make_unique<Loader>(mixture, sequences, rank, ranks, pinned_));
    std::array<std::string, 2> all;  // inputs, targets
    for (std::int64_t first = 0; first < 80; first += 4)
      for (int micro = 0; micro < loaders[0]->micro_steps(); ++micro)
        for (const auto& loader : loaders) {
          const auto batch = loader->batch(first, micro);
          std::size_t i = 0;
          for (const auto& tensor : {batch.inputs, batch.targets})
            all[i++].append(reinterpret_cast<const char*>(tensor.data),
                            static_cast<std::size_t>(tensor.bytes()));
          loader->release(batch);
        }
    return all;
  };
  const auto expected = read_by(1, 4);
  for (const auto& [ranks, sequences] : {std::pair{2, 2}, std::pair{4, 1}, std::pair{1, 1}})
    EXPECT_TRUE(read_by(ranks, sequences) == expected) << ranks << " x " << sequences;
}

TEST_F(SourcesTest, a_source_reads_each_row_once_per_epoch_with_any_weights) {
  Json checkpoint;
  run({source(0, 1)}, 10, checkpoint);
  run({source(0, 1), source(1, 3)}, 20, checkpoint);
  run({source(1, 1), source(0, 9)}, 10, checkpoint);
  Sources sources(config({source(1, 1), source(0, 9)}));
  sources.go_on(history_in(checkpoint));
  std::map<std::int64_t, int> times;
  std::int64_t samples = 0;
  for (std::int64_t g = 0; samples < sources.rows(1).count(); ++g)
    if (const auto [s, row] = sources.at(g); s == 1) {
      ++times[row.first];
      ++samples;
    }
  EXPECT_EQ(std::ssize(times), samples) << "a row came twice in the first epoch";
}

TEST_F(SourcesTest, the_shards_ahead_of_a_mixture_alternate_between_sources) {
  auto by_shards = config({source(0, 1), source(2, 2)});
  by_shards.shuffle_shards = 2;
  const Sources sources(by_shards);
  const auto ahead = sources.shards_ahead(10, 5);
  ASSERT_EQ(ahead.size(), 10u);
  for (std::size_t i = 0; i < ahead.size(); ++i)
    EXPECT_EQ(ahead[i].source, i % 2);
  for (std::int64_t g = 10; g < 30; ++g) {
    const auto [s, row] = sources.at(g);
    const Sources::Shard shard{s, sources.dataset(s).shard_of(row.first)};
    EXPECT_NE(std::find(ahead.begin(), ahead.end(), shard), ahead.end());
  }
}

TEST_F(SourcesTest, without_shuffle_shards_the_shards_ahead_are_in_shard_order) {
  using Shards = std::vector<Sources::Shard>;
  const Sources two(config({source(0, 1), source(1, 1)}));  // of 10 and 14 shards
  EXPECT_EQ(two.shards_ahead(70, 2), (Shards{{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
  EXPECT_EQ(two.shards_ahead(0, 1000).size(), 24u);
  // Those of rows in order come again from the first.
  auto in_order = config({source(0, 1)});
  in_order.shuffle = false;
  const Sources sources(in_order);  // 97 tokens a shard: row 12 is the tokens from 96 on
  EXPECT_EQ(sources.shards_in_order(0, 11, 5), (Shards{{0, 0}}));
  EXPECT_EQ(sources.shards_in_order(0, 12, 5), (Shards{{0, 0}}));  // and 96, the last one of them
  EXPECT_EQ(sources.shards_in_order(0, 13, 5), (Shards{{0, 0}, {0, 1}}));
  EXPECT_EQ(sources.shards_in_order(12, 40, 9), (Shards{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(sources.shards_in_order(30, 40, 2), (Shards{{0, 2}, {0, 3}}));
  EXPECT_EQ(sources.shards_in_order(30, 40, 3), (Shards{{0, 2}, {0, 3}, {0, 0}}));
  EXPECT_EQ(sources.shards_in_order(40, 40, 9), (Shards{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
}

TEST_F(SourcesTest, tokenizers_are_compared_by_hash_not_by_name) {
  const auto write_as = [&](const std::string& path, const std::string& name,
                            const std::string& hash) {
    auto manifest = write_dataset(directory_ / path, random_documents(700, 9), 97);
    manifest.format.name = name;
    manifest.tokenizer_hash = hash;
    write_manifest(directory_ / path, manifest);
  };
  write_as("other", "llama3", ByteTokenizer().about().hash);
  EXPECT_EQ(Sources(config({source(0, 1), source("other")})).count(), 2u);
  write_as("other", "unknown", "");
  EXPECT_EQ(Sources(config({source(0, 1), source("other")})).count(), 2u);
  write_as("other", "bytes", hash_hex("other"));
  expect_refused("two tokenizers of one name",
                 {at("other"), at("a"), hash_hex("other"), ByteTokenizer().about().hash},
                 config({source(0, 1), source("other")}));
  // Of which one is not known, between two that are.
  auto manifest = write_dataset(directory_ / "unknown", random_documents(500, 3), 97);
  manifest.tokenizer_hash = "";
  write_manifest(directory_ / "unknown", manifest);
  expect_refused("two tokenizers and an unknown one",
                 {at("other"), at("a"), hash_hex("other"), ByteTokenizer().about().hash},
                 config({source(0, 1), source("unknown"), source("other")}));
}

// Each row is the one that its source alone gives, however documents are told apart there.
TEST_F(SourcesTest, sources_of_all_formats_can_be_mixed) {
  const auto texts = [&](std::uint64_t seed) { return random_texts(60, 256, seed); };
  const auto with_boundary = [&](std::uint64_t seed, bool behind) {
    Tokens tokens;
    for (const auto& text : texts(seed)) {
      if (!behind) tokens.push_back(50256);
      tokens.insert(tokens.end(), text.begin(), text.end());
      if (behind) tokens.push_back(50256);
    }
    return tokens;
  };
  write_megatron(at("megatron"), texts(1), 4, 4);
  write_datatrove(at("datatrove"), texts(2));
  write("llmc.bin", gpt2_shard(with_boundary(3, false)));
  write("nano.bin", body(with_boundary(4, true), 2));
  write_dataset(at("listed"), random_documents(1'000), 97, Boundary::listed);
  const auto llmq = joined(texts(5));
  write("llmq.bin", llmq_header(2, std::ssize(llmq), 256, 0) + body(llmq, 4));
  std::vector<DataSource> sources;
  for (const char* name :
       {"megatron.bin", "datatrove.ds", "llmc.bin", "nano.bin", "listed", "llmq.bin"})
    sources.push_back(source(name, 1.0 + static_cast<double>(sources.size())));
  // By source and first token, what the first 400 samples are, which are all rows of one source.
  using Rows = std::map<std::pair<std::size_t, std::int64_t>, std::string>;
  const auto rows_of = [&](const std::vector<DataSource>& read, std::size_t first, RowKind kind) {
    auto c = loader_config(read);
    c.rows = kind;
    c.document_mask = true;
    Loader loader(c, 4, 0, 1, pinned_);
    Rows rows;
    for (std::int64_t g = 0; g < 400; ++g) {
      const auto batch = loader.batch(g / 4 * 4, 0);
      const auto [s, row] = loader.sources().at(g);
      auto& text = rows[{first + s, row.first}];
      text.clear();
      for (const auto& tensor : {batch.inputs, batch.targets, batch.document_start})
        text.append(reinterpret_cast<const char*>(tensor.data) + g % 4 * 4 * kLength, 4 * kLength);
      loader.release(batch);
    }
    return rows;
  };
  for (const auto kind : {RowKind::automatic, RowKind::packed}) {
    if (kind == RowKind::packed) sources.pop_back();  // llmq has no documents
    Rows alone;
    for (std::size_t i = 0; i < sources.size(); ++i)
      alone.merge(rows_of({sources[i]}, i, kind));
    for (const auto& [place, row] : rows_of(sources, 0, kind))
      ASSERT_TRUE(alone.at(place) == row) << place.first << ", token " << place.second;
  }
}

TEST_F(SourcesTest, masks_of_data_without_documents_apply_to_windows) {
  const std::int64_t count = 1'000;
  const auto tokens = random_tokens(count, 256);
  const auto mask = random_mask(static_cast<std::size_t>(count));
  write("q.bin", llmq_header(2, count, 256, 1) + body(tokens, 4) + mask_bits(mask));
  EXPECT_EQ(Sources(config({source("q.bin")})).row_kind(), RowKind::windows);
  auto of_llmq = loader_config({source("q.bin")});
  of_llmq.shuffle = false;
  Loader loader(of_llmq, 4, 0, 1, pinned_);
  ASSERT_EQ(loader.samples(), (count - 1) / kLength);
  for (std::int64_t g = 0; g < loader.samples(); g += 4) {
    const auto batch = loader.batch(g, 0);
    for (std::int64_t t = 0; t < 4 * kLength && g * kLength + t + 1 < count; ++t) {
      const auto place = static_cast<std::size_t>(g * kLength + t);
      ASSERT_EQ(batch.inputs.as<std::int32_t>()[t], tokens[place]);
      ASSERT_EQ(batch.targets.as<std::int32_t>()[t], mask[place + 1] != 0 ? tokens[place + 1] : -1);
    }
    loader.release(batch);
  }
  // Beside masked data that have documents too.
  write_dataset(directory_ / "masked", random_documents(count), 97, Boundary::front, mask);
  auto both = config({source("masked"), source("q.bin")});
  EXPECT_EQ(Sources(both).row_kind(), RowKind::windows);
  for (const auto kind : {RowKind::examples, RowKind::packed}) {
    both.rows = kind;
    expect_refused(str(lockstep::name(kind), " without documents"), {"q.bin"}, both);
  }
}

TEST_F(SourcesTest, many_datasets_are_read_with_a_hard_limit_of_open_files) {
  std::vector<DataSource> many;
  for (int i = 0; i < 8; ++i) {
    const auto name = str("many", i);
    write_dataset(at(name), random_documents(900, static_cast<std::uint64_t>(i) + 1), 30);
    many.push_back(source(name));  // of 30 shards
  }
  const auto in_child = [&] {
    const rlimit limit{64, 64};
    setrlimit(RLIMIT_NOFILE, &limit);
    Loader loader(loader_config(many), 4, 0, 1, pinned_);
    read(loader, 0, 900);
    std::exit(0);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
}

// Counts the shards that are opened.
class CountedShards final : public ShardFiles {
 public:
  ReadFile open(const std::string& path) override {
    opened_ += path.ends_with(".bin") ? 1 : 0;
    return ReadFile(path);
  }
  int opened() const { return opened_; }

 private:
  std::atomic<int> opened_ = 0;
};

TEST_F(SourcesTest, shards_that_are_shuffled_together_stay_open_with_many_sources) {
  constexpr int kSources = 80, kShards = 16;
  std::vector<DataSource> many;
  for (int i = 0; i < kSources; ++i) {
    const auto name = str("many", i);
    constexpr std::int64_t kShardTokens = 2 * kLength + 1;
    const auto tokens = random_documents(kShards * kShardTokens, static_cast<std::uint64_t>(i) + 1);
    write_dataset(at(name), tokens, kShardTokens);
    many.push_back(source(name));
  }
  CountedShards files;
  auto config = loader_config(many);
  config.shuffle_shards = kShards;
  config.files = &files;
  Loader loader(config, 4, 0, 1, pinned_);
  read(loader, 0, std::int64_t{2} * kSources * 2 * kShards);  // two epochs
  EXPECT_EQ(files.opened(), kSources * kShards);
}

TEST_F(SourcesTest, the_number_of_sources_is_limited_by_the_checkpoint) {
  std::vector<DataSource> many;
  for (std::size_t i = 0; i <= kMostSources; ++i) {
    const auto name = str("many", i, ".bin");
    write(name, gpt2_shard(random_tokens(30, 256, i + 1)));
    many.push_back(source(name, i == 0 ? 1e6 : 1.0));
  }
  expect_refused("too many sources", {"257", "256"}, config(many));
  many.pop_back();
  Json checkpoint;
  const auto first = run(many, 3, checkpoint);
  const auto again = run(many, 3, checkpoint);
  EXPECT_NE(first, again);
  EXPECT_EQ(checkpoint.at("first_sample").as_integer(), 24);
}

TEST_F(SourcesTest, invalid_mixtures_are_an_error) {
  write_dataset(directory_ / "copy", random_documents(900, 1), 97);
  expect_refused("the same tokens twice", {at("a"), at("copy")},
                 config({source(0, 1), source("copy")}));
  write("gpt2.bin", gpt2_shard(random_tokens(500, 50257)));
  expect_refused("documents by two tokens", {"50256", "256", "--tokenizer"},
                 config({source(0, 1), source("gpt2.bin")}));
  auto packed = config({source(0, 1)});
  packed.rows = RowKind::packed;
  packed.shuffle_shards = 3;
  expect_refused("packed rows of shuffled shards", {"data.shuffle_shards", "3", "0"}, packed);
}

}  // namespace lockstep::testing::sources_test
