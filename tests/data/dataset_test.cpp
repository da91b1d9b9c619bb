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

#include "data/batch_rows.h"
#include "data/megatron.h"
#include "data/pack/convert.h"
#include "data/pack/inspect.h"
#include "tests/data/shards.h"

namespace lockstep::testing::dataset_test {

using Names = std::vector<std::string>;
using Pins = std::initializer_list<std::string>;

class DatasetTest : public DirectoryTest {
 protected:
  Tokens tokens_of(const std::string& name) const { return all_tokens(Dataset({at(name)})); }
  std::string fingerprint_of(const std::string& name) const {
    return Dataset({at(name)}).fingerprint();
  }
  // When it is opened.
  template <class E = DataError>
  void expect_refused(const std::string& name, const Names& names, Pins pins) const {
    std::vector<std::string> paths;
    for (const auto& one : names)
      paths.push_back(at(one));
    expect_refusal<E>("data/dataset", name, pins, [&] { Dataset dataset(paths); });
  }
  void expect_refused(const std::string& name, const std::string& path, Pins pins) const {
    expect_refused(name, Names{path}, pins);
  }
  template <class Act>
  static void expect_refused_act(const std::string& name, Pins pins, const Act& act) {
    expect_refusal<DataError>("data/dataset", name, pins, act);
  }
};

TEST_F(DatasetTest, windows_and_masks_across_shards_are_exact) {
  const auto tokens = random_documents(200);
  const auto mask = random_mask(200);
  for (const std::int64_t shard_tokens : {1, 2, 7, 64, 199, 200}) {
    const auto path = str("d", shard_tokens);
    write_dataset(directory_ / path, tokens, shard_tokens, Boundary::front, mask);
    const Dataset dataset({at(path)});
    ASSERT_EQ(dataset.tokens(), 200);
    EXPECT_TRUE(dataset.has_masks());
    for (std::int64_t first = 0; first <= 200; first += 3) {
      for (std::int64_t count = 0; first + count <= 200; count += 11) {
        Tokens read(static_cast<std::size_t>(count), -7);
        dataset.read(read, first);
        ASSERT_EQ(read, slice(tokens, first, count)) << first << "+" << count;
        Mask counts(read.size(), 7);
        dataset.read_mask(counts, first);
        ASSERT_TRUE(std::equal(counts.begin(), counts.end(), mask.begin() + first)) << first;
      }
    }
    Tokens past(3);
    EXPECT_THROW(dataset.read(past, 198), Error);
    EXPECT_THROW(dataset.read(past, -1), Error);
  }
  write_dataset(directory_ / "plain", tokens, 100);
  EXPECT_FALSE(Dataset({at("plain")}).has_masks());
  EXPECT_EQ(whole_mask(Dataset({at("plain")})), Mask(200, 1)) << "without masks all count";
}

TEST_F(DatasetTest, shards_are_sorted_by_name_and_paths_keep_their_order) {
  const auto a = random_tokens(30, 50257, 1), b = random_tokens(20, 50257, 2),
             c = random_tokens(10, 50257, 3);
  write("llmc/x_train_000002.bin", gpt2_shard(b));
  write("llmc/x_train_000001.bin", gpt2_shard(a));
  write("other/c.bin", gpt2_shard(c));
  EXPECT_EQ(tokens_of("llmc"), joined({a, b}));
  EXPECT_EQ(all_tokens(Dataset({at("other/c.bin"), at("llmc")})), joined({c, a, b}));
}

TEST_F(DatasetTest, a_directory_with_both_splits_is_an_error_and_a_pattern_selects_one) {
  const auto train = random_tokens(30, 50257, 1), val = random_tokens(20, 50257, 2);
  write("fineweb/fineweb_train_000001.bin", gpt2_shard(train));
  write("fineweb/fineweb_val_000000.bin", gpt2_shard(val));
  expect_refused("both splits", "fineweb", {"*train*.bin"});
  EXPECT_EQ(tokens_of("fineweb/*train*.bin"), train);
  EXPECT_EQ(tokens_of("fineweb/*_val_*.bin"), val);
  expect_refused("no match", "fineweb/*test*", {at("fineweb/*test*")});
  // Only whole words of names say of which split a shard is.
  write("books/medieval_train_0001.bin", gpt2_shard(train));
  write("books/constraints_train_0001.bin", gpt2_shard(train));
  EXPECT_EQ(Dataset({at("books")}).tokens(), 60);
  for (const auto* name : {"val", "x_val_1", "x-val0001", "x.validation"}) {
    write(str("books/", name, ".bin"), gpt2_shard(train));
    expect_refused(str("both splits: ", name), "books", {at("books")});
    std::filesystem::remove(directory_ / "books" / str(name, ".bin"));
  }
}

TEST_F(DatasetTest, a_single_lockstep_shard_is_read_with_its_manifest) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "d", tokens, 40);
  const Dataset dataset({at("d/part_101.bin")});
  EXPECT_EQ(dataset.format().vocabulary, 257);
  EXPECT_EQ(all_tokens(dataset), slice(tokens, 40, 40));
  EXPECT_NE(dataset.fingerprint(), fingerprint_of("d"));
  write("d/stray.bin", gpt2_shard(tokens));
  expect_refused("not in the manifest", "d/stray.bin", {"stray.bin"});
}

TEST_F(DatasetTest, lockstep_shards_without_a_manifest_are_an_error) {
  for (const auto boundary : {Boundary::front, Boundary::listed}) {
    write_dataset(directory_ / "d", random_documents(100), 40, boundary, random_mask(100));
    EXPECT_EQ(Dataset({at("d/part_101.ends")}).tokens(), 40);  // any of its files names a shard
    EXPECT_EQ(Dataset({at("d/part_10*")}).tokens(), 100);
    std::filesystem::remove(directory_ / "d/dataset.json");
    for (const auto* path : {"d", "d/*.bin", "d/part_10*"})
      expect_refused(str("no manifest: ", path), path, {"dataset.json", at("d/part_100.bin")});
    for (const auto* path : {"d/part_101.bin", "d/part_101.mask"})
      expect_refused(str("no manifest: ", path), path, {"dataset.json", at("d/part_101.bin")});
    for (const auto* shard : {"part_100", "part_101", "part_102"})
      std::filesystem::remove(directory_ / "d" / str(shard, ".ends"));
    expect_refused("no manifest, but a mask", "d", {"dataset.json", "part_100.mask"});
  }
}

TEST_F(DatasetTest, missing_files_of_a_manifest_are_reported_at_the_start) {
  write_dataset(directory_ / "d", random_documents(100), 10, Boundary::listed, random_mask(100));
  const auto expect_missing = [&](const std::string& file, const std::string& pin) {
    std::filesystem::remove(directory_ / "d" / file);
    expect_refused(file + " is missing too", "d", {"d/dataset.json: ", pin, file});
  };
  expect_missing("part_107.mask", " 1 ");
  expect_missing("part_104.bin", " 2 ");
  expect_missing("part_102.ends", " 3 ");
  // Of a shard, its own.
  EXPECT_EQ(Dataset({at("d/part_100.bin")}).tokens(), 10);
  EXPECT_EQ(Dataset({at("d/part_100.*")}).tokens(), 10);
  expect_refused("of one shard", "d/part_102.bin", {" 1 ", "part_102.ends"});
}

TEST_F(DatasetTest, a_manifest_may_list_shards_in_any_order) {
  auto manifest = write_dataset(directory_ / "d", random_documents(100), 10);
  std::reverse(manifest.shards.begin(), manifest.shards.end());
  write_manifest(directory_ / "d", manifest);
  EXPECT_EQ(Dataset({at("d")}).tokens(), 100);
}

TEST_F(DatasetTest, paths_without_a_dataset_or_with_several_are_an_error) {
  std::filesystem::create_directories(directory_ / "empty");
  write("file", "x");
  write("mixed/a.bin", gpt2_shard(random_tokens(10, 256)));
  write("mixed/b.bin", llama3_shard(random_tokens(10, 256)));
  write_megatron(directory_ / "m/a", random_texts(3, 100));
  write("m/b.bin", gpt2_shard(random_tokens(10, 256)));
  write("u/x.parquet", "PAR1");
  write("u/notes.txt", "x");
  write_megatron(directory_ / "half/a", random_texts(3, 100));
  std::filesystem::remove(directory_ / "half/a.bin");
  const struct {
    const char *name, *path;
    std::string pin;
  } cases[] = {
      {"no such path", "nowhere", "lockstep data pack"},
      {"empty directory", "empty", "*.bin"},
      {"below a file", "file/below", at("file/below")},
      {"two widths of tokens", "mixed", "mixed/b.bin"},
      {"two formats", "m", "m/b.bin"},
      {"other files", "u", "notes.txt, x.parquet"},
      {"half a pair", "half", "half/a.bin"},
  };
  for (const auto& [name, path, pin] : cases)
    expect_refused(name, path, {pin});
  EXPECT_THROW(Dataset({}), DataError);
}

TEST_F(DatasetTest, paths_of_one_dataset_need_the_same_separation_and_tokenizer) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "a", tokens, 40);
  const auto other = [&](const std::string& hash, Boundary boundary = Boundary::front) {
    auto manifest = write_dataset(directory_ / "b", tokens, 70, boundary);
    manifest.format.name = "llama3";
    manifest.format.vocabulary = 300;
    manifest.tokenizer_hash = hash;
    write_manifest(directory_ / "b", manifest);
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
  const Names both{"a", "b"};
  other(hash_hex("other"));
  expect_refused("two tokenizers", both, {"b/part_100.bin: ", "llama3 ("});
  other("", Boundary::listed);
  expect_refused("documents by list and by token", both, {"b/part_100.bin: "});
  write("c.bin", gpt2_shard(tokens));
  expect_refused("ours and theirs", Names{"a", "c.bin"}, {"[[data.source]]"});
  // Of one dataset, in tokens of several widths.
  write_megatron(directory_ / "m", {{1, 2, 3}}, 8, 2);
  write_megatron(directory_ / "n", {{4}, {70'000, 6}}, 4, 4);
  EXPECT_EQ(all_tokens(Dataset({at("m"), at("n")})), (Tokens{1, 2, 3, 4, 70'000, 6}));
}

TEST_F(DatasetTest, files_that_contradict_the_manifest_are_an_error_when_read) {
  const auto tokens = random_documents(100), of_shard = slice(tokens, 45, 45);
  const struct {
    const char *name, *file;
    std::string bytes;
    std::vector<std::string> pins;
  } cases[] = {
      {"fewer tokens", "part_101.bin", gpt2_shard(slice(tokens, 0, 44)), {" 44 ", " 45"}},
      {"wider tokens", "part_101.bin", llama3_shard(of_shard), {}},
      {"tokens without a header", "part_101.bin", body(of_shard, 2), {}},
      {"fewer ends", "part_101.ends", "12345678", {" 8 bytes"}},
      {"short mask", "part_101.mask", std::string(5, '\0'), {"at byte 5: ", " 45 tokens"}},
      {"long mask", "part_101.mask", std::string(7, '\0'), {"at byte 6: ", " 45 tokens"}},
      {"mask behind the tokens", "part_101.mask", std::string(5, '\0') + '\x20', {" 45 tokens"}},
  };
  for (const auto& [name, file, bytes, pins] : cases) {
    write_dataset(directory_ / "d", tokens, 45, Boundary::front, random_mask(100));
    write(str("d/", file), bytes);
    const Dataset dataset({at("d")});
    const auto text = message_of<DataError>([&] {
      all_tokens(dataset);
      whole_mask(dataset);
    });
    expect_contains(text, file);
    for (const auto& pin : pins)
      expect_contains(text, pin);
    expect_wording("data/dataset", name, text);
  }
  write_dataset(directory_ / "d", tokens, 45);
  const Dataset dataset({at("d")});
  std::filesystem::remove(directory_ / "d/part_100.bin");
  expect_refused_act("gone since the start", {"part_100.bin: "}, [&] { all_tokens(dataset); });
}

// Limits the open files of this process while it lives.
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

TEST_F(DatasetTest, an_unreadable_directory_is_a_data_error_or_a_storage_error) {
  write("d/a.bin", gpt2_shard({1, 2, 3}));
  chmod(directory_.path().c_str(), 0777);
  chmod(at("d").c_str(), 0);
  const auto locked = [&] {
    const AsNobody nobody;
    return message_of<DataError>([&] { Dataset({at("d")}); });
  }();
  chmod(at("d").c_str(), 0700);
  expect_contains(locked, at("d"));
  expect_wording("data/dataset", "directory without permission", locked);
  const auto full = message_of<StorageError>([&] {
    const OpenFilesLimit limit(0);  // ends before the message is read: UBSan opens a pipe for that
    Dataset({at("d")});
  });
  expect_contains(full, at("d"));
  expect_wording("data/dataset", "too many open files", full);
}

TEST_F(DatasetTest, more_shards_than_open_files_are_read_by_one_or_several_threads) {
  const auto tokens = random_documents(3'000);
  write_dataset(directory_ / "d", tokens, 5);  // 600 shards
  const OpenFilesLimit limit(64);
  const Dataset dataset({at("d")});
  EXPECT_EQ(all_tokens(dataset), tokens);
  EXPECT_LE(dataset.open_shards(), 256u);
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
  const Dataset few({at("d")}, nullptr, 16);
  EXPECT_EQ(all_tokens(few), tokens);
  EXPECT_LE(few.open_shards(), 16u);
}

TEST(OpenFiles, a_limit_that_cannot_be_raised_is_shared) {
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

// Counts what is opened.
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

TEST_F(DatasetTest, a_listed_shard_is_opened_at_first_use_by_the_given_files) {
  const auto tokens = random_documents(200);
  write_dataset(directory_ / "d", tokens, 50);
  CountedFiles files;
  const Dataset dataset({at("d")}, &files);
  EXPECT_EQ(dataset.tokens(), 200);
  EXPECT_EQ(dataset.shards(), 4u);
  EXPECT_EQ(dataset.open_shards(), 0u);
  Tokens window(60);
  for (int twice = 0; twice < 2; ++twice) {
    dataset.read(window, 60);
    EXPECT_EQ(window, slice(tokens, 60, 60));
  }
  EXPECT_EQ(files.opened("dataset.json"), 1);
  for (const auto& [name, times] : {std::pair{"part_100.bin", 0}, std::pair{"part_101.bin", 1},
                                    std::pair{"part_102.bin", 1}, std::pair{"part_103.bin", 0}})
    EXPECT_EQ(files.opened(name), times) << name;
  EXPECT_EQ(dataset.open_shards(), 2u);
}

// Directories, pairs and patterns of others.

TEST_F(DatasetTest, a_megatron_pair_is_found_by_file_name_or_directory) {
  const auto documents = random_texts(20, 50257);
  write_megatron(directory_ / "m/text_document", documents);
  for (const char* path : {"m/text_document.bin", "m/text_document.idx", "m/text_document", "m",
                           "m/text*", "m/*.idx"}) {
    const Dataset dataset({at(path)});
    EXPECT_EQ(dataset.format().name, "Megatron") << path;
    EXPECT_EQ(documents_of(dataset), documents) << path;
    EXPECT_EQ(dataset.fingerprint(), fingerprint_of("m")) << path;
  }
}

TEST_F(DatasetTest, datatrove_shards_are_found_by_any_file_and_empty_ones_are_skipped) {
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
  expect_refused("an empty shard alone", "t/00001_x.ds", {"00001_x.ds"});
}

TEST_F(DatasetTest, llmq_shards_have_masks_and_no_documents) {
  const auto tokens = random_tokens(100, 151'644);
  const auto mask = random_mask(100);
  write("q/train-000.bin", llmq_header(2, 100, 151'643, 1) + body(tokens, 4) + mask_bits(mask));
  const Dataset dataset({at("q")});
  EXPECT_EQ(documents_of(dataset), Documents{tokens});
  EXPECT_EQ(whole_mask(dataset), mask);
  Tokens starts(40, -7);
  dataset.find_documents(starts, slice(tokens, 3, 40), 3);
  EXPECT_EQ(starts, Tokens(40, 0));
  write("q/train-001.bin", llmq_header(2, 100, 151'643, 0) + body(tokens, 4));
  expect_refused("a mask of one shard of two", "q", {"train-001.bin: "});
}

TEST_F(DatasetTest, a_shard_without_manifest_that_changed_is_an_error) {
  write("x.bin", gpt2_shard(random_tokens(100, 256)));
  const Dataset dataset({at("x.bin")});
  write("x.bin", gpt2_shard(random_tokens(90, 256)));
  Tokens window(10);
  expect_refused_act("changed since the start", {"x.bin"}, [&] { dataset.read(window, 0); });
}

// 300 shards, of which 256 are open at once: the first is closed when all were read.
TEST_F(DatasetTest, a_dataset_that_is_replaced_while_read_is_an_error) {
  const auto tokens = random_documents(900), others = random_documents(900, 7);
  for (const bool listed : {true, false}) {
    std::filesystem::remove_all(directory_ / "d");
    const auto put = [&](const Tokens& content) {
      if (listed) write_dataset(directory_ / "d", content, 3);
      for (std::int64_t i = 0; !listed && i < 300; ++i)
        write(str("d/", 1000 + i, ".bin"), gpt2_shard(slice(content, 3 * i, 3)));
    };
    put(tokens);
    const Dataset dataset({at("d")});
    EXPECT_EQ(all_tokens(dataset), tokens);
    EXPECT_EQ(all_tokens(dataset), tokens) << "opened again, as they were";
    put(others);
    expect_refused_act(listed ? "replaced" : "replaced, without a manifest", {".bin: "},
                       [&] { all_tokens(dataset); });
  }
}

TEST_F(DatasetTest, the_fingerprint_depends_on_the_content_not_on_the_path) {
  const auto tokens = random_documents(100);
  write_dataset(directory_ / "a", tokens, 40);
  write_dataset(directory_ / "b", tokens, 40);
  EXPECT_EQ(fingerprint_of("a"), fingerprint_of("b"));
  EXPECT_EQ(fingerprint_of("a").size(), 32u);
  auto changed = tokens;
  changed[50] ^= 1;
  write_dataset(directory_ / "c", changed, 40);
  EXPECT_NE(fingerprint_of("a"), fingerprint_of("c"));
  EXPECT_NE(Dataset({at("a"), at("c")}).fingerprint(), Dataset({at("c"), at("a")}).fingerprint());
  // Of pairs, also of where documents end.
  write_megatron(directory_ / "m/a", {{1, 2, 3}, {4, 5}});
  write_megatron(directory_ / "n/a", {{1, 2}, {3, 4, 5}});
  EXPECT_NE(fingerprint_of("m"), fingerprint_of("n"));
}

TEST_F(DatasetTest, the_fingerprint_of_foreign_shards_depends_on_length_and_tokens) {
  auto tokens = random_documents(200'000);  // 400 KB: more than is read of it
  const auto fingerprint = [&] {
    write("d/x.bin", gpt2_shard(tokens));
    return fingerprint_of("d");
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

// Documents start where `starts_at` says: in windows against looking back from each token, and when
// they are visited.
void expect_documents(const Dataset& dataset, const Tokens& tokens,
                      const std::function<bool(std::size_t)>& starts_at) {
  for (std::size_t first = 0; first + 33 <= tokens.size(); ++first) {
    for (const std::size_t count : {1u, 2u, 33u}) {
      Tokens starts(count, -7), expected;
      for (std::size_t i = 0; i < count; ++i) {
        auto start = i;
        while (start > 0 && !starts_at(first + start))
          --start;
        expected.push_back(static_cast<std::int32_t>(start));
      }
      const auto from = static_cast<std::int64_t>(first);
      dataset.find_documents(starts, std::span(tokens).subspan(first, count), from);
      ASSERT_EQ(starts, expected) << first << "+" << count;
    }
  }
  Documents expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0 || starts_at(i)) expected.emplace_back();
    expected.back().push_back(tokens[i]);
  }
  EXPECT_EQ(documents_of(dataset), expected);
}

TEST_F(DatasetTest, documents_are_the_same_by_list_and_by_token_across_shards) {
  for (const auto& [count, shard_tokens] :
       {std::pair<std::int64_t, std::int64_t>{60, 1}, {300, 5}, {300, 41}, {300, 300}})
    for (const auto boundary : {Boundary::front, Boundary::listed}) {
      const auto tokens = random_documents(count);
      const auto path = str("d", shard_tokens, name(boundary));
      SCOPED_TRACE(path);
      write_dataset(directory_ / path, tokens, shard_tokens, boundary);
      expect_documents(Dataset({at(path)}), tokens, [&](auto i) { return tokens[i] == 256; });
    }
  auto gpt2 = random_documents(300);
  std::ranges::replace(gpt2, 256, 50256);
  const auto a = slice(gpt2, 0, 123), b = slice(gpt2, 123, 177);
  write("llmc/a.bin", gpt2_shard(a));
  write("llmc/b.bin", gpt2_shard(b));
  expect_documents(Dataset({at("llmc")}), gpt2, [&](auto i) { return gpt2[i] == 50256; });
  write("nano/a.bin", body(a, 2));
  write("nano/b.bin", body(b, 2));
  expect_documents(Dataset({at("nano")}), gpt2,
                   [&](auto i) { return i > 0 && gpt2[i - 1] == 50256; });
}

// Text may hold the token that precedes documents: the list alone says where they are.
TEST_F(DatasetTest, documents_of_lockstep_shards_start_where_the_list_says) {
  const auto tokens = random_documents(300);
  auto text = tokens;
  for (std::size_t i = 0; i < text.size(); i += 3)
    text[i] = 256;
  for (const auto boundary : {Boundary::front, Boundary::behind})
    for (const std::int64_t shard_tokens : {41, 300}) {
      const auto path = str("d", name(boundary), shard_tokens);
      const auto manifest = write_dataset(directory_ / path, tokens, shard_tokens, boundary);
      std::int64_t first = 0;
      for (const auto& shard : manifest.shards) {
        write(path + "/" + shard.file, gpt2_shard(slice(text, first, shard.tokens)));
        first += shard.tokens;
      }
      const Dataset dataset({at(path)});
      ASSERT_EQ(all_tokens(dataset), text);
      expect_documents(dataset, text, [&](auto i) { return tokens[i] == 256; });
      const auto expected = documents_of(dataset);
      const BatchRows rows(dataset, {.kind = RowKind::examples, .sequence_length = 64});
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

TEST_F(DatasetTest, paths_of_both_kinds_keep_their_separation_of_documents) {
  auto ours = random_documents(150), theirs = random_documents(150, 2);
  auto manifest = write_dataset(directory_ / "d", ours, 41);
  manifest.format.boundary_token = 50256;
  manifest.format.vocabulary = 50257;
  write_manifest(directory_ / "d", manifest);
  for (auto* tokens : {&ours, &theirs})
    std::ranges::replace(*tokens, 256, 50256);
  const auto starts = joined({ours, theirs});
  for (std::size_t i = 1; i < ours.size(); i += 3)
    ours[i] = 50256;
  std::int64_t first = 0;
  for (const auto& shard : manifest.shards) {
    write("d/" + shard.file, gpt2_shard(slice(ours, first, shard.tokens)));
    first += shard.tokens;
  }
  write("theirs.bin", gpt2_shard(theirs));
  expect_documents(Dataset({at("d"), at("theirs.bin")}), joined({ours, theirs}),
                   [&](auto i) { return starts[i] == 50256; });
}

// The place where an end is looked for first is the right one where documents are of one length.
TEST_F(DatasetTest, ends_are_found_in_lists_of_many_pieces) {
  const auto random = random_tokens(6'000, 90);
  const auto length = [&](int kind, std::int64_t i) -> std::int64_t {
    if (kind == 0) return 7;
    if (kind == 1) return i < 5'000 ? 1 : 90;
    if (kind == 2) return i < 1'000 ? 90 : 1;
    return 1 + random[static_cast<std::size_t>(i)];
  };
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<std::int64_t> all, of_each, sequences{0};
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < 6'000; ++i) {
      of_each.push_back(length(kind, i));
      all.push_back(tokens += of_each.back());
      sequences.push_back(i + 1);
    }
    write("x.ends", u64s(all));
    const EndsList ends(ReadFile(directory_ / "x.ends"), std::ssize(all), tokens);
    write("x.idx", megatron_index(8, 2, of_each, sequences));
    const MegatronIndex megatron(ReadFile(directory_ / "x.idx"));
    for (const DocumentEnds* list :
         {static_cast<const DocumentEnds*>(&ends), static_cast<const DocumentEnds*>(&megatron)}) {
      EXPECT_EQ(list->end(2), all[2]);
      EXPECT_EQ(list->first_after(all[2] - 1), 2);
      EXPECT_EQ(list->first_after(all[2]), 3);
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
}

TEST_F(DatasetTest, a_damaged_list_of_ends_is_an_error_when_used) {
  const auto tokens = random_documents(300);
  const auto documents = write_dataset(directory_ / "d", tokens, 300, Boundary::listed).documents();
  const Dataset dataset({at("d")});
  const auto expect_damaged = [&](const std::string& name, const std::string& bytes,
                                  std::int64_t first, std::int64_t count, const std::string& pin) {
    // In place, should the dataset have the file open.
    std::fstream(at("d/part_100.ends"), std::ios::in | std::ios::out | std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    Tokens starts(static_cast<std::size_t>(count));
    expect_refused_act(name, {"part_100.ends: at byte ", pin},
                       [&] { dataset.find_documents(starts, slice(tokens, first, count), first); });
  };
  auto far = slurp(directory_ / "d/part_100.ends");
  far[7] = 1;  // the first end: 2^56 and more
  expect_damaged("end behind all tokens", far, 0, 300, "at byte 0: ");
  expect_damaged("end at 0", std::string(far.size(), '\0'), 0, 300, " 0");
  std::vector<std::int64_t> falling(static_cast<std::size_t>(documents), 200);
  falling.back() = 1;
  expect_damaged("ends that fall", u64s(falling), 199, 5, "");
}

}  // namespace lockstep::testing::dataset_test
