#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <mutex>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

#include "data/convert.h"
#include "data/inspect.h"
#include "data/megatron.h"
#include "data/rows.h"
#include "tests/data/shards.h"

namespace lockstep::testing::dataset_test {

class DatasetTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  std::string refusal(const std::vector<std::string>& paths) const {
    return message_of<DataError>([&] { Dataset dataset(paths); });
  }
  // Of a dataset that is opened, when it is read.
  std::string refusal_in_reading(const std::string& path) const {
    const Dataset dataset({path});
    return message_of<DataError>([&] { all(dataset); });
  }
  void write(const std::string& name, const std::string& bytes) const {
    const auto path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    spit(path, bytes);
  }
  static Tokens all(const Dataset& dataset) {
    Tokens tokens(static_cast<std::size_t>(dataset.tokens()));
    dataset.read(tokens, 0);
    return tokens;
  }
  TemporaryDirectory directory_;
};

TEST_F(DatasetTest, every_window_across_the_borders_of_shards_is_exact) {
  const auto tokens = random_documents(200);
  for (const std::int64_t shard_tokens : {1, 2, 7, 64, 199, 200}) {
    const auto path = str("d", shard_tokens);
    write_dataset(directory_ / path, tokens, shard_tokens);
    const Dataset dataset({at(path)});
    ASSERT_EQ(dataset.tokens(), 200);
    for (std::int64_t first = 0; first <= 200; first += 3) {
      for (std::int64_t count = 0; first + count <= 200; count += 11) {
        Tokens read(static_cast<std::size_t>(count), -7);
        dataset.read(read, first);
        ASSERT_EQ(read, slice(tokens, first, count)) << first << "+" << count;
      }
    }
    Tokens past(3);
    EXPECT_THROW(dataset.read(past, 198), Error);
    EXPECT_THROW(dataset.read(past, -1), Error);
  }
}

TEST_F(DatasetTest, shards_follow_in_the_order_of_their_names_and_paths_as_given) {
  const auto a = random_tokens(30, 50257, 1), b = random_tokens(20, 50257, 2),
             c = random_tokens(10, 50257, 3);
  write("llmc/x_train_000002.bin", gpt2_shard(b));
  write("llmc/x_train_000001.bin", gpt2_shard(a));
  write("other/c.bin", gpt2_shard(c));
  auto expected = a;
  expected.insert(expected.end(), b.begin(), b.end());
  EXPECT_EQ(all(Dataset({at("llmc")})), expected);
  expected.insert(expected.begin(), c.begin(), c.end());
  EXPECT_EQ(all(Dataset({at("other/c.bin"), at("llmc")})), expected);
}

TEST_F(DatasetTest, a_directory_of_both_splits_is_refused_and_a_pattern_chooses) {
  const auto train = random_tokens(30, 50257, 1), val = random_tokens(20, 50257, 2);
  write("fineweb/fineweb_train_000001.bin", gpt2_shard(train));
  write("fineweb/fineweb_val_000000.bin", gpt2_shard(val));
  expect_contains(refusal({at("fineweb")}), "*train*.bin");
  EXPECT_EQ(all(Dataset({at("fineweb/*train*.bin")})), train);
  EXPECT_EQ(all(Dataset({at("fineweb/*_val_*.bin")})), val);
  expect_contains(refusal({at("fineweb/*test*")}), "no file matches");
}

TEST_F(DatasetTest, a_shard_of_our_own_named_alone_keeps_its_meaning) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "d", tokens, 40);
  const Dataset dataset({at("d/part_101.bin")});
  EXPECT_EQ(dataset.format().vocabulary, 257);
  EXPECT_EQ(all(dataset), slice(tokens, 40, 40));
  EXPECT_NE(dataset.fingerprint(), Dataset({at("d")}).fingerprint());
  write("d/stray.bin", gpt2_shard(tokens));
  expect_contains(refusal({at("d/stray.bin")}), "lists");
}

TEST_F(DatasetTest, only_whole_words_of_names_say_of_which_split_a_shard_is) {
  const auto tokens = random_tokens(30, 50257);
  write("books/medieval_train_0001.bin", gpt2_shard(tokens));
  write("books/constraints_train_0001.bin", gpt2_shard(tokens));
  EXPECT_EQ(Dataset({at("books")}).tokens(), 60);
  for (const auto* name : {"val", "x_val_1", "x-val0001", "x.validation"}) {
    write(str("books/", name, ".bin"), gpt2_shard(tokens));
    expect_contains(refusal({at("books")}), "of training and of validation");
    std::filesystem::remove(directory_ / "books" / str(name, ".bin"));
  }
}

TEST_F(DatasetTest, shards_of_ours_are_not_read_without_their_manifest) {
  const auto tokens = random_documents(100);
  for (const auto boundary : {Boundary::front, Boundary::listed}) {
    write_dataset(directory_ / "d", tokens, 40, boundary, random_mask(100));
    EXPECT_EQ(Dataset({at("d/part_101.ends")}).tokens(), 40);  // any of its files names a shard
    EXPECT_EQ(Dataset({at("d/part_10*")}).tokens(), 100);
    std::filesystem::remove(directory_ / "d/dataset.json");
    for (const auto* path : {"d", "d/*.bin", "d/part_10*", "d/part_101.bin", "d/part_101.mask"}) {
      const auto message = refusal({at(path)});
      expect_contains(message, "dataset.json is missing: copy it with the shards");
      expect_contains(message, std::string(path).find("101") == std::string::npos
                                   ? at("d/part_100.bin")
                                   : at("d/part_101.bin"));
    }
    for (const auto* shard : {"part_100", "part_101", "part_102"})
      std::filesystem::remove(directory_ / "d" / str(shard, ".ends"));
    expect_contains(refusal({at("d")}),
                    "part_100.mask lies beside it, but dataset.json is missing");
  }
}

TEST_F(DatasetTest, files_that_a_manifest_lists_are_missed_at_the_start) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "d", tokens, 10, Boundary::listed, random_mask(100));
  const auto missing = [&](const std::string& name) {
    std::filesystem::remove(directory_ / "d" / name);
    return refusal({at("d")});
  };
  expect_contains(missing("part_107.mask"),
                  "d/dataset.json: of the files that it lists 1 is missing, part_107.mask; copy");
  expect_contains(missing("part_104.bin"), "2 are missing, the first is part_104.bin");
  expect_contains(missing("part_102.ends"), "3 are missing, the first is part_102.ends");
  // Of a shard, its own.
  EXPECT_EQ(Dataset({at("d/part_100.bin")}).tokens(), 10);
  EXPECT_EQ(Dataset({at("d/part_100.*")}).tokens(), 10);
  expect_contains(refusal({at("d/part_102.bin")}), "1 is missing, part_102.ends");
}

TEST_F(DatasetTest, a_manifest_may_list_shards_in_any_order) {
  auto manifest = write_dataset(directory_ / "d", random_documents(100), 10);
  std::reverse(manifest.shards.begin(), manifest.shards.end());
  write("d/dataset.json", manifest.dump());
  EXPECT_EQ(Dataset({at("d")}).tokens(), 100);
}

TEST_F(DatasetTest, paths_that_hold_no_dataset_say_what_is_missing) {
  expect_contains(refusal({at("nowhere")}), "lockstep data pack");
  std::filesystem::create_directories(directory_ / "empty");
  expect_contains(refusal({at("empty")}), "neither dataset.json nor *.bin");
  write("file", "x");
  expect_contains(refusal({at("file/below")}), at("file/below"));
  EXPECT_THROW(Dataset({}), DataError);
}

TEST_F(DatasetTest, a_directory_that_cannot_be_read_is_refused) {
  write("locked/a.bin", gpt2_shard({1, 2, 3}));
  chmod(at("locked").c_str(), 0);
  const auto message = [&] {
    const AsNobody nobody;
    return refusal({at("locked")});
  }();
  chmod(at("locked").c_str(), 0700);
  expect_contains(message, "Permission denied");
}

TEST_F(DatasetTest, shards_of_different_formats_do_not_mix) {
  write("mixed/a.bin", gpt2_shard(random_tokens(10, 256)));
  write("mixed/b.bin", llama3_shard(random_tokens(10, 256)));
  expect_contains(refusal({at("mixed")}), "llm.c Llama 3");
}

TEST_F(DatasetTest, paths_of_one_dataset_agree_in_documents_and_tokenizer) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "a", tokens, 40);
  const auto other = [&](const std::string& hash, Boundary boundary = Boundary::front) {
    auto manifest = write_dataset(directory_ / "b", tokens, 70, boundary);
    manifest.format.name = "llama3";
    manifest.format.vocabulary = 300;
    manifest.tokenizer_hash = hash;
    write("b/dataset.json", manifest.dump());
  };
  for (const auto& hash : {ByteTokenizer().about().hash, std::string()}) {
    other(hash);
    for (const auto& paths : {std::vector{at("a"), at("b")}, std::vector{at("b"), at("a")}}) {
      const Dataset both(paths);
      EXPECT_EQ(both.tokens(), 200);
      EXPECT_EQ(both.tokenizer_hash(), ByteTokenizer().about().hash);
      EXPECT_EQ(both.tokenizer_vocabulary(), 300);
      EXPECT_EQ(both.format().vocabulary, 300);
    }
  }
  other(hash_hex("other"));
  expect_contains(refusal({at("a"), at("b")}), "b/part_100.bin: the tokenizer is llama3 (");
  other("", Boundary::listed);
  expect_contains(refusal({at("a"), at("b")}),
                  "b/part_100.bin: documents are told apart by a list of their ends, but of");
  write("c.bin", gpt2_shard(tokens));
  expect_contains(refusal({at("a"), at("c.bin")}), "give each a table [[data.source]] of its own");
  // Of one dataset, in tokens of several widths.
  write_megatron(directory_ / "m", {{1, 2, 3}}, 8, 2);
  write_megatron(directory_ / "n", {{4}, {70'000, 6}}, 4, 4);
  EXPECT_EQ(all(Dataset({at("m"), at("n")})), (Tokens{1, 2, 3, 4, 70'000, 6}));
}

TEST_F(DatasetTest, a_shard_that_its_manifest_does_not_describe_is_refused) {
  const auto tokens = random_documents(100);
  const auto damaged = [&](const std::string& file, const std::string& bytes) {
    std::filesystem::remove_all(directory_ / "d");
    write_dataset(directory_ / "d", tokens, 40);
    write("d/" + file, bytes);
    return refusal_in_reading(at("d"));
  };
  expect_contains(damaged("part_101.bin", gpt2_shard(slice(tokens, 0, 39))),
                  "says 39 tokens, dataset.json says 40");
  expect_contains(damaged("part_101.bin", llama3_shard(slice(tokens, 0, 40))), "bytes a token");
  expect_contains(damaged("part_101.bin", body(slice(tokens, 0, 40), 2)),
                  "found a shard of nanoGPT");
  expect_contains(damaged("part_101.ends", "12345678"), "document ends of 8 bytes");
  // Gone since the start.
  write_dataset(directory_ / "d", tokens, 40);
  const Dataset dataset({at("d")});
  std::filesystem::remove(directory_ / "d" / "part_100.bin");
  expect_contains(message_of<DataError>([&] { all(dataset); }), "part_100.bin: cannot open");
}

// While it lives, this process may have so many files open.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = soft;
    setrlimit(RLIMIT_NOFILE, &low);
  }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;
  ~OpenFilesLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(DatasetTest, a_directory_that_cannot_be_read_now_is_an_error_of_storage) {
  write_dataset(directory_ / "d", random_documents(100), 100);
  std::filesystem::remove(directory_ / "d/dataset.json");
  expect_contains(message_of<StorageError>([&] {
                    const OpenFilesLimit limit(0);
                    Dataset dataset({at("d")});
                  }),
                  "d: cannot read the directory: Too many open files");
}

TEST_F(DatasetTest, more_shards_than_open_files_are_read) {
  const auto tokens = random_documents(2'000);
  write_dataset(directory_ / "d", tokens, 1);
  const OpenFilesLimit limit(64);
  const Dataset dataset({at("d")});
  EXPECT_EQ(all(dataset), tokens);
  EXPECT_LE(dataset.open_shards(), 256u);
  Tokens window(3);
  dataset.read(window, 0);  // of shards that were closed again
  EXPECT_EQ(window, slice(tokens, 0, 3));
  const Dataset few({at("d")}, nullptr, 16);
  EXPECT_EQ(all(few), tokens);
  EXPECT_LE(few.open_shards(), 16u);
}

TEST(OpenFiles, what_cannot_be_raised_is_shared) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  // In a child: a hard limit that was lowered stays low.
  // Callers of 768 each, one behind the other, of which the first goes again before the last comes.
  const auto in_child = [](rlim_t soft, rlim_t hard, const std::vector<std::size_t>& expected) {
    const rlimit limit{soft, hard};
    setrlimit(RLIMIT_NOFILE, &limit);
    std::deque<OpenFilesRoom> rooms;
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i + 1 < expected.size(); ++i)
      found.push_back(rooms.emplace_back(3, 768).count());
    rooms.pop_front();
    found.push_back(rooms.emplace_back(3, 768).count());
    if (found != expected)
      for (const auto count : found)
        std::cerr << count << ' ';
    std::exit(found == expected ? 0 : 1);
  };
  EXPECT_EXIT(in_child(64, 64, {8, 4, 3, 3, 3}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(in_child(64, 10'000, {768, 768, 768}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(in_child(1024, 4096, {768, 768, 640, 320, 160, 80, 424}),
              ::testing::ExitedWithCode(0), "");
  const auto small = [] { std::exit(OpenFilesRoom(3, 2).count() == 2 ? 0 : 1); };
  EXPECT_EXIT(small(), ::testing::ExitedWithCode(0), "");
}

// Counts what is opened, and how many files are at once.
class CountedFiles final : public ShardFiles {
 public:
  ReadFile open(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    ++opened_[std::filesystem::path(path).filename().string()];
    return ReadFile(path);
  }
  int opened(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return opened_[name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> opened_;
};

TEST_F(DatasetTest, a_shard_of_a_manifest_is_opened_at_its_first_use_by_what_the_caller_gives) {
  const auto tokens = random_documents(200);
  write_dataset(directory_ / "d", tokens, 50);
  CountedFiles files;
  const Dataset dataset({at("d")}, &files);
  EXPECT_EQ(dataset.tokens(), 200);
  EXPECT_EQ(dataset.shards(), 4u);
  EXPECT_EQ(dataset.open_shards(), 0u);
  Tokens window(60);
  dataset.read(window, 60);
  EXPECT_EQ(window, slice(tokens, 60, 60));
  dataset.read(window, 60);
  EXPECT_EQ(files.opened("dataset.json"), 1);
  EXPECT_EQ(files.opened("part_100.bin"), 0);
  EXPECT_EQ(files.opened("part_101.bin"), 1);
  EXPECT_EQ(files.opened("part_102.bin"), 1);
  EXPECT_EQ(files.opened("part_103.bin"), 0);
  EXPECT_EQ(dataset.open_shards(), 2u);
}

TEST_F(DatasetTest, threads_read_more_shards_than_may_be_open) {
  const auto tokens = random_documents(3'000);
  write_dataset(directory_ / "d", tokens, 5);  // 600 shards
  const Dataset dataset({at("d")});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      Tokens window(12);
      for (int i = 0; i < 2'000; ++i) {
        const auto first = static_cast<std::int64_t>(random() % 2'988);
        dataset.read(window, first);
        if (window != slice(tokens, first, 12)) ++wrong;
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(dataset.open_shards(), 260u);
}

// Each document of a dataset as it is visited.
Documents documents_of(const Dataset& dataset) {
  Documents documents;
  std::int64_t last = 0;
  dataset.for_each_document([&](std::int64_t first, std::int64_t end) {
    EXPECT_EQ(first, last);
    EXPECT_LT(first, end);
    last = end;
    documents.emplace_back(static_cast<std::size_t>(end - first));
    dataset.read(documents.back(), first);
  });
  EXPECT_EQ(last, dataset.tokens());
  return documents;
}

// The long way: cut where a token says so.
Documents cut(const Tokens& tokens, std::int32_t boundary, bool behind) {
  Documents documents;
  bool start = true;
  for (const auto token : tokens) {
    if (start || (!behind && token == boundary)) documents.emplace_back();
    documents.back().push_back(token);
    start = behind && token == boundary;
  }
  return documents;
}

TEST_F(DatasetTest, documents_are_visited_alike_by_list_and_by_scan_across_shards) {
  const auto tokens = random_documents(300);
  const auto expected = cut(tokens, 256, false);
  for (const std::int64_t shard_tokens : {1, 5, 41, 300})
    for (const auto boundary : {Boundary::front, Boundary::listed}) {
      const auto path = str("d", shard_tokens, name(boundary));
      write_dataset(directory_ / path, tokens, shard_tokens, boundary);
      EXPECT_EQ(documents_of(Dataset({at(path)})), expected) << path;
    }
  auto gpt2 = tokens;
  for (auto& token : gpt2)
    if (token == 256) token = 50256;
  write("llmc/a.bin", gpt2_shard(slice(gpt2, 0, 123)));
  write("llmc/b.bin", gpt2_shard(slice(gpt2, 123, 177)));
  EXPECT_EQ(documents_of(Dataset({at("llmc")})), cut(gpt2, 50256, false));
  write("nano/a.bin", body(slice(gpt2, 0, 123), 2));
  write("nano/b.bin", body(slice(gpt2, 123, 177), 2));
  EXPECT_EQ(documents_of(Dataset({at("nano")})), cut(gpt2, 50256, true));
}

TEST_F(DatasetTest, masks_are_read_across_shards_and_count_all_where_there_are_none) {
  const auto tokens = random_documents(500);
  const auto mask = random_mask(tokens.size());
  for (const std::int64_t shard_tokens : {7, 64, 501}) {
    const auto path = str("d", shard_tokens);
    write_dataset(directory_ / path, tokens, shard_tokens, Boundary::front, mask);
    const Dataset dataset({at(path)});
    EXPECT_TRUE(dataset.has_masks());
    for (std::int64_t first = 0; first < 450; first += 13) {
      std::vector<std::uint8_t> read(50, 7);
      dataset.read_mask(read, first);
      ASSERT_EQ(read, std::vector<std::uint8_t>(mask.begin() + first, mask.begin() + first + 50));
    }
  }
  write_dataset(directory_ / "plain", tokens, 100);
  const Dataset plain({at("plain")});
  EXPECT_FALSE(plain.has_masks());
  std::vector<std::uint8_t> read(500, 7);
  plain.read_mask(read, 0);
  EXPECT_EQ(read, std::vector<std::uint8_t>(500, 1));
}

TEST_F(DatasetTest, a_mask_of_another_length_or_with_unused_bits_is_refused) {
  const auto tokens = random_documents(100);
  const auto refused = [&](const std::string& bits) {
    write_dataset(directory_ / "d", tokens, 100, Boundary::front, random_mask(100));
    write("d/part_100.mask", bits);
    return refusal_in_reading(at("d"));
  };
  expect_contains(refused(std::string(12, '\0')), "part_100.mask: at byte 12: a loss mask of 100");
  expect_contains(refused(std::string(14, '\0')), "part_100.mask: at byte 13: a loss mask of 100");
  expect_contains(refused(std::string(12, '\0') + '\x10'), "sets bits behind its 100 tokens");
}

// Directories, pairs and patterns of others.

TEST_F(DatasetTest, a_megatron_pair_is_found_by_either_file_by_its_name_and_by_its_directory) {
  std::filesystem::create_directories(directory_ / "m");
  const auto documents = random_texts(20, 50257);
  write_megatron(directory_ / "m/text_document", documents);
  for (const char* path : {"m/text_document.bin", "m/text_document.idx", "m/text_document", "m",
                           "m/text*", "m/*.idx"}) {
    const Dataset dataset({at(path)});
    EXPECT_EQ(dataset.format().name, "Megatron") << path;
    EXPECT_EQ(documents_of(dataset), documents) << path;
    EXPECT_EQ(dataset.fingerprint(), Dataset({at("m")}).fingerprint()) << path;
  }
}

TEST_F(DatasetTest, datatrove_shards_are_found_by_any_of_their_files_and_empty_ones_left_out) {
  std::filesystem::create_directories(directory_ / "t");
  const auto a = random_texts(20, 100'000, 1), b = random_texts(20, 100'000, 2);
  write_datatrove(directory_ / "t/00000_x", a, 4);
  write_datatrove(directory_ / "t/00001_x", {}, 4);
  write_datatrove(directory_ / "t/00002_x", b, 4);
  auto both = a;
  both.insert(both.end(), b.begin(), b.end());
  for (const char* path : {"t", "t/*", "t/*.ds", "t/*.index"})
    EXPECT_EQ(documents_of(Dataset({at(path)})), both) << path;
  for (const char* path : {"t/00000_x.ds", "t/00000_x.ds.index"})
    EXPECT_EQ(documents_of(Dataset({at(path)})), a) << path;
  expect_contains(refusal({at("t/00001_x.ds")}), "00001_x.ds");
}

TEST_F(DatasetTest, a_directory_of_several_formats_or_of_none_is_refused_by_name) {
  std::filesystem::create_directories(directory_ / "m");
  write_megatron(directory_ / "m/a", random_texts(3, 100));
  write("m/b.bin", gpt2_shard(random_tokens(10, 256)));
  expect_contains(refusal({at("m")}), "m/b.bin: llm.c GPT-2");
  write("u/x.parquet", "PAR1");
  write("u/notes.txt", "x");
  expect_contains(refusal({at("u")}), "but notes.txt, x.parquet");
  std::filesystem::remove(directory_ / "m/a.bin");
  expect_contains(refusal({at("m")}), "m/a.bin: cannot open");
}

TEST_F(DatasetTest, the_fingerprint_of_pairs_sees_where_documents_end) {
  std::filesystem::create_directories(directory_ / "m");
  write_megatron(directory_ / "m/a", {{1, 2, 3}, {4, 5}});
  const auto before = Dataset({at("m")}).fingerprint();
  write_megatron(directory_ / "m/a", {{1, 2}, {3, 4, 5}});
  EXPECT_NE(Dataset({at("m")}).fingerprint(), before);
}

TEST_F(DatasetTest, llmq_shards_have_masks_and_no_documents) {
  const auto tokens = random_tokens(100, 151'644);
  const auto mask = random_mask(100);
  write("q/train-000.bin", llmq_header(2, 100, 151'643, 1) + body(tokens, 4) + mask_bits(mask));
  const Dataset dataset({at("q")});
  EXPECT_EQ(all(dataset), tokens);
  EXPECT_EQ(documents_of(dataset), Documents{tokens});
  std::vector<std::uint8_t> read(100);
  dataset.read_mask(read, 0);
  EXPECT_EQ(read, mask);
  Tokens starts(40, -7);
  dataset.find_documents(starts, slice(tokens, 3, 40), 3);
  EXPECT_EQ(starts, Tokens(40, 0));
  write("q/train-001.bin", llmq_header(2, 100, 151'643, 0) + body(tokens, 4));
  expect_contains(refusal({at("q")}), "train-001.bin: has no loss mask");
}

TEST_F(DatasetTest, a_shard_without_manifest_that_changed_since_the_start_is_refused) {
  write("x.bin", gpt2_shard(random_tokens(100, 256)));
  const Dataset dataset({at("x.bin")});
  write("x.bin", gpt2_shard(random_tokens(90, 256)));
  Tokens window(10);
  expect_contains(message_of<DataError>([&] { dataset.read(window, 0); }),
                  "not what it was at the start");
}

// 300 shards, of which 256 are open at once: the first is closed when all were read.
TEST_F(DatasetTest, a_dataset_that_is_replaced_while_it_is_read_is_refused) {
  const auto tokens = random_documents(900), others = random_documents(900, 7);
  for (const bool listed : {true, false}) {
    std::filesystem::remove_all(directory_ / "d");
    std::filesystem::create_directories(directory_ / "d");
    const auto put = [&](const Tokens& content) {
      if (listed) write_dataset(directory_ / "d", content, 3);
      for (std::int64_t i = 0; !listed && i < 300; ++i)
        write(str("d/", 1000 + i, ".bin"), gpt2_shard(slice(content, 3 * i, 3)));
    };
    put(tokens);
    const Dataset dataset({at("d")});
    EXPECT_EQ(all(dataset), tokens);
    EXPECT_EQ(all(dataset), tokens) << "opened again, as they were";
    put(others);
    Tokens window(3);
    expect_contains(message_of<DataError>([&] {
                      for (std::int64_t shard = 0; shard < 300; ++shard)
                        dataset.read(window, 3 * shard);
                    }),
                    ".bin: another file lies there than when it was read first");
  }
}

TEST_F(DatasetTest, the_fingerprint_is_of_the_content_not_of_the_place) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "a", tokens, 40);
  write_dataset(directory_ / "b", tokens, 40);
  EXPECT_EQ(Dataset({at("a")}).fingerprint(), Dataset({at("b")}).fingerprint());
  EXPECT_EQ(Dataset({at("a")}).fingerprint().size(), 32u);
  auto changed = tokens;
  changed[50] ^= 1;
  write_dataset(directory_ / "c", changed, 40);
  EXPECT_NE(Dataset({at("a")}).fingerprint(), Dataset({at("c")}).fingerprint());
  EXPECT_NE(Dataset({at("a"), at("c")}).fingerprint(), Dataset({at("c"), at("a")}).fingerprint());
}

TEST_F(DatasetTest, the_fingerprint_of_foreign_shards_sees_another_length_and_other_tokens) {
  auto tokens = random_documents(200'000);  // 400 KB: more than is read of it
  const auto fingerprint = [&] {
    write("d/x.bin", gpt2_shard(tokens));
    return Dataset({at("d")}).fingerprint();
  };
  const auto before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  for (const std::size_t changed : {std::size_t{0}, tokens.size() / 2, tokens.size() - 1}) {
    tokens[changed] ^= 1;
    EXPECT_NE(fingerprint(), before) << changed;
    tokens[changed] ^= 1;
  }
  tokens.pop_back();
  EXPECT_NE(fingerprint(), before);
}

// By looking back from each token, the long way.
Tokens naive_starts(const Tokens& tokens, std::int64_t first, std::int64_t count,
                    const std::function<bool(std::int64_t)>& starts_at) {
  Tokens starts;
  for (auto i = first; i < first + count; ++i) {
    auto start = i;
    while (start > first && !starts_at(start))
      --start;
    starts.push_back(static_cast<std::int32_t>(start - first));
  }
  EXPECT_EQ(tokens.size(), 300u);
  return starts;
}

void expect_documents(const Dataset& dataset, const Tokens& tokens,
                      const std::function<bool(std::int64_t)>& starts_at) {
  for (std::int64_t first = 0; first + 33 <= 300; ++first) {
    for (const std::int64_t count : {1, 2, 33}) {
      Tokens starts(static_cast<std::size_t>(count), -7);
      dataset.find_documents(starts, slice(tokens, first, count), first);
      ASSERT_EQ(starts, naive_starts(tokens, first, count, starts_at)) << first << "+" << count;
    }
  }
}

TEST_F(DatasetTest, documents_start_at_the_token_in_front_of_them) {
  const auto tokens = random_documents(300);
  write_dataset(directory_ / "d", tokens, 41);
  expect_documents(Dataset({at("d")}), tokens,
                   [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)] == 256; });
}

// Text may hold the token that stands in front of documents: the list alone says where they are.
TEST_F(DatasetTest, documents_of_ours_start_where_the_list_says_whatever_their_tokens_are) {
  const auto tokens = random_documents(300);
  auto text = tokens;
  for (std::size_t i = 0; i < text.size(); i += 3)
    text[i] = 256;
  const auto starts_at = [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)] == 256; };
  for (const auto boundary : {Boundary::front, Boundary::behind})
    for (const std::int64_t shard_tokens : {41, 300}) {
      const auto path = str("d", name(boundary), shard_tokens);
      auto manifest = write_dataset(directory_ / path, tokens, shard_tokens, boundary);
      std::int64_t first = 0;
      for (const auto& shard : manifest.shards) {
        write(path + "/" + shard.file, gpt2_shard(slice(text, first, shard.tokens)));
        first += shard.tokens;
      }
      const Dataset dataset({at(path)});
      ASSERT_EQ(all(dataset), text);
      expect_documents(dataset, text, starts_at);
      Documents expected;
      for (std::int64_t i = 0; i < 300; ++i) {
        if (i == 0 || starts_at(i)) expected.emplace_back();
        expected.back().push_back(text[static_cast<std::size_t>(i)]);
      }
      EXPECT_EQ(documents_of(dataset), expected);
      const Rows rows(dataset, {.kind = RowKind::examples, .sequence_length = 64});
      ASSERT_EQ(rows.documents(), std::ssize(expected));
      std::int64_t begin = 0;
      for (std::int64_t i = 0; i < rows.count(); ++i) {
        EXPECT_EQ(rows.in_order(i).first, begin);
        begin += std::ssize(expected[static_cast<std::size_t>(i)]);
      }
      expect_contains(inspect(dataset, nullptr, 0, 0), str("documents    ", expected.size()));
      ConvertOptions options;
      options.inputs = {at(path)};
      options.out = directory_ / (path + "_converted");
      options.to = OutputKind::datatrove;
      convert(options);
      EXPECT_EQ(documents_of(Dataset({options.out.string()})), expected);
    }
}

TEST_F(DatasetTest, of_paths_of_both_kinds_each_tells_documents_apart_as_it_does) {
  auto ours = random_documents(150), theirs = random_documents(150, 2);
  for (auto* tokens : {&ours, &theirs})
    std::ranges::replace(*tokens, 256, 50256);
  std::vector<bool> starts;
  for (const auto* tokens : {&ours, &theirs})
    for (const auto token : *tokens)
      starts.push_back(token == 50256);
  auto manifest = write_dataset(directory_ / "d", random_documents(150), 41);
  manifest.format.boundary_token = 50256;
  manifest.format.vocabulary = 50257;
  write("d/dataset.json", manifest.dump());
  for (std::size_t i = 1; i < ours.size(); i += 3)
    ours[i] = 50256;
  std::int64_t first = 0;
  for (const auto& shard : manifest.shards) {
    write("d/" + shard.file, gpt2_shard(slice(ours, first, shard.tokens)));
    first += shard.tokens;
  }
  write("theirs.bin", gpt2_shard(theirs));
  auto both = ours;
  both.insert(both.end(), theirs.begin(), theirs.end());
  expect_documents(Dataset({at("d"), at("theirs.bin")}), both,
                   [&](std::int64_t i) { return starts[static_cast<std::size_t>(i)]; });
}

TEST_F(DatasetTest, documents_start_behind_the_token_that_ends_the_one_before) {
  auto tokens = random_documents(300);
  for (auto& token : tokens)
    if (token == 256) token = 50256;
  write("train.bin", body(tokens, 2));
  expect_documents(Dataset({at("train.bin")}), tokens, [&](std::int64_t i) {
    return tokens[static_cast<std::size_t>(i) - 1] == 50256;
  });
}

TEST_F(DatasetTest, listed_documents_start_where_the_list_says_one_ends) {
  const auto tokens = random_documents(300);
  for (const std::int64_t shard_tokens : {1, 5, 41, 300}) {
    const auto path = str("d", shard_tokens);
    write_dataset(directory_ / path, tokens, shard_tokens, Boundary::listed);
    expect_documents(Dataset({at(path)}), tokens,
                     [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)] == 256; });
  }
}

TEST_F(DatasetTest, the_first_end_behind_a_token_is_found) {
  std::string bytes;
  for (const std::uint64_t end : {1, 2, 10, 50})
    append(bytes, end, 8);
  write("x.ends", bytes);
  const EndsList ends(ReadFile(directory_ / "x.ends"), 4, 60);
  EXPECT_EQ(ends.end(2), 10);
  const std::pair<std::int64_t, std::int64_t> expected[] = {{0, 0},  {1, 1},  {2, 2},  {9, 2},
                                                            {10, 3}, {49, 3}, {50, 4}, {59, 4}};
  for (const auto& [token, first] : expected)
    EXPECT_EQ(ends.first_after(token), first) << token;
}

// The place where an end is looked for first is the right one where documents are of one length.
TEST_F(DatasetTest, ends_are_found_in_lists_of_many_pieces_however_long_documents_are) {
  const auto random = random_tokens(6'000, 90);
  const auto length = [&](int kind, std::int64_t i) -> std::int64_t {
    if (kind == 0) return 7;
    if (kind == 1) return i < 5'000 ? 1 : 90;
    if (kind == 2) return i < 1'000 ? 90 : 1;
    return 1 + random[static_cast<std::size_t>(i)];
  };
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<std::int64_t> all;
    std::string bytes;
    for (std::int64_t i = 0; i < 6'000; ++i) {
      all.push_back((all.empty() ? 0 : all.back()) + length(kind, i));
      append(bytes, static_cast<std::uint64_t>(all.back()), 8);
    }
    const auto tokens = all.back();
    write("x.ends", bytes);
    const EndsList ends(ReadFile(directory_ / "x.ends"), std::ssize(all), tokens);
    std::vector<std::int64_t> sequences(all.size() + 1);
    std::vector<std::int64_t> of_each;
    for (std::size_t i = 0; i < all.size(); ++i) {
      sequences[i + 1] = static_cast<std::int64_t>(i) + 1;
      of_each.push_back(length(kind, static_cast<std::int64_t>(i)));
    }
    write("x.idx", megatron_index(8, 2, of_each, sequences));
    const MegatronIndex megatron(ReadFile(directory_ / "x.idx"));
    for (const DocumentEnds* list :
         {static_cast<const DocumentEnds*>(&ends), static_cast<const DocumentEnds*>(&megatron)})
      for (std::int64_t first = 0; first <= tokens; first += tokens / 97) {
        const auto above = std::ranges::upper_bound(all, first);
        ASSERT_EQ(list->first_after(first), above - all.begin()) << kind << ' ' << first;
        const auto last = std::min(first + 3'000, tokens);
        std::vector<std::int64_t> found;
        list->for_each_within(first, last, [&](std::int64_t end) { found.push_back(end); });
        ASSERT_EQ(found, std::vector(above, std::ranges::upper_bound(all, last)))
            << kind << ' ' << first;
      }
  }
}

TEST_F(DatasetTest, a_list_of_ends_that_is_damaged_is_refused_when_it_is_used) {
  const auto tokens = random_documents(300);
  const auto manifest = write_dataset(directory_ / "d", tokens, 300, Boundary::listed);
  auto ends = slurp(directory_ / "d" / "part_100.ends");
  const Dataset dataset({at("d")});
  Tokens starts(300);
  // In place, should the dataset have the file open.
  const auto overwrite = [&](const std::string& bytes) {
    std::fstream(at("d/part_100.ends"), std::ios::in | std::ios::out | std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  ends[7] = 1;  // the first end: 2^56 and more
  overwrite(ends);
  expect_contains(message_of<DataError>([&] { dataset.find_documents(starts, tokens, 0); }),
                  "part_100.ends: at byte 0: document ends at token 72057594");
  ends = std::string(ends.size(), '\0');
  overwrite(ends);
  expect_contains(message_of<DataError>([&] { dataset.find_documents(starts, tokens, 0); }),
                  "document ends at token 0");
  std::string falling;
  for (std::int64_t i = 0; i < manifest.documents(); ++i)
    append(falling, i == manifest.documents() - 1 ? 1 : 200, 8);
  overwrite(falling);
  Tokens few(5);
  expect_contains(
      message_of<DataError>([&] { dataset.find_documents(few, slice(tokens, 199, 5), 199); }),
      "the ends of documents do not rise");
}

}  // namespace lockstep::testing::dataset_test
