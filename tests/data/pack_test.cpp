#include "data/pack.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

#include "core/hash.h"
#include "core/json.h"
#include "data/chat_template.h"
#include "data/dataset.h"
#include "data/pack_directory.h"
#include "data/tokenizer.h"
#include "data/verify.h"
#include "tests/data/compressed.h"
#include "tests/data/shards.h"
#include "tests/no_threads.h"

namespace lockstep::testing::pack_test {

namespace fs = std::filesystem;

using Documents = std::vector<std::string>;

Tokens tokens_of(const Documents& documents) {
  Tokens tokens;
  for (const auto& document : documents) {
    tokens.push_back(256);
    for (const char c : document)
      tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

// The pieces between separators that hold something.
Documents split(const std::string& text, const std::string& separator) {
  Documents documents;
  for (std::size_t at = 0; at != std::string::npos;) {
    const auto end = separator.empty() ? std::string::npos : text.find(separator, at);
    const auto piece = text.substr(at, end == std::string::npos ? end : end - at);
    if (!piece.empty()) documents.push_back(piece);
    at = end == std::string::npos ? end : end + separator.size();
  }
  return documents;
}

std::string random_text(std::size_t size, std::uint64_t seed, const std::string& alphabet) {
  std::mt19937_64 random(seed);
  std::string text;
  for (std::size_t i = 0; i < size; ++i)
    text += alphabet[random() % alphabet.size()];
  return text;
}

Tokens read_all(const fs::path& path) {
  const Dataset dataset({path.string()});
  Tokens tokens(static_cast<std::size_t>(dataset.tokens()));
  dataset.read(tokens, 0);
  return tokens;
}

class WorkingDirectory {
 public:
  explicit WorkingDirectory(const fs::path& path) : before_(fs::current_path()) {
    fs::current_path(path);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() { fs::current_path(before_); }

 private:
  fs::path before_;
};

// Of a child process.
[[noreturn]] void pack_and_exit(const PackOptions& options) {
  try {
    pack(options);
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

class PackTest : public ::testing::Test {
 protected:
  fs::path input(const std::string& name, const std::string& bytes) {
    fs::create_directories((directory_ / ("in/" + name)).parent_path());
    spit(directory_ / ("in/" + name), bytes);
    return directory_ / ("in/" + name);
  }
  PackOptions options(const std::vector<fs::path>& inputs) {
    PackOptions options;
    options.inputs = inputs;
    options.out = directory_ / str("out", ++outputs_);
    return options;
  }
  // Packs, expects exactly these documents, and checks all that the dataset says of itself.
  void expect_packed(const PackOptions& options, const Documents& documents) {
    const auto packed = pack(options);
    ASSERT_EQ(packed.size(), 1u);
    EXPECT_EQ(packed[0].path, options.out);
    const auto expected = tokens_of(documents);
    ASSERT_EQ(read_all(options.out), expected);
    expect_consistent(packed[0], expected);
  }
  static void expect_consistent(const PackedDataset& packed, const Tokens& tokens) {
    EXPECT_EQ(slurp(packed.path / "dataset.json"), packed.manifest.dump());
    std::int64_t start = 0;
    for (const auto& shard : packed.manifest.shards) {
      const auto bytes = slurp(packed.path / shard.file);
      EXPECT_EQ(bytes, gpt2_shard(slice(tokens, start, shard.tokens)));
      EXPECT_EQ(shard.hash, hash_hex(bytes));
      std::string ends;
      for (auto end = start + 1; end <= start + shard.tokens; ++end)
        if (end == static_cast<std::int64_t>(tokens.size()) ||
            tokens[static_cast<std::size_t>(end)] == 256)
          append(ends, static_cast<std::uint64_t>(end - start), 8);
      EXPECT_EQ(slurp(packed.path / ends_name(shard.file)), ends);
      EXPECT_EQ(shard.ends_hash, hash_hex(ends));
      EXPECT_EQ(shard.documents, static_cast<std::int64_t>(ends.size() / 8));
      start += shard.tokens;
    }
    EXPECT_EQ(start, static_cast<std::int64_t>(tokens.size()));
  }
  // What stands beside the input.
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      if (entry.path().filename() != "in") names.push_back(entry.path().filename());
    return names;
  }

  TemporaryDirectory directory_;
  int outputs_ = 0;
};

TEST_F(PackTest, every_byte_of_every_file_is_kept_in_the_order_of_the_files) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += static_cast<char>(byte);
  const std::string invalid = "\xff broken \x80 UTF-8 \xc3";
  const auto b = input("b.txt", invalid), a = input("a.txt", all), empty = input("c.txt", "");
  expect_packed(options({b, a, empty}), {invalid, all});
  expect_packed(options({directory_ / "in"}), {all, invalid});
}

TEST_F(PackTest, directories_are_read_whole_hidden_files_left_out) {
  input("x/2.txt", "second");
  input("x/1/z.txt", "first");
  input("x/.git/config", "hidden");
  input("x/.cache", "hidden");
  const auto last = input("a.txt", "third");
  expect_packed(options({directory_ / "in/x", last}), {"first", "second", "third"});
}

TEST_F(PackTest, separators_end_documents_wherever_reads_and_blocks_are_cut) {
  for (const std::string separator : {"\n", "\n\n", "aab", "aaaa", "<|end|>"}) {
    // Few letters, so that halves of separators are common; sizes around those of a read
    // (2^17) and of a batch (2^19).
    for (const std::size_t size : {0u, 1u, 1000u, (1u << 17) - 1, 1u << 17, (1u << 19) - 1,
                                   1u << 19, (1u << 19) + 1, 700'000u}) {
      SCOPED_TRACE(separator + str(" ", size));
      const auto text = str(random_text(size, size + 1, "ab\n"), separator, "x",
                            random_text(1 + size % 7, size, "ab\n"), separator, separator);
      auto o = options({input("text", text)});
      o.document_separator = separator;
      expect_packed(o, split(text, separator));
    }
  }
}

TEST_F(PackTest, a_separator_across_the_border_of_two_reads_is_found) {
  for (std::size_t before = (1u << 17) - 8; before <= (1u << 19) + 1; ++before) {
    if (before == (1u << 17) + 2) before = (1u << 19) - (1u << 17) - 8;
    if (before == (1u << 19) - (1u << 17) + 2) before = (1u << 19) - 8;
    const auto text = std::string(before, 'x') + "<|end|>" + "y";
    auto o = options({input("text", text)});
    o.document_separator = "<|end|>";
    expect_packed(o, {std::string(before, 'x'), "y"});
  }
}

TEST_F(PackTest, files_end_documents_too_and_no_separator_spans_two_files) {
  auto o = options({input("1", "one\n"), input("2", "\ntwo\n\nthree")});
  o.document_separator = "\n\n";
  expect_packed(o, {"one\n", "\ntwo", "three"});
}

TEST_F(PackTest, shards_hold_what_they_should_at_any_size) {
  const auto text = random_text(3'000, 5, "abcdefg\n");
  for (const std::int64_t shard_tokens : {1, 2, 7, 1'000, 2'999, 3'000, 5'000}) {
    auto o = options({input("text", shard_tokens <= 7 ? text.substr(0, 20) : text)});
    o.document_separator = "\n";
    o.shard_tokens = shard_tokens;
    expect_packed(o, split(slurp(o.inputs[0]), "\n"));
  }
}

// A document that ends with its block (2^19 tokens), its shard, or both, or one token before.
TEST_F(PackTest, documents_that_end_where_blocks_and_shards_do_are_listed_once) {
  const std::size_t block = std::size_t{1} << 19;
  for (const std::size_t length : {block - 2, block - 1, block}) {
    for (const std::size_t shard_tokens : {block - 1, block, block + 1, 2 * block}) {
      const auto text = std::string(length, 'x') + "\n" + std::string(length, 'y') + "\nz";
      auto o = options({input("text", text)});
      o.document_separator = "\n";
      o.shard_tokens = static_cast<std::int64_t>(shard_tokens);
      expect_packed(o, split(text, "\n"));
    }
  }
}

TEST_F(PackTest, a_validation_share_splits_by_document_and_loses_none) {
  Documents documents;
  for (int i = 0; i < 1'000; ++i)
    documents.push_back(
        str("document ", i, " ", std::string(static_cast<std::size_t>(i % 50), 'x')));
  std::string text;
  for (const auto& document : documents)
    text += document + "\n";
  auto o = options({input("text", text)});
  o.document_separator = "\n";
  o.validation_share = 0.05;
  o.shard_tokens = 700;
  const auto packed = pack(o);
  ASSERT_EQ(packed.size(), 2u);
  Documents train, validation;
  for (std::size_t i = 0; i < documents.size(); ++i)
    (is_validation(static_cast<std::int64_t>(i), 0.05) ? validation : train)
        .push_back(documents[i]);
  EXPECT_EQ(validation.size(), 50u);
  EXPECT_EQ(packed[0].path, o.out / "train");
  EXPECT_EQ(packed[1].path, o.out / "validation");
  EXPECT_EQ(read_all(o.out / "train"), tokens_of(train));
  EXPECT_EQ(read_all(o.out / "validation"), tokens_of(validation));
  expect_consistent(packed[0], tokens_of(train));
  expect_consistent(packed[1], tokens_of(validation));
  EXPECT_EQ(packed[1].manifest.shards[1].file, "validation_000001.bin");
}

// Those of one split that are written together are few bytes, or many.
TEST_F(PackTest, small_and_large_documents_stay_in_their_order) {
  std::array<Documents, 2> documents;
  std::string text;
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    constexpr std::size_t kSizes[] = {10, 3'000, 70'000, 100'000};
    const auto document = random_text(kSizes[random() % 4], random(), "abc");
    documents[is_validation(i, 0.4) ? 1 : 0].push_back(document);
    text += document + "\n";
  }
  auto o = options({input("text", text)});
  o.document_separator = "\n";
  o.validation_share = 0.4;
  o.shard_tokens = 1'500'000;
  const auto packed = pack(o);
  for (std::size_t split = 0; split < 2; ++split) {
    EXPECT_TRUE(read_all(packed[split].path) == tokens_of(documents[split])) << split;
    expect_consistent(packed[split], tokens_of(documents[split]));
  }
}

TEST(Validation, every_prefix_has_its_share_to_within_one_document_or_two) {
  for (const double share : {0.001, 0.005, 0.05, 0.1, 1.0 / 3, 0.5}) {
    std::int64_t held_out = 0;
    for (std::int64_t i = 0; i < 20'000; ++i) {
      held_out += is_validation(i, share);
      ASSERT_NEAR(static_cast<double>(held_out), share * static_cast<double>(i + 1),
                  share < 0.2 ? 1.0 : 0.25 * static_cast<double>(i + 1) + 1)
          << share << " " << i;
    }
  }
}

// Where a text repeats every 20 documents, a period of 20 would hold out the same kind each time.
TEST(Validation, what_is_held_out_follows_no_period) {
  std::array<int, 20> at_place{};
  for (std::int64_t i = 0; i < 20'000; ++i)
    at_place[static_cast<std::size_t>(i % 20)] += is_validation(i, 0.05);
  for (const int n : at_place)
    EXPECT_NEAR(n, 50, 35);  // 5 standard deviations
}

TEST_F(PackTest, one_document_cannot_be_split_and_the_message_says_what_helps) {
  auto o = options({input("book", "one\n\ntwo\n\nthree\n\nfour")});
  o.validation_share = 0.5;
  expect_contains(message_of<DataError>([&] { pack(o); }), "--document-separator");
  EXPECT_TRUE(outputs().empty());
  o.document_separator = "\n\n";
  EXPECT_EQ(pack(o).size(), 2u);
}

TEST_F(PackTest, what_was_saved_of_a_text_that_cannot_be_split_goes) {
  auto o = options({input("book", std::string(300'000, 'x'))});
  o.shard_tokens = 50'000;
  o.validation_share = 0.5;
  for (int i = 0; i < 20; ++i) {
    expect_contains(message_of<DataError>([&] { pack(o); }), "--document-separator");
    EXPECT_TRUE(outputs().empty());
  }
}

TEST_F(PackTest, without_threads_it_says_what_to_do) {
  const auto o = options({input("text", "text")});
  {
    const testing::NoThreads none;
    expect_contains(message_of<TransientError>([&] { pack(o); }), "no thread can be started: ");
  }
  EXPECT_TRUE(outputs().empty());
  EXPECT_EQ(pack(o).size(), 1u);
}

TEST_F(PackTest, what_cannot_be_packed_is_refused_and_leaves_nothing) {
  const auto text = input("text", "text");
  expect_contains(message_of<DataError>([&] { pack(options({directory_ / "none"})); }), "none");
  expect_contains(message_of<DataError>([&] { pack(options({input("empty", "")})); }), "no text");
  auto o = options({directory_ / "in"});
  o.out = directory_ / "in/deep/out";
  expect_contains(message_of<UsageError>([&] { pack(o); }), "lies inside the input");
  {
    const WorkingDirectory inside(directory_ / "in");
    for (const char* name : {"out", "./deep/../out", "../in/out"}) {
      auto relative = options({"."});
      relative.out = name;
      expect_contains(message_of<UsageError>([&] { pack(relative); }), "lies inside the input");
    }
  }
  for (const char* name : {".", "..", "/", "x/..", ""}) {
    auto nameless = options({text});
    nameless.out = name;
    expect_contains(message_of<UsageError>([&] { pack(nameless); }), "expected the name");
  }
  auto taken = options({text});
  fs::create_directories(taken.out);
  spit(taken.out / "x", "x");
  expect_contains(message_of<UsageError>([&] { pack(taken); }), "exists");
  fs::remove_all(taken.out);
  EXPECT_TRUE(outputs().empty());
  fs::create_directories(taken.out);
  EXPECT_EQ(pack(taken).size(), 1u) << "an empty directory may be used";
}

TEST_F(PackTest, a_directory_called_as_the_one_it_works_in_is_not_touched) {
  const auto text = input("text", "text");
  const auto expect_kept = [&](const PackOptions& o, const fs::path& kept, const std::string& why) {
    spit(kept, "precious");
    expect_contains(message_of<UsageError>([&] { pack(o); }), why);
    EXPECT_EQ(slurp(kept), "precious");
    EXPECT_FALSE(fs::exists(o.out));
  };
  const auto corpus = directory_ / "corpus.tmp";
  fs::create_directories(corpus / "x");
  fs::create_symlink(corpus / "x", directory_ / "in/link");
  auto o = options({corpus});
  o.out = directory_ / "corpus";
  expect_kept(o, corpus / "x/text", "lies in " + corpus.string());
  o.inputs = {text, directory_ / "in/link/text"};
  expect_kept(o, corpus / "x/text", "lies in " + corpus.string());
  o.inputs = {text};
  expect_kept(o, corpus / "x/text", "corpus.tmp: holds x, which packing did not put there");
  for (const std::string file : {"dataset/x", "command.json", "progress.json"}) {
    fs::remove_all(corpus);
    fs::create_directories((corpus / file).parent_path());
    expect_kept(o, corpus / file, "which packing did not put there");
  }
  fs::create_directories(corpus / "dataset");
  spit(corpus / "lock", "");
  fs::remove(corpus / "progress.json");
  expect_kept(o, corpus / "dataset/x", "holds dataset, which packing did not put there");
  fs::remove_all(corpus);
  fs::create_directories(corpus);
  EXPECT_EQ(pack(o).size(), 1u) << "an empty directory may be used";
  EXPECT_FALSE(fs::exists(corpus));
}

TEST_F(PackTest, a_directory_that_another_process_packs_into_instead_is_left_alone) {
  const auto out = directory_ / "out", work = directory_ / "out.tmp";
  std::optional<PackDirectory> directory(std::in_place, out, Json(Json::Object{}),
                                         /*resumable=*/true);
  fs::rename(work, directory_ / "moved");
  const PackDirectory other(out, Json(Json::Object{}), /*resumable=*/true);
  spit(other.dataset() / "shard", "the other's");
  expect_contains(message_of<DataError>([&] { directory->save({}, ""); }),
                  "out.tmp: was removed, moved or replaced while it was packed into");
  expect_contains(message_of<DataError>([&] { directory->commit(); }), "was removed, moved");
  directory.reset();
  EXPECT_EQ(slurp(work / "dataset/shard"), "the other's");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(PackTest, what_somebody_puts_beside_its_files_meanwhile_stays) {
  ::testing::internal::CaptureStderr();
  const auto out = directory_ / "out";
  {
    const PackDirectory directory(out, Json(Json::Object{}), /*resumable=*/true);
    spit(directory.dataset() / "shard", "x");
    spit(directory_ / "out.tmp/notes", "precious");
  }
  EXPECT_EQ(slurp(directory_ / "out.tmp/notes"), "precious");
  EXPECT_FALSE(fs::exists(directory_ / "out.tmp/dataset"));
  expect_contains(::testing::internal::GetCapturedStderr(), "out.tmp: cannot remove it");
}

TEST_F(PackTest, a_record_that_cannot_be_of_what_is_packed_is_refused) {
  const auto text = input("1.txt", random_text(3 << 18, 7, "ab\n"));
  auto o = options({text, input("2.jsonl", "not JSON")});
  o.document_separator = "\n";
  o.shard_tokens = 100'000;
  EXPECT_THROW(pack(o), DataError);
  const fs::path work = str(o.out.string(), ".tmp");
  const auto progress = work / "progress.json";
  const auto right = Json::parse(slurp(progress), "progress");
  const auto expect_refused = [&](const Json& record, const std::string& why) {
    spit(progress, record.dump());
    const auto message = message_of<DataError>([&] { pack(o); });
    expect_contains(message, progress.string());
    expect_contains(message, why);
  };
  const auto with = [](Json json, const char* name, Json value) {
    json.set(name, std::move(value));
    return json;
  };
  const auto with_split = [&](const char* name, Json value) {
    return with(right, "splits",
                Json::Array{with(right.at("splits").as_array()[0], name, std::move(value))});
  };
  const auto list = work / "shards.jsonl";
  const auto right_list = slurp(list);
  const auto expect_shard_refused = [&](const char* name, Json value, const std::string& why) {
    const auto end = right_list.find('\n');
    const auto line = with(Json::parse(right_list.substr(0, end), "line"), name, std::move(value));
    const auto changed = str(line.dump(), right_list.substr(end));
    spit(list, changed);
    spit(progress,
         with(with(right, "list_bytes", std::ssize(changed)), "list_xxh3_128", hash_hex(changed))
             .dump());
    expect_contains(message_of<DataError>([&] { pack(o); }), why);
    spit(list, right_list);
  };
  expect_refused(with(right, "file", 3), "file is 3, and there are 2");
  expect_refused(with(right, "file", 2), "it goes on within a file behind the last");
  expect_refused(with(right, "splits", Json::Array(2, right.at("splits").as_array()[0])),
                 "it is of 2 datasets, expected 1");
  expect_refused(with_split("tokens", 100'000), "has 100000 tokens, expected below 100000");
  expect_refused(with_split("mask_byte", 1), "mask_byte");
  expect_refused(with_split("mask_byte", 128), "mask_byte");
  expect_refused(with_split("shards", 1), "it says 1 shards, the list ");
  expect_refused(with(right, "lockstep_pack", 1),
                 "its format has version 1, expected 4; go on with");
  expect_refused(with(right, "byte", 1 << 20), "\"read\" lacks ");
  expect_shard_refused("tokens", 99'999, "has 99999 tokens, expected 100000");
  expect_shard_refused("tokens", std::int64_t{1} << 62, "shards.jsonl: line 1: JSON: ");
  expect_shard_refused("documents", 100'001, "documents");
  expect_shard_refused("file", "../1.bin", "expected a plain name");
  expect_shard_refused("mask_xxh3_128", std::string(32, '0'), "has a loss mask");
  expect_shard_refused("split", 1, "shards.jsonl: line 1: split 1 of 1");

  auto another_hash = right_list;
  auto& digit = another_hash[another_hash.find("\"xxh3_128\":\"") + 12];
  digit = digit == '0' ? '1' : '0';
  for (const auto& damaged : {right_list.substr(0, right_list.size() - 1), another_hash,
                              str("x", right_list.substr(1)), std::string()}) {
    spit(list, damaged);
    spit(progress, right.dump());
    expect_contains(message_of<DataError>([&] { pack(o); }), str(list.string(), ": "));
  }
  spit(list, str(right_list, "{\"half a li"));  // as a kill leaves it
  const auto read = right.at("read").as_array()[0];
  const auto rest = (1 << 20) - read.at("bytes").as_integer();
  spit(progress,
       with(with(right, "byte", 1 << 20), "read", Json::Array{read, with(read, "bytes", rest)})
           .dump());
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  text.string() + ": ends at byte 786432, expected 1048576");
  spit(progress, right.dump());
  expect_contains(message_of<DataError>([&] { pack(o); }), "2.jsonl: line 1");
}

TEST_F(PackTest, what_lies_behind_what_is_done_may_be_mended) {
  const auto lines = [](int count, std::uint64_t seed) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += str(R"({"text": ")", random_text(50'000, seed + static_cast<unsigned>(i), "abc "),
                  "\"}\n");
    return text;
  };
  const auto first = input("1.jsonl", lines(20, 1));
  input("3.jsonl", lines(3, 3));
  const auto begin = lines(40, 2);
  const auto second = input("2.jsonl", str(begin, "no JSON\n", lines(3, 7)));
  auto o = options({directory_ / "in"});
  o.shard_tokens = 300'000;
  ::testing::internal::CaptureStderr();
  expect_contains(message_of<DataError>([&] { pack(o); }), "2.jsonl: line 41");
  const auto log = ::testing::internal::GetCapturedStderr();
  expect_contains(log, "keeps what is done, up to byte ");
  expect_contains(log,
                  str(" of ", second.string(), "; the same command goes on from there, and what"));
  const fs::path work = str(o.out.string(), ".tmp");
  const auto position =
      Json::parse(slurp(work / "progress.json"), "record").at("byte").as_integer();
  ASSERT_GT(position, 0);
  // What was read is another: nothing is taken away.
  const auto before = slurp(work / "progress.json");
  auto other = begin;
  other[static_cast<std::size_t>(position) / 2] ^= 1;
  spit(second, other);
  expect_contains(message_of<UsageError>([&] { pack(o); }),
                  str(second.string(), " changed before byte ", position, " of its text); give"));
  spit(second, begin.substr(0, static_cast<std::size_t>(position) - 1));
  expect_contains(message_of<UsageError>([&] { pack(o); }), "2.jsonl changed before byte ");
  spit(second, str(begin, "still no JSON\n"));
  spit(first, lines(20, 9));
  expect_contains(message_of<UsageError>([&] { pack(o); }),
                  "1.jsonl changed since it was packed: its time is another");
  EXPECT_EQ(slurp(work / "progress.json"), before);
  EXPECT_TRUE(fs::exists(work / "dataset/train_000003.bin"));
  spit(first, lines(20, 1));
  expect_contains(message_of<UsageError>([&] { pack(o); }),
                  "1.jsonl changed since it was packed: ");
  // What else the command was is said in words.
  o.tokenizer = std::string(LOCKSTEP_TOKENIZERS "/gpt2");
  const auto refusal = message_of<UsageError>([&] { pack(o); });
  expect_contains(refusal, "the tokenizer was bytes of hash ");
  expect_contains(refusal, ", now gpt2 of hash ");
  EXPECT_EQ(refusal.find('{'), std::string::npos) << refusal;
}

TEST_F(PackTest, a_directory_that_is_being_packed_into_is_free_later) {
  const auto text = input("text", "text");
  const auto o = options({text});
  const fs::path work = str(o.out.string(), ".tmp");
  fs::create_directories(work);
  const int lock = open((work / "lock").c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const auto message = message_of<TransientError>([&] { pack(o); });
  expect_contains(message, "out1.tmp: another process is packing into it");
  close(lock);
  expect_packed(o, {"text"});
}

TEST_F(PackTest, with_a_mended_input_the_dataset_is_what_it_would_be_from_the_begin) {
  const auto text = random_text(4'000'000, 5, "abc \n");
  const auto first = input("1.txt", random_text(700'000, 4, "abc \n")), second = input("2.txt", "");
  const auto third = input("3.txt", "x");
  auto o = options({first, second, third});
  o.document_separator = "\n";
  o.shard_tokens = 200'000;
  // Stopped twice, so that there are two stretches of the second file; each time it gets longer.
  // What follows then is less than what was begun behind the record.
  const auto bad = input("4.jsonl", "no JSON");
  o.inputs.push_back(bad);
  for (const std::size_t size : {2'000'000u, 3'000'000u}) {
    spit(second, text.substr(0, size));
    EXPECT_THROW(pack(o), DataError);
  }
  const fs::path work = str(o.out.string(), ".tmp");
  const auto record = Json::parse(slurp(work / "progress.json"), "record");
  EXPECT_EQ(record.at("file").as_integer(), 1);
  EXPECT_EQ(record.at("read").as_array().size(), 2u);
  spit(work / "dataset/train_000099.bin", "begun behind the record");
  spit(second,
       str(text.substr(0, static_cast<std::size_t>(record.at("byte").as_integer())), "d\ne"));
  o.inputs = {first, second, input("5.txt", "another\n")};
  ::testing::internal::CaptureStderr();
  const auto packed = pack(o);
  expect_contains(::testing::internal::GetCapturedStderr(), "goes on behind");
  auto anew = options(o.inputs);
  anew.document_separator = "\n";
  anew.shard_tokens = 200'000;
  EXPECT_EQ(packed[0].manifest.dump(), pack(anew)[0].manifest.dump());
  EXPECT_TRUE(verify(o.out).damages.empty());
  EXPECT_FALSE(fs::exists(o.out / "train_000099.bin"));
}

TEST_F(PackTest, a_pattern_that_finds_what_packing_left_goes_on_without_that) {
  const auto first = input("1.txt", random_text(700'000, 4, "abc \n"));
  const auto bad = input("2.jsonl", "no JSON");
  auto o = options({directory_ / "in/*"});
  o.out = directory_ / "in/packed";
  o.shard_tokens = 200'000;
  EXPECT_THROW(pack(o), DataError);
  EXPECT_TRUE(fs::exists(directory_ / "in/packed.tmp/dataset/train_000000.bin"));
  spit(bad, R"({"text": "mended"})");
  const auto packed = pack(o);
  auto anew = options({first, bad});
  anew.shard_tokens = 200'000;
  EXPECT_EQ(packed[0].manifest.dump(), pack(anew)[0].manifest.dump());
}

TEST_F(PackTest, another_command_is_refused_before_a_shard_was_full_too) {
  const auto text = input("text", "text");
  auto o = options({text});
  const fs::path work = str(o.out.string(), ".tmp");  // as a kill leaves it
  pack(o);
  fs::create_directories(work);
  fs::rename(o.out, work / "dataset");
  spit(work / "lock", "");
  spit(work / "command.json", R"({"validation": 0.25, "inputs": []})");
  expect_contains(message_of<UsageError>([&] { pack(o); }),
                  "out1.tmp: holds what another command has done (document_separator was nothing");
  EXPECT_TRUE(fs::exists(work / "dataset/train_000000.bin"));
  fs::remove_all(work);
  EXPECT_EQ(pack(o).size(), 1u);
}

TEST_F(PackTest, what_is_no_text_is_refused_by_what_it_is) {
  const auto refusal = [&](const std::string& name, const std::string& bytes,
                           const std::string& tokenizer = "bytes") {
    auto o = options({input(name, bytes)});
    o.tokenizer = tokenizer;
    return message_of<DataError>([&] { pack(o); });
  };
  const std::string rest(3'000, 'r');
  const auto tar = str("name", std::string(253, '\0'), "ustar", '\0', "00", rest);
  for (const auto& [bytes, what] : std::vector<std::pair<std::string, std::string>>{
           {str("PAR1\x15", rest), "a Parquet file"},
           {str("PK\3\4", rest), "a zip archive"},
           {str(std::string("\xfd\x37zXZ\0", 6), rest), "an xz file"},
           {str("BZh91AY&SY", rest), "a bzip2 file"},
           {str("7z\xbc\xaf\x27\x1c", rest), "a 7z archive"},
           {str(std::string("ARROW1\0\0", 8), rest), "an Arrow file"},
           {str("\x93NUMPY", rest), "a NumPy array"},
           {str("%PDF-1.4\n", rest), "a PDF document"},
           {"\xff\xfet\0", "text in UTF-16"},
           {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "a pointer of Git LFS in place of the file (`git lfs pull` brings it)"},
           {str("\x89PNG\r\n\x1a\n", rest), "a PNG image"},
           {str("\xff\xd8\xff\xe0", rest), "a JPEG image"},
           {str(std::string("\0\0\0\x20", 4), "ftypisom", rest), "a film"},
           {str("\x7f", "ELF\2", rest), "a program"},
           {str(std::string("\x40\0\0\0\0\0\0\0", 8), "{\"a\"", rest), "a safetensors file"},
           {str("\xfe\xff", rest), "text in UTF-16"},
           {gpt2_shard({50256, 1, 2}), "a token shard"},
           {str(header(20240801, 7, 1), "abcd"), "a token shard"},
           {str("BIN.TOK\n", rest), "a token shard of LLMQ"},
           {str("MMIDIDX", rest), "a Megatron index"},
           {tar, "a tar archive"}}) {
    expect_contains(refusal("x", bytes), str("in/x is ", what));
    expect_contains(refusal("x.jsonl", gzip_member(bytes)), str("in/x.jsonl is ", what));
    expect_contains(refusal("x", zstd_frame(bytes)), what);
  }
  expect_contains(refusal("x.tar.gz", gzip_member(gzip_member("x"))), "compressed twice");
  expect_contains(refusal("x.xz", std::string("\xfd\x37zXZ\0", 6)),
                  "in/x.xz | lockstep data pack - ...");
  // JSON that would be learnt with its keys.
  for (const std::string text : {"{\"text\": \"a\"}\n", " \n[{", "\xef\xbb\xbf{}"})
    expect_contains(refusal("x.json", text),
                    "in/x.json holds JSON; where each line is an object, ");
  expect_packed(options({input("plain.json", "a {")}), {"a {"});
  expect_packed(options({input("x.txt", "{}")}), {"{}"});
  auto o = options({input("y.json", "{\"text\": \"a\"}\n")});
  o.field = std::string("text");
  expect_packed(o, {"a"});
  // Whatever it is called, and where it is cut off.
  const std::string line = "{\"text\": \"a\", \"id\": true}\r\n";
  for (const std::string name : {"x", "x.txt", "x.json.gzip", "x.jsons"})
    for (const auto& bytes : {line + line, "\n " + line, line.substr(0, line.size() - 2),
                              "{\"text\": \"" + std::string(200'000, 'a') + "\"}\n"}) {
      const auto message = refusal(name, bytes);
      expect_contains(message,
                      str("in/", name, " holds JSON; where each line is an object, give "));
      expect_contains(message, "--field, or call it .jsonl");
      expect_contains(message, "--plain-text");
    }
  for (const std::string name : {"x.JSONL", "x.jl", "x.NDJSON", "x.Jl.GZ", "x.JSON.gz"})
    expect_packed(options({input(name, line)}), {"a"});
  // What is called compressed and is not: lines of JSON that were decompressed on their way are
  // fine.
  for (const std::string name : {"x.txt.gz", "x.GZ", "x.jsonl.gz", "x.json.zst", "x.zstd"})
    for (const std::string& text : {std::string("<html>not found</html>"), std::string(),
                                    std::string("\0\0\0", 3) + rest, str("\x1e\x8b", rest)}) {
      const auto message = refusal(name, text);
      expect_contains(message, str("in/", name, " is called *."));
      expect_contains(message, "but is neither gzip nor zstd");
    }
  auto as_it_stands = options({input("x.txt.gz", "a text")});
  as_it_stands.plain_text = true;
  expect_packed(as_it_stands, {"a text"});
  expect_packed(options({input("x.txt.gz", zstd_frame("a text"))}), {"a text"});
  for (const std::string text : {"{\"a\" is a set}\n{}", "{\n \"a\": 1}", "x\n{\"text\": \"a\"}"})
    expect_packed(options({input("x.txt", text)}), {text});
  expect_contains(refusal("x.csv", "a,b\n"),
                  "in/x.csv is a table; write its rows as lines of JSON");
  expect_contains(refusal("x.TSV.gz", gzip_member("a\tb\n")), "--plain-text");
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"x", line}, {"x.json", "{}"}, {"x.csv", "a,b\n"}}) {
    auto plain = options({input(name, text)});
    plain.plain_text = true;
    expect_packed(plain, {text});
  }
  // Zeros are bytes like any other, of bytes, and where one of them separates documents.
  const std::string zero("a\0b", 3), tokenizer = LOCKSTEP_TOKENIZERS "/gpt2";
  expect_contains(refusal("zero", zero, tokenizer), "in/zero is no text: byte 1 is zero");
  expect_packed(options({input("zero", zero)}), {zero});
  auto separated = options({input("zero", zero)});
  separated.tokenizer = tokenizer;
  separated.document_separator = std::string(1, '\0');
  EXPECT_EQ(pack(separated)[0].manifest.documents(), 2);
  // Words that a text may begin with.
  for (const std::string text : {"PAR1 is a receptor", "GGUF is a format", "ARROW1", "BZh", "Obj"})
    expect_packed(options({input("x", text)}), {text});
}

TEST_F(PackTest, a_file_that_is_named_as_text_beside_lines_of_json_can_be_left_out) {
  input("hub/README.md", "# Title\n");
  input("hub/a.jsonl.gz", gzip_member("{\"text\": \"a\"}\n"));
  auto o = options({directory_ / "in/hub"});
  o.field = std::string("text");
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  str("README.md: line 1, byte 0: expected an object, {; to leave README.md out, "
                      "name the others by a pattern in quotes: '",
                      (directory_ / "in/hub/*.jsonl.gz").string(), "'"));
  expect_packed(options({directory_ / "in/hub/*.jsonl.gz"}), {"a"});
  expect_contains(message_of<DataError>([&] { pack(options({directory_ / "in/hub/*.txt"})); }),
                  "*.txt: no file matches the pattern");
}

TEST_F(PackTest, a_member_that_is_not_there_is_said_beside_those_that_are) {
  const auto file = input("x.jsonl", R"({"title": "a", "body": "b"})");
  expect_contains(message_of<DataError>([&] { pack(options({file})); }),
                  R"(no member "text", but "title", "body"; --field names another)");
  auto o = options({input("y.jsonl", R"({"m": [{"from": "human", "value": "a"}]})")});
  o.messages_field = std::string("m");
  o.chat_template = std::string("chatml");
  o.tokenizer = std::string(LOCKSTEP_TOKENIZERS "/qwen3");
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  R"(no member "role", but "from", "value"; expected a list of {"role": ..., )");
}

TEST_F(PackTest, what_was_probably_not_meant_is_said_in_the_end) {
  const auto said = [&](const PackOptions& o) {
    ::testing::internal::CaptureStderr();
    pack(o);
    return ::testing::internal::GetCapturedStderr();
  };
  auto o = options({input("unix", "a\nb\n")});
  o.document_separator = "\n\n";
  expect_contains(said(o), "--document-separator stands nowhere in the text");
  o = options({input("unix", "a\nb\n"), input("windows", "a\r\n\r\nb\r\n")});
  o.document_separator = "\n\n";
  expect_contains(said(o), "its lines end with \\r\\n, which the separator must name");
  o = options({input("unix", "a\n\nb\n"), input("windows", "a\r\n\r\nb\r\n")});
  o.document_separator = "\n\n";
  EXPECT_EQ(said(o).find("separator"), std::string::npos);
  // Of a conversation without an answer nothing is learnt.
  const std::string asked = R"({"m": [{"role": "user", "content": "a"}]})";
  auto chat =
      options({input("chat.jsonl", str(asked, "\n", asked, "\n", R"({"m": []})", "\n",
                                       R"({"m": [{"role": "assistant", "content": ""}]})"))});
  chat.messages_field = std::string("m");
  chat.chat_template = std::string("chatml");
  chat.tokenizer = std::string(LOCKSTEP_TOKENIZERS "/qwen3");
  expect_contains(said(chat), "in 2 conversations the assistant says nothing");
}

// Meta's own template has `message['content'] | trim`.
TEST_F(PackTest, llama3_trims_what_is_said_and_chatml_does_not) {
  const std::string space = "\t \u00a0\u3000\u0085\x1f";
  const auto text_of = [&](const char* name) {
    ChatTemplate made = chat_template(name);
    return std::string(content_of(made, space + "a \u200b" + space));
  };
  EXPECT_EQ(text_of("llama3"), "a \u200b") << "a space of no width is none";
  EXPECT_EQ(text_of("chatml"), space + "a \u200b" + space);
  EXPECT_EQ(content_of(chat_template("llama3"), space), "");
}

TEST_F(PackTest, names_of_special_tokens_are_text_where_it_is_plain) {
  for (const auto& file :
       {input("a.txt", "a<|endoftext|>b"), input("a.jsonl", "{\"text\": \"a<|endoftext|>b\"}")}) {
    auto o = options({file});
    o.tokenizer = std::string(LOCKSTEP_TOKENIZERS "/gpt2");
    const auto tokenizer = open_tokenizer(o.tokenizer);
    const auto special = tokenizer->about().document_token;
    const auto count = [&](bool plain) {
      auto p = options({file});
      p.tokenizer = o.tokenizer;
      p.plain_text = plain;
      pack(p);
      const auto tokens = read_all(p.out);
      EXPECT_EQ(tokenizer->decode(std::span(tokens).subspan(1), Tokenizer::Specials::named),
                "a<|endoftext|>b");
      return std::ranges::count(tokens, special);
    };
    EXPECT_EQ(count(false), 2);
    EXPECT_EQ(count(true), 1);
  }
}

// Which can be known of files that follow: a batch of nothing but separators ends where its file
// does.
TEST_F(PackTest, nothing_is_lost_behind_a_file_of_separators) {
  for (const std::size_t lines : {(3u << 17) + 1, 7u << 16, (1u << 19) - 1, 1u << 19}) {
    SCOPED_TRACE(lines);
    auto o = options({input("1", std::string(lines, '\n')), input("2", "two\nthree")});
    o.document_separator = "\n";
    expect_packed(o, {"two", "three"});
  }
}

TEST_F(PackTest, a_separator_that_is_too_long_is_refused) {
  auto o = options({input("text", std::string(1u << 17, 'x') + "y")});
  o.document_separator = std::string((1u << 16) + 1, 'x');
  expect_contains(message_of<UsageError>([&] { pack(o); }), "--document-separator has 65537 bytes");
  o.document_separator.pop_back();
  expect_packed(o, {"y"});
}

TEST_F(PackTest, the_output_may_be_relative_or_end_with_a_slash) {
  const auto text = input("text", "text");
  const WorkingDirectory here(directory_.path());
  for (const char* name : {"a/", "./b", "c/./d//", "x/../e"}) {
    auto o = options({text});
    o.out = name;
    const auto path = pack(o)[0].path;
    EXPECT_EQ(read_all(path), tokens_of({"text"})) << path;
    EXPECT_EQ(path.filename().string().size(), 1u) << path;
    EXPECT_TRUE(verify(path).damages.empty());
    fs::remove_all(path);
  }
}

TEST_F(PackTest, an_input_that_cannot_be_read_is_named) {
  const auto locked = input("locked", "text");
  chmod(locked.c_str(), 0);
  chmod(directory_.path().c_str(), 0777);
  const auto message = [&] {
    const AsNobody nobody;
    return message_of<DataError>([&] { pack(options({locked})); });
  }();
  expect_contains(message, locked.string() + ": cannot open: Permission denied");
  EXPECT_TRUE(outputs().empty());
}

TEST_F(PackTest, a_byte_that_the_tokenizer_lacks_is_refused_with_its_document) {
  const auto tokenizer = directory_ / "tokenizer.json";
  spit(tokenizer, R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                      "added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true}],
                      "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  auto o = options({input("a.txt", "ab\nba\nabc")});
  o.tokenizer = tokenizer.string();
  o.document_separator = "\n";
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  "a.txt: byte 6: the tokenizer has no token for the byte 99 (0x63)");
  o.document_separator.clear();
  o.inputs = {input("b.jsonl", R"({"p": "a", "r": "ab"}
{"p": "a", "r": "x"})")};
  o.prompt_field = "p";
  o.response_field = "r";
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  "b.jsonl: line 2, byte 22: the tokenizer has no token for the byte 120 (0x78)");
}

// A vocabulary without the bytes of c and x.
std::string tokenizer_with_gaps(const fs::path& path) {
  spit(path, R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                 "added_tokens": [{"id": 9, "content": "<|endoftext|>", "special": true}],
                 "model": {"vocab": {"a": 0, "b": 1, "ab": 2, "\u00ef": 3, "\u00bf": 4, "\u00bd": 5,
                                     "\u010a": 6}, "merges": ["a b"]}})");
  return path.string();
}

// Ids as the package `tokenizers` has them where it drops (tests/data/bpe_test.cpp).
TEST_F(PackTest, bytes_without_a_token_are_dropped_or_replaced_and_counted) {
  const auto tokenizer = tokenizer_with_gaps(directory_ / "tokenizer.json");
  const auto lines = input("b.jsonl", R"({"text": "ab"}
{"text": "acbx"}
{"text": "c\n\ud800c"})");
  const auto packed = [&](MissingBytes missing) {
    auto o = options({lines});
    o.tokenizer = tokenizer;
    o.missing_bytes = missing;
    ::testing::internal::CaptureStderr();
    pack(o);
    auto log = ::testing::internal::GetCapturedStderr();
    return std::tuple(read_all(o.out), log, Json::parse(slurp(o.out / "dataset.json"), "manifest"));
  };
  const auto [dropped, drop_log, drop_manifest] = packed(MissingBytes::drop);
  EXPECT_EQ(dropped, (Tokens{9, 2, 9, 2, 9, 6, 3, 4, 5}));
  expect_contains(drop_log,
                  "4 bytes have no token in the vocabulary and were dropped; the first: " +
                      lines.string() + ": line 2, byte 15");
  expect_contains(drop_log, "1 place was no valid Unicode");
  EXPECT_EQ(drop_manifest.at("missing_bytes").as_string(), "drop");
  const auto [replaced, replace_log, replace_manifest] = packed(MissingBytes::replace);
  EXPECT_EQ(replaced, (Tokens{9, 2, 9, 0, 3, 4, 5, 1, 3, 4, 5, 9, 3, 4, 5, 6, 3, 4, 5, 3, 4, 5}));
  expect_contains(replace_log, "4 characters have a byte without a token and became U+FFFD");
  EXPECT_EQ(replace_manifest.at("missing_bytes").as_string(), "replace");
  expect_contains(message_of<DataError>([&] { packed(MissingBytes::refuse); }),
                  "b.jsonl: line 2, byte 15: the tokenizer has no token for the byte 99 (0x63); "
                  "--missing-bytes drop leaves out");
  expect_contains(::testing::internal::GetCapturedStderr(),
                  "has no token for 250 bytes, 00 01 02 ");
  // U+FFFD needs tokens itself; what is written in a template is not odd text.
  spit(directory_ / "tokenizer.json",
       R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
           "added_tokens": [{"id": 9, "content": "<|endoftext|>"}],
           "model": {"vocab": {"a": 0}, "merges": []}})");
  auto o = options({lines});
  o.tokenizer = tokenizer;
  o.missing_bytes = MissingBytes::replace;
  expect_contains(message_of<UsageError>([&] { pack(o); }),
                  "(hexadecimal), and U+FFFD is the bytes ef bf bd; give --missing-bytes drop");
  spit(directory_ / "roles.json", R"({"roles": {"assistant": {"prefix": "ab", "suffix": "a"}}})");
  o.missing_bytes = MissingBytes::drop;
  o.messages_field = "m";
  o.chat_template = (directory_ / "roles.json").string();
  expect_contains(message_of<DataError>([&] { pack(o); }),
                  "roles.json: \"assistant\": the tokenizer has no token for the byte 98 (0x62)");
}

// What was read under `refuse` has no such byte, so any setting has the same tokens up to there.
TEST_F(PackTest, another_setting_for_missing_bytes_goes_on_only_from_refuse) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += str(R"({"text": ")", random_text(50'000, static_cast<unsigned>(i), "ab"), "\"}\n");
  const auto file = input("a.jsonl", lines + "{\"text\": \"abc\"}\n");
  const auto with = [&](MissingBytes missing) {
    auto o = options({file});
    o.out = directory_ / "packed";
    o.tokenizer = tokenizer_with_gaps(directory_ / "tokenizer.json");
    o.shard_tokens = 100'000;
    o.missing_bytes = missing;
    return o;
  };
  expect_contains(message_of<DataError>([&] { pack(with(MissingBytes::refuse)); }), "line 21");
  spit(file, lines + "{\"text\": \"abc\"}\nno JSON\n");
  expect_contains(message_of<DataError>([&] { pack(with(MissingBytes::drop)); }), "line 22");
  for (const auto other : {MissingBytes::replace, MissingBytes::refuse})
    expect_contains(message_of<UsageError>([&] { pack(with(other)); }),
                    str("missing_bytes was \"drop\", now \"", name(other), "\""));
  spit(file, lines + "{\"text\": \"abc\"}\n");
  const auto packed = pack(with(MissingBytes::drop));
  auto anew = with(MissingBytes::drop);
  anew.out = directory_ / "anew";
  EXPECT_EQ(packed[0].manifest.dump(), pack(anew)[0].manifest.dump());
}

TEST_F(PackTest, numbers_that_are_not_json_end_nothing_and_are_counted) {
  const auto said = [&](const std::string& text) {
    auto o = options({input("a.jsonl", text)});
    ::testing::internal::CaptureStderr();
    pack(o);
    return std::pair(read_all(o.out), ::testing::internal::GetCapturedStderr());
  };
  const auto [tokens, log] =
      said("{\"text\": \"a\"}\n{\"score\": NaN, \"text\": \"b\", \"x\": [-Infinity]}\n");
  EXPECT_EQ(tokens, tokens_of({"a", "b"}));
  expect_contains(log,
                  "2 values that are not read are NaN or Infinity, which is not JSON; the first: ");
  expect_contains(log, "a.jsonl: line 2, byte 14");
}

TEST_F(PackTest, lines_that_end_with_a_carriage_return_alone_are_named) {
  const auto lines = input("a.jsonl", "{\"text\": \"a\"}\r{\"text\": \"b\"}\r");
  expect_contains(message_of<DataError>([&] { pack(options({lines})); }),
                  lines.string() + ": line 1, byte 14: a line ends with \\r alone; expected \\n");
  const auto o = options({input("a.txt", "one\rtwo\r"), input("b.txt", "three\r\nfour\r"),
                          input("c.txt", "five\rsix")});
  ::testing::internal::CaptureStderr();
  expect_packed(o, {"one\rtwo\r", "three\r\nfour\r", "five\rsix"});
  expect_contains(::testing::internal::GetCapturedStderr(),
                  "2 text files have lines that end with \\r alone, which is kept; the first: " +
                      (directory_ / "in/a.txt").string());
}

// As a file system leaves them where a machine stopped while a file was written.
TEST_F(PackTest, zero_bytes_at_the_end_are_named) {
  const auto tokenizer = std::string(LOCKSTEP_TOKENIZERS "/gpt2");
  const std::string line = "{\"text\": \"a\"}\n";
  const std::string zeros(300'000, '\0');
  for (const auto& [name, text, count] : std::vector<std::tuple<const char*, std::string, int>>{
           {"a.txt", "one", 1},
           {"b.txt", "one", 200},
           {"c.txt", random_text(200'000, 1, "ab \n"), 300'000},
           {"a.jsonl", line, 4},
           {"b.jsonl", line, 300'000}}) {
    auto o = options({input(name, text + zeros.substr(0, static_cast<std::size_t>(count)))});
    o.tokenizer = tokenizer;
    expect_contains(message_of<DataError>([&] { pack(o); }),
                    str(name, ": ends with ", count, count == 1 ? " zero byte" : " zero bytes",
                        ", from byte ", text.size(), " of its text on"));
  }
  auto o = options({input("d.txt", "one" + zeros + "two")});
  o.tokenizer = tokenizer;
  expect_contains(message_of<DataError>([&] { pack(o); }), "d.txt is no text: byte 3 is zero");
  // To bytes they are tokens, and counted.
  const auto log_of = [&](const PackOptions& packed, const std::vector<std::string>& texts) {
    ::testing::internal::CaptureStderr();
    expect_packed(packed, texts);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string kept("one\0\0", 5), inside("a\0b", 3);
  const auto e = input("e.txt", kept);
  expect_contains(log_of(options({e}), {kept}),
                  str("1 file ends with zero bytes, which became tokens; if writing it was "
                      "interrupted, copy it and pack it again; the first: ",
                      e.string(), ": 2 zero bytes, from byte 3 of its text on"));
  const auto f = input("f.txt", zeros);
  expect_contains(log_of(options({input("d.txt", inside), f, e}), {inside, zeros, kept}),
                  str("2 files end with zero bytes, which became tokens; if writing them was "
                      "interrupted, copy them and pack them again; the first: ",
                      f.string(), ": 300000 zero bytes, from byte 0 of its text on"));
  EXPECT_EQ(log_of(options({input("d.txt", inside)}), {inside}).find("zero byte"),
            std::string::npos);
}

TEST_F(PackTest, pipes_and_standard_input_are_read_to_their_end) {
  const auto text = random_text(1'000'000, 9, "abc\n");
  const auto pipe = directory_ / "in/pipe";
  input("text", text);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream out(pipe, std::ios::binary);
    for (std::size_t at = 0; at < text.size(); at += 1'234)
      out << text.substr(at, 1'234) << std::flush;
  });
  auto o = options({pipe});
  o.document_separator = "\n\n";
  expect_packed(o, split(text, "\n\n"));
  writer.join();

  const int kept = dup(STDIN_FILENO), file = open((directory_ / "in/text").c_str(), O_RDONLY);
  dup2(file, STDIN_FILENO);
  expect_packed(options({"-"}), {text});
  dup2(kept, STDIN_FILENO);
  close(kept);
  close(file);
}

TEST_F(PackTest, a_full_disk_is_said_and_with_room_the_same_call_goes_on) {
  // Room for six shards: of the first ones it is saved how far packing got, before it is full.
  const SmallDisk disk(std::int64_t{12} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
  auto o = options({input("text", random_text(6'000'000, 3, "abc\n"))});
  o.document_separator = "\n";
  o.validation_share = 0.2;
  o.shard_tokens = 500'000;
  const auto whole = pack(o);
  o.out = disk.path() / "out";
  expect_contains(message_of<DataError>([&] { pack(o); }), "No space left");
  EXPECT_FALSE(fs::exists(o.out));
  EXPECT_TRUE(fs::exists(disk.path() / "out.tmp"));
  disk.resize(std::int64_t{64} << 20);
  ::testing::internal::CaptureStderr();
  const auto packed = pack(o);
  expect_contains(::testing::internal::GetCapturedStderr(), "goes on behind");
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(packed[i].manifest.dump(), whole[i].manifest.dump());
    EXPECT_TRUE(verify(packed[i].path).damages.empty());
  }
  EXPECT_FALSE(fs::exists(disk.path() / "out.tmp"));
}

TEST_F(PackTest, a_write_that_fails_leaves_nothing) {
  auto o = options({input("text", random_text(3'000'000, 3, "abc\n"))});
  o.shard_tokens = 1'000'000;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t most : {rlim_t{0}, rlim_t{100}, rlim_t{1'500'000}}) {
    const auto old = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &small);
    std::string message = message_of<Error>([&] { pack(o); });
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old);
    expect_contains(message, "cannot write at byte");
    EXPECT_TRUE(outputs().empty());
  }
}

// Of short documents, whose ends alone are more than the text, and of a single long one. Between
// reader and writer lie up to 8 MiB, how many depends on the disk; and 4 for the allocator.
TEST_F(PackTest, full_memory_does_not_depend_on_the_size_of_the_text) {
  const auto text = random_text(std::size_t{1} << 20, 5, "abc\n");
  const auto peak_bytes = [&](int copies, const std::string& separator) {
    const auto path = input(str("text", copies), "");
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < copies; ++i)
      out << text;
    out.close();
    auto o = options({path});
    o.document_separator = separator;
    o.threads = 1;  // each has room for more that waits to be written, and fills it or not
    const auto child = fork();
    if (child == 0) pack_and_exit(o);
    int status = -1;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    EXPECT_EQ(status, 0);
    return std::int64_t{usage.ru_maxrss} * 1024;
  };
  // What the allocator keeps for each thread differs by some 16 MiB from run to run.
  for (const char* separator : {"\n", ""})
    EXPECT_LT(peak_bytes(256, separator), peak_bytes(64, separator) + (32 << 20)) << separator;
}

// The first round runs to its end; the others are killed at times spread over as long.
TEST_F(PackTest, killed_at_any_time_the_dataset_is_whole_or_not_there) {
  auto o = options({input("text", random_text(2'000'000, 3, "abc\n"))});
  o.document_separator = "\n";
  o.validation_share = 0.1;
  o.shard_tokens = 300'000;
  constexpr int kRounds = 16;
  std::chrono::steady_clock::duration whole{};
  int absent = 0;
  for (int round = 0; round <= kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) pack_and_exit(o);
    if (round > 0) {
      std::this_thread::sleep_for(whole * round / kRounds);
      kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (round == 0) whole = std::chrono::steady_clock::now() - begin;
    if (fs::exists(o.out)) {
      for (const char* part : {"train", "validation"})
        EXPECT_TRUE(verify(o.out / part).damages.empty());
    } else {
      ++absent;
      EXPECT_FALSE(WIFEXITED(status)) << "it ended but left no dataset";
    }
    for (const auto& left : outputs())
      fs::remove_all(directory_ / left);
  }
  EXPECT_GT(absent, 0);
}

TEST_F(PackTest, the_same_text_gives_the_same_bytes_by_any_number_of_threads) {
  const auto text = input("text", random_text(100'000, 3, "abc\n"));
  std::vector<std::string> manifests;
  for (const int threads : {1, 2, 7}) {
    auto o = options({text});
    o.document_separator = "\n";
    o.validation_share = 0.1;
    o.threads = threads;
    manifests.push_back(pack(o)[1].manifest.dump());
  }
  EXPECT_EQ(manifests[0], manifests[1]);
  EXPECT_EQ(manifests[0], manifests[2]);
}

}  // namespace lockstep::testing::pack_test
