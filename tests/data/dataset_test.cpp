#include "data/dataset.h"

#include <functional>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/data/shards.h"

namespace lockstep::testing {
namespace {

class DatasetTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  std::string refusal(const std::vector<std::string>& paths) const {
    return message_of<DataError>([&] { Dataset dataset(paths); });
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

TEST_F(DatasetTest, a_shard_that_its_manifest_does_not_describe_is_refused) {
  const auto tokens = random_documents(100);
  const auto damaged = [&](const std::string& file, const std::string& bytes) {
    std::filesystem::remove_all(directory_ / "d");
    write_dataset(directory_ / "d", tokens, 40);
    write("d/" + file, bytes);
    return refusal({at("d")});
  };
  expect_contains(damaged("part_101.bin", gpt2_shard(slice(tokens, 0, 39))),
                  "says 39 tokens, dataset.json says 40");
  expect_contains(damaged("part_101.bin", llama3_shard(slice(tokens, 0, 40))), "bytes a token");
  expect_contains(damaged("part_101.bin", body(slice(tokens, 0, 40), 2)),
                  "found a shard of nanoGPT");
  expect_contains(damaged("part_101.ends", "12345678"), "document ends of 8 bytes");
  std::filesystem::remove(directory_ / "d" / "part_100.bin");
  expect_contains(refusal({at("d")}), "part_100.bin: cannot open");
}

TEST_F(DatasetTest, more_shards_than_open_files_are_allowed_at_first) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &low);
  const auto tokens = random_documents(300);
  write_dataset(directory_ / "d", tokens, 1);
  const auto read = all(Dataset({at("d")}));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(read, tokens);
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
  const DocumentEnds ends(directory_ / "x.ends", 4, 60);
  EXPECT_EQ(ends.end(2), 10);
  const std::pair<std::int64_t, std::int64_t> expected[] = {{0, 0},  {1, 1},  {2, 2},  {9, 2},
                                                            {10, 3}, {49, 3}, {50, 4}, {59, 4}};
  for (const auto& [token, first] : expected)
    EXPECT_EQ(ends.first_after(token), first) << token;
}

TEST_F(DatasetTest, a_list_of_ends_that_is_damaged_is_refused_when_it_is_used) {
  const auto tokens = random_documents(300);
  const auto manifest = write_dataset(directory_ / "d", tokens, 300, Boundary::listed);
  auto ends = slurp(directory_ / "d" / "part_100.ends");
  const Dataset dataset({at("d")});
  Tokens starts(300);
  // In place: the dataset has the file open.
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

}  // namespace
}  // namespace lockstep::testing
