#include "data/pack/pack.h"

#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

#include "core/json.h"
#include "data/pack/pack_directory.h"
#include "data/pack/verify.h"
#include "data/tokenizer/chat_template.h"
#include "tests/data/compressed.h"
#include "tests/data/shards.h"
#include "tests/no_threads.h"

namespace lockstep::testing::pack_test {

namespace fs = std::filesystem;

using Texts = std::vector<std::string>;
using Pins = std::initializer_list<std::string>;

const std::string kTokenizers = LOCKSTEP_TOKENIZERS;

Tokens tokens_of(const Texts& documents) {
  Tokens tokens;
  for (const auto& document : documents) {
    tokens.push_back(256);
    for (const char c : document)
      tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

// The pieces between separators that hold something.
Texts split(const std::string& text, const std::string& separator) {
  Texts documents;
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

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
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

class PackTest : public DirectoryTest {
 protected:
  fs::path input(const std::string& name, const std::string& bytes) {
    write("in/" + name, bytes);
    return directory_ / ("in/" + name);
  }
  PackOptions options(const std::vector<fs::path>& inputs, const std::string& separator = "",
                      std::int64_t shard_tokens = std::int64_t{1} << 28) {
    return {.inputs = inputs,
            .out = directory_ / str("out", ++outputs_),
            .document_separator = separator,
            .shard_tokens = shard_tokens};
  }
  // Lines of JSON with conversations in the member "m".
  PackOptions chat(const std::string& lines) {
    auto o = options({input("chat.jsonl", lines)});
    o.messages_field = "m";
    o.chat_template = "chatml";
    o.tokenizer = kTokenizers + "/qwen3";
    return o;
  }
  // Where packing works until it is done.
  static fs::path work_of(const PackOptions& o) { return o.out.string() + ".tmp"; }

  // Packs, expects exactly these documents, and checks all that the dataset says of itself.
  void expect_packed(const PackOptions& o, const Texts& documents) {
    const auto packed = pack(o);
    ASSERT_EQ(packed.size(), 1u);
    EXPECT_EQ(packed[0].path, o.out);
    expect_consistent(packed[0], tokens_of(documents));
  }
  static void expect_consistent(const PackedDataset& packed, const Tokens& tokens) {
    ASSERT_TRUE(all_tokens(Dataset({packed.path.string()})) == tokens) << packed.path;
    EXPECT_EQ(slurp(packed.path / "dataset.json"), packed.manifest.dump());
    std::int64_t start = 0;
    for (const auto& shard : packed.manifest.shards) {
      const auto bytes = slurp(packed.path / shard.file);
      EXPECT_TRUE(bytes == gpt2_shard(slice(tokens, start, shard.tokens))) << shard.file;
      EXPECT_EQ(shard.hash, hash_hex(bytes));
      std::string ends;
      for (auto end = start + 1; end <= start + shard.tokens; ++end)
        if (end == std::ssize(tokens) || tokens[static_cast<std::size_t>(end)] == 256)
          append(ends, static_cast<std::uint64_t>(end - start), 8);
      EXPECT_EQ(slurp(packed.path / ends_name(shard.file)), ends);
      EXPECT_EQ(shard.ends_hash, hash_hex(ends));
      EXPECT_EQ(shard.documents, static_cast<std::int64_t>(ends.size() / 8));
      start += shard.tokens;
    }
    EXPECT_EQ(start, std::ssize(tokens));
  }
  // Of a packing with a validation share.
  static void expect_split(const PackOptions& o, const Texts& documents) {
    std::array<Texts, 2> expected;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const bool held_out = is_validation(static_cast<std::int64_t>(i), o.validation_share);
      expected[held_out ? 1 : 0].push_back(documents[i]);
    }
    const auto packed = pack(o);
    ASSERT_EQ(packed.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string name = i == 0 ? "train" : "validation";
      EXPECT_EQ(packed[i].path, o.out / name);
      EXPECT_EQ(packed[i].manifest.shards.at(1).file, name + "_000001.bin");
      expect_consistent(packed[i], tokens_of(expected[i]));
    }
  }

  template <class E = DataError>
  static void expect_refused(const std::string& name, const PackOptions& o, Pins pins) {
    expect_refusal<E>("data/pack", name, pins, [&] { pack(o); });
  }
  // What packing logs; "": nothing.
  static void expect_logged(const std::string& name, const PackOptions& o, Pins pins) {
    const auto log = logged([&] { pack(o); });
    for (const auto& pin : pins)
      expect_contains(log, pin);
    expect_wording("data/pack", name, log);
  }
  // How much was done by then differs from run to run.
  static void expect_goes_on(const std::string& name, const std::string& log) {
    static const std::regex count("[0-9]+ documents");
    expect_wording("data/pack", name, std::regex_replace(log, count, "N documents"));
  }
  // What stands beside the input.
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      if (entry.path().filename() != "in") names.push_back(entry.path().filename());
    return names;
  }

  int outputs_ = 0;
};

TEST_F(PackTest, every_byte_is_kept_in_the_order_of_the_files) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += static_cast<char>(byte);
  const std::string invalid = "\xff broken \x80 UTF-8 \xc3";
  const auto b = input("b.txt", invalid), a = input("a.txt", all), empty = input("c.txt", "");
  expect_packed(options({b, a, empty}), {invalid, all});
  expect_packed(options({directory_ / "in"}), {all, invalid});
}

TEST_F(PackTest, separators_end_documents_at_any_read_or_block_boundary) {
  for (const std::string separator : {"\n", "aab", "aaaa", "<|end|>"}) {
    // Few letters, so that halves of separators are common; sizes around those of a read
    // (2^17) and of a batch (2^19).
    for (const std::size_t size :
         {0u, 1u, 1000u, (1u << 17) - 1, 1u << 17, (1u << 19) - 1, 1u << 19, (1u << 19) + 1}) {
      SCOPED_TRACE(separator + str(" ", size));
      const auto text = str(random_text(size, size + 1, "ab\n"), separator, "x",
                            random_text(1 + size % 7, size, "ab\n"), separator, separator);
      expect_packed(options({input("text", text)}, separator), split(text, separator));
    }
  }
}

TEST_F(PackTest, a_separator_across_two_reads_is_found) {
  for (const std::size_t border : {1u << 17, (1u << 19) - (1u << 17), 1u << 19})
    for (auto before = border - 8; before <= border + 1; ++before) {
      const std::string first(before, 'x');
      expect_packed(options({input("text", first + "<|end|>y")}, "<|end|>"), {first, "y"});
    }
}

TEST_F(PackTest, the_end_of_a_file_ends_a_document) {
  expect_packed(options({input("1", "one\n"), input("2", "\ntwo\n\nthree")}, "\n\n"),
                {"one\n", "\ntwo", "three"});
}

TEST_F(PackTest, shards_of_any_size_have_the_right_content) {
  const auto text = random_text(3'000, 5, "abcdefg\n");
  for (const std::int64_t shard_tokens : {1, 2, 7, 1'000, 2'999, 3'000, 5'000}) {
    const auto packed = shard_tokens <= 7 ? text.substr(0, 20) : text;
    expect_packed(options({input("text", packed)}, "\n", shard_tokens), split(packed, "\n"));
  }
  // Documents that end with their block (2^19 tokens), their shard, or both, or a token before.
  constexpr std::int64_t kBlock = std::int64_t{1} << 19;
  for (const auto length : {kBlock - 2, kBlock - 1, kBlock}) {
    const std::string x(static_cast<std::size_t>(length), 'x'), y(x.size(), 'y');
    const auto file = input("text", str(x, "\n", y, "\nz"));
    for (const auto shard_tokens : {kBlock - 1, kBlock, kBlock + 1, 2 * kBlock})
      expect_packed(options({file}, "\n", shard_tokens), {x, y, "z"});
  }
}

// Documents of one split that are written together are few bytes, or many.
TEST_F(PackTest, a_validation_share_keeps_all_documents_and_their_order) {
  Texts small, large;
  for (std::size_t i = 0; i < 1'000; ++i)
    small.push_back(str("document ", i, " ", std::string(i % 50, 'x')));
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    constexpr std::size_t kSizes[] = {10, 3'000, 70'000, 100'000};
    large.push_back(random_text(kSizes[random() % 4], random(), "abc"));
  }
  for (const auto& [documents, share, shard_tokens] :
       {std::tuple{small, 0.05, 700}, std::tuple{large, 0.4, 1'500'000}}) {
    std::string text;
    for (const auto& document : documents)
      text += document + "\n";
    auto o = options({input("text", text)}, "\n", shard_tokens);
    o.validation_share = share;
    expect_split(o, documents);
  }
}

TEST(Validation, every_prefix_has_its_share_within_two_documents) {
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
TEST(Validation, held_out_documents_have_no_period) {
  std::array<int, 20> at_place{};
  for (std::int64_t i = 0; i < 20'000; ++i)
    at_place[static_cast<std::size_t>(i % 20)] += is_validation(i, 0.05);
  for (const int n : at_place)
    EXPECT_NEAR(n, 50, 35);  // 5 standard deviations
}

// Of the long text some was saved by then.
TEST_F(PackTest, one_document_cannot_be_split) {
  auto o = options({input("book", "one\n\ntwo\n\nthree\n\nfour")});
  auto long_one = options({input("book2", std::string(300'000, 'x'))}, "", 50'000);
  o.validation_share = long_one.validation_share = 0.5;
  for (int i = 0; i < 20; ++i) {
    expect_refused("one document for two splits", i == 0 ? o : long_one, {"--document-separator"});
    EXPECT_TRUE(outputs().empty());
  }
  o.document_separator = "\n\n";
  EXPECT_EQ(pack(o).size(), 2u);
}

TEST_F(PackTest, without_threads_the_error_has_advice) {
  const auto o = options({input("text", "text")});
  {
    const NoThreads none;
    expect_refused<TransientError>("without threads", o, {});
  }
  EXPECT_TRUE(outputs().empty());
  EXPECT_EQ(pack(o).size(), 1u);
}

TEST_F(PackTest, invalid_input_is_an_error_and_leaves_no_files) {
  const auto text = input("text", "text");
  expect_refused("no such input", options({directory_ / "none"}), {at("none")});
  expect_refused("empty input", options({input("empty", "")}), {});
  auto o = options({directory_ / "in"});
  o.out = directory_ / "in/deep/out";
  expect_refused<UsageError>("output inside the input", o, {o.out.string(), at("in")});
  {
    const WorkingDirectory inside(directory_ / "in");
    o.inputs = {"."};
    for (const char* name : {"out", "./deep/../out", "../in/out"}) {
      o.out = name;
      expect_refused<UsageError>(str("output inside the input: ", name), o, {"out"});
    }
  }
  o.inputs = {text};
  for (const char* name : {".", "..", "/", "x/..", ""}) {
    o.out = name;
    expect_refused<UsageError>(str("output without a name: \"", name, '"'), o, {name});
  }
  o.out = directory_ / "taken";
  write("taken/x", "x");
  expect_refused<UsageError>("output exists", o, {at("taken")});
  fs::remove_all(o.out);
  EXPECT_TRUE(outputs().empty());
  fs::create_directories(o.out);
  EXPECT_EQ(pack(o).size(), 1u) << "an empty directory may be used";
}

TEST_F(PackTest, a_foreign_work_directory_is_not_touched) {
  const auto text = input("text", "text");
  const auto corpus = directory_ / "corpus.tmp";
  auto o = options({corpus});
  o.out = directory_ / "corpus";
  const auto expect_kept = [&](const std::string& name, const std::string& file) {
    write("corpus.tmp/" + file, "precious");
    expect_refused<UsageError>(name, o, {corpus.string()});
    EXPECT_EQ(slurp(corpus / file), "precious");
    EXPECT_FALSE(fs::exists(o.out));
  };
  expect_kept("input in the directory it works in", "x/text");
  fs::create_symlink(corpus / "x", directory_ / "in/link");
  o.inputs = {text, directory_ / "in/link/text"};
  expect_kept("input in the directory it works in, by a link", "x/text");
  o.inputs = {text};
  expect_kept("taken by x", "x/text");
  for (const std::string file : {"dataset/x", "command.json", "progress.json"}) {
    fs::remove_all(corpus);
    expect_kept("taken by " + file, file);
  }
  fs::remove(corpus / "progress.json");
  spit(corpus / "lock", "");
  expect_kept("taken by a lock and dataset/x", "dataset/x");
  fs::remove_all(corpus);
  fs::create_directories(corpus);
  EXPECT_EQ(pack(o).size(), 1u) << "an empty directory may be used";
  EXPECT_FALSE(fs::exists(corpus));
}

TEST_F(PackTest, a_directory_of_another_packing_process_is_not_touched) {
  const auto out = directory_ / "out", work = directory_ / "out.tmp";
  std::optional<PackDirectory> directory(std::in_place, out, Json(Json::Object{}),
                                         /*resumable=*/true);
  fs::rename(work, directory_ / "moved");
  const PackDirectory other(out, Json(Json::Object{}), /*resumable=*/true);
  spit(other.dataset() / "shard", "the other's");
  for (const bool save : {true, false})
    expect_refusal<DataError>("data/pack", "its directory was moved", {work.string()},
                              [&] { save ? directory->save({}, "") : directory->commit(); });
  directory.reset();
  EXPECT_EQ(slurp(work / "dataset/shard"), "the other's");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(PackTest, foreign_files_in_the_work_directory_stay) {
  const auto log = logged([&] {
    const PackDirectory directory(directory_ / "out", Json(Json::Object{}), /*resumable=*/true);
    spit(directory.dataset() / "shard", "x");
    write("out.tmp/notes", "precious");
  });
  EXPECT_EQ(slurp(directory_ / "out.tmp/notes"), "precious");
  EXPECT_FALSE(fs::exists(directory_ / "out.tmp/dataset"));
  expect_wording("data/pack", "somebody's file beside its own", log);
}

TEST_F(PackTest, a_record_that_does_not_match_is_an_error) {
  const auto file = input("1.txt", random_text(3 << 18, 7, "ab\n"));
  const auto o = options({file, input("2.jsonl", "not JSON")}, "\n", 100'000);
  EXPECT_THROW(pack(o), DataError);
  const auto progress = work_of(o) / "progress.json", list = work_of(o) / "shards.jsonl";
  const auto right = Json::parse(slurp(progress), "progress");
  const auto right_list = slurp(list);
  const auto split = right.at("splits").as_array()[0], read = right.at("read").as_array()[0];
  const auto rest = (1 << 20) - read.at("bytes").as_integer();
  // How much was done by then differs from run to run.
  const auto refused = [&](const std::string& name, const Json& record, const std::string& pin) {
    spit(progress, record.dump());
    auto text = message_of<DataError>([&] { pack(o); });
    expect_contains(text, pin);
    text = replaced(text, str(rest, " of "), "N of ");
    text = replaced(text, str("list ", split.at("shards").as_integer()), "list N");
    text = replaced(text, str(right_list.size(), " bytes"), "N bytes");
    text = replaced(text, str("has ", right_list.size() - 1, ";"), "has N - 1;");
    expect_wording("data/pack_record", name, text);
  };
  const auto with = [](Json json, const char* name, Json value) {
    json.set(name, std::move(value));
    return json;
  };
  const auto with_split = [&](const char* name, Json value) {
    return with(right, "splits", Json::Array{with(split, name, std::move(value))});
  };
  const struct {
    const char* name;
    Json record;
    std::string pin;
  } records[] = {
      {"file of no input", with(right, "file", 3), "file is 3"},
      {"within a file behind the last", with(right, "file", 2), ""},
      {"two splits", with(right, "splits", Json::Array(2, split)), "2 datasets"},
      {"a full shard that is open", with_split("tokens", 100'000), "100000 tokens"},
      {"a mask of no bits", with_split("mask_byte", 1), "mask_byte"},
      {"a mask of other bits", with_split("mask_byte", 128), "mask_byte"},
      {"fewer shards than listed", with_split("shards", 1), "1 shards"},
      {"another version", with(right, "lockstep_pack", 1), "version 1"},
      {"stretches end elsewhere", with(right, "byte", 1 << 20), "\"read\""},
  };
  for (const auto& [name, record, pin] : records)
    refused(name, record, pin);

  const struct {
    const char *name, *key;
    Json value;
    std::string pin;
  } shards[] = {
      {"a shard that is not full", "tokens", 99'999, "99999 tokens"},
      {"a shard of too many tokens", "tokens", std::int64_t{1} << 62, "shards.jsonl: line 1"},
      {"more documents than tokens", "documents", 100'001, "documents"},
      {"a shard elsewhere", "file", "../1.bin", "../1.bin"},
      {"a mask where others have none", "mask_xxh3_128", std::string(32, '0'), "train_000000.bin"},
      {"a shard of another split", "split", 1, "line 1: split is 1"},
  };
  const auto end = right_list.find('\n');
  for (const auto& [name, key, value, pin] : shards) {
    const auto line = with(Json::parse(right_list.substr(0, end), "line"), key, value);
    const auto changed = str(line.dump(), right_list.substr(end));
    spit(list, changed);
    refused(
        name,
        with(with(right, "list_bytes", std::ssize(changed)), "list_xxh3_128", hash_hex(changed)),
        pin);
  }
  auto another_hash = right_list;
  auto& digit = another_hash[another_hash.find("\"xxh3_128\":\"") + 12];
  digit = digit == '0' ? '1' : '0';
  for (const auto& [name, damaged] :
       {std::pair{"a list that is cut", right_list.substr(0, right_list.size() - 1)},
        std::pair{"a hash of the list that is another", another_hash},
        std::pair{"a list of something else", str("x", right_list.substr(1))},
        std::pair{"an empty list", std::string()}}) {
    spit(list, damaged);
    refused(name, right, str(list.string(), ": "));
  }
  spit(list, str(right_list, "{\"half a li"));  // as a kill leaves it
  refused("behind the end of the file",
          with(with(right, "byte", 1 << 20), "read", Json::Array{read, with(read, "bytes", rest)}),
          file.string() + ": ends at byte 786432, expected 1048576");
  refused("the right record", right, "2.jsonl: line 1");
}

TEST_F(PackTest, input_after_the_finished_part_may_be_corrected) {
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
  auto o = options({directory_ / "in"}, "", 300'000);
  const auto log = logged([&] { expect_refused("no JSON", o, {"2.jsonl: line 41"}); });
  const auto before = slurp(work_of(o) / "progress.json");
  const auto position = Json::parse(before, "record").at("byte").as_integer();
  ASSERT_GT(position, 0);
  // How far it was written by then differs from run to run.
  const auto wording = [&](const std::string& name, const std::string& text, Pins pins) {
    for (const auto& pin : pins)
      expect_contains(text, pin);
    expect_wording("data/pack", name, replaced(text, str("byte ", position), "byte N"));
  };
  const auto place = str("byte ", position);
  wording("what is done is kept", log, {place, second.string()});
  // What was read is another: nothing is taken away.
  const auto refusal = [&] { return message_of<UsageError>([&] { pack(o); }); };
  auto other = begin;
  other[static_cast<std::size_t>(position) / 2] ^= 1;
  spit(second, other);
  wording("what was read of a file is another", refusal(), {place, second.string()});
  spit(second, begin.substr(0, static_cast<std::size_t>(position) - 1));
  wording("what was read of a file is cut", refusal(), {place, second.string()});
  spit(second, str(begin, "still no JSON\n"));
  spit(first, lines(20, 9));
  wording("a file that was read is another", refusal(), {first.string()});
  EXPECT_EQ(slurp(work_of(o) / "progress.json"), before);
  EXPECT_TRUE(fs::exists(work_of(o) / "dataset/train_000003.bin"));
  spit(first, lines(20, 1));
  wording("a file that was read was written again", refusal(), {first.string()});
  // What else the command was is said in words, not as JSON.
  o.tokenizer = kTokenizers + "/gpt2";
  const auto text = refusal();
  wording("another tokenizer", text, {" bytes ", " gpt2 "});
  EXPECT_EQ(text.find('{'), std::string::npos) << text;
}

TEST_F(PackTest, a_locked_directory_is_free_later) {
  const auto o = options({input("text", "text")});
  fs::create_directories(work_of(o));
  const int lock = open((work_of(o) / "lock").c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  expect_refused<TransientError>("another process packs into it", o, {work_of(o).string()});
  close(lock);
  expect_packed(o, {"text"});
}

TEST_F(PackTest, with_corrected_input_the_dataset_is_as_if_packed_from_the_start) {
  const auto text = random_text(4'000'000, 5, "abc \n");
  const auto first = input("1.txt", random_text(700'000, 4, "abc \n"));
  const auto second = directory_ / "in/2.txt";
  auto o =
      options({first, second, input("3.txt", "x"), input("4.jsonl", "no JSON")}, "\n", 200'000);
  // Stopped twice, so that there are two stretches of the second file; each time it gets longer.
  // What follows then is less than what was begun behind the record.
  for (const std::size_t size : {2'000'000u, 3'000'000u}) {
    spit(second, text.substr(0, size));
    EXPECT_THROW(pack(o), DataError);
  }
  const auto record = Json::parse(slurp(work_of(o) / "progress.json"), "record");
  EXPECT_EQ(record.at("file").as_integer(), 1);
  EXPECT_EQ(record.at("read").as_array().size(), 2u);
  spit(work_of(o) / "dataset/train_000099.bin", "begun behind the record");
  spit(second,
       str(text.substr(0, static_cast<std::size_t>(record.at("byte").as_integer())), "d\ne"));
  o.inputs = {first, second, input("5.txt", "another\n")};
  expect_goes_on("goes on", logged([&] { pack(o); }));
  const auto anew = options(o.inputs, "\n", 200'000);
  pack(anew);
  EXPECT_EQ(slurp(o.out / "dataset.json"), slurp(anew.out / "dataset.json"));
  EXPECT_TRUE(verify(o.out).damages.empty());
  EXPECT_FALSE(fs::exists(o.out / "train_000099.bin"));
}

TEST_F(PackTest, a_pattern_ignores_the_work_directory_when_resuming) {
  const auto first = input("1.txt", random_text(700'000, 4, "abc \n"));
  const auto bad = input("2.jsonl", "no JSON");
  auto o = options({directory_ / "in/*"}, "", 200'000);
  o.out = directory_ / "in/packed";
  EXPECT_THROW(pack(o), DataError);
  EXPECT_TRUE(fs::exists(work_of(o) / "dataset/train_000000.bin"));
  spit(bad, R"({"text": "mended"})");
  EXPECT_EQ(pack(o)[0].manifest.dump(),
            pack(options({first, bad}, "", 200'000))[0].manifest.dump());
}

TEST_F(PackTest, another_command_is_an_error_before_the_first_full_shard) {
  const auto o = options({input("text", "text")});
  const auto work = work_of(o);  // as a kill leaves it
  pack(o);
  fs::create_directories(work);
  fs::rename(o.out, work / "dataset");
  spit(work / "lock", "");
  spit(work / "command.json", R"({"validation": 0.25, "inputs": []})");
  expect_refused<UsageError>("another command", o, {work.string(), "document_separator"});
  EXPECT_TRUE(fs::exists(work / "dataset/train_000000.bin"));
  fs::remove_all(work);
  EXPECT_EQ(pack(o).size(), 1u);
}

// Files that are refused in the same words whatever they are called.
class PackRefusals : public PackTest {
 protected:
  void expect_refused_file(const std::string& name, const std::string& file,
                           const std::string& bytes, const std::string& tokenizer = "bytes") {
    SCOPED_TRACE(file);
    auto o = options({input(file, bytes)});
    o.tokenizer = tokenizer;
    const auto text = message_of<DataError>([&] { pack(o); });
    const auto path = at("in/" + file);
    expect_contains(text, path);
    expect_wording("data/input_defects", name, replaced(text, path, "in/FILE"));
  }
};

TEST_F(PackRefusals, files_that_are_not_text_are_an_error_with_their_format) {
  const std::string rest(3'000, 'r');
  const std::pair<std::string, std::string> files[] = {
      {"Parquet", str("PAR1\x15", rest)},
      {"zip", str("PK\3\4", rest)},
      {"xz", str(std::string("\xfd\x37zXZ\0", 6), rest)},
      {"bzip2", str("BZh91AY&SY", rest)},
      {"7z", str("7z\xbc\xaf\x27\x1c", rest)},
      {"Arrow", str(std::string("ARROW1\0\0", 8), rest)},
      {"NumPy", str("\x93NUMPY", rest)},
      {"PDF", str("%PDF-1.4\n", rest)},
      {"UTF-16, little end first", "\xff\xfet\0"},
      {"UTF-16, big end first", str("\xfe\xff", rest)},
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
      {"PNG", str("\x89PNG\r\n\x1a\n", rest)},
      {"JPEG", str("\xff\xd8\xff\xe0", rest)},
      {"film", str(std::string("\0\0\0\x20", 4), "ftypisom", rest)},
      {"ELF", str("\x7f", "ELF\2", rest)},
      {"safetensors", str(std::string("\x40\0\0\0\0\0\0\0", 8), "{\"a\"", rest)},
      {"shard of GPT-2", gpt2_shard({50256, 1, 2})},
      {"shard of Llama 3", str(header(20240801, 7, 1), "abcd")},
      {"shard of LLMQ", str("BIN.TOK\n", rest)},
      {"Megatron index", str("MMIDIDX", rest)},
      {"tar", str("name", std::string(253, '\0'), "ustar", '\0', "00", rest)},
  };
  for (const auto& [name, bytes] : files) {
    expect_refused_file(name, "x", bytes);
    expect_refused_file(name, "x.jsonl", gzip_member(bytes));
    expect_refused_file(name, "x", zstd_frame(bytes));
  }
  expect_refused_file("compressed twice", "x.tar.gz", gzip_member(gzip_member("x")));
  // Words that a text may begin with.
  for (const std::string text : {"PAR1 is a receptor", "GGUF is a format", "ARROW1", "BZh", "Obj"})
    expect_packed(options({input("x", text)}), {text});
}

// JSON that would be learnt with its keys, wherever it is cut off; but not what is plain text.
TEST_F(PackRefusals, json_without_a_lines_name_and_tables_are_an_error) {
  const std::string line = "{\"text\": \"a\", \"id\": true}\r\n";
  for (const std::string text : {"{\"text\": \"a\"}\n", " \n[{", "\xef\xbb\xbf{}"})
    expect_refused_file("JSON", "x.json", text);
  for (const std::string name : {"x", "x.txt", "x.json.gzip", "x.jsons"})
    for (const auto& bytes : {line + line, "\n " + line, line.substr(0, line.size() - 2),
                              "{\"text\": \"" + std::string(200'000, 'a') + "\"}\n"})
      expect_refused_file("JSON", name, bytes);
  expect_refused_file("table of commas", "x.csv", "a,b\n");
  expect_refused_file("table of tabs", "x.TSV.gz", gzip_member("a\tb\n"));
  expect_packed(options({input("plain.json", "a {")}), {"a {"});
  for (const std::string text :
       {"{}", "{\"a\" is a set}\n{}", "{\n \"a\": 1}", "x\n{\"text\": \"a\"}"})
    expect_packed(options({input("x.txt", text)}), {text});
  for (const std::string name : {"x.JSONL", "x.jl", "x.NDJSON", "x.Jl.GZ", "x.JSON.gz"})
    expect_packed(options({input(name, line)}), {"a"});
  auto field = options({input("y.json", line)});
  field.field = "text";
  expect_packed(field, {"a"});
  for (const auto& [name, text] : {std::pair{"x", line}, std::pair{"x.json", std::string("{}")},
                                   std::pair{"x.csv", std::string("a,b\n")}}) {
    auto plain = options({input(name, text)});
    plain.plain_text = true;
    expect_packed(plain, {text});
  }
}

// But lines of JSON that were decompressed on their way are fine.
TEST_F(PackRefusals, uncompressed_files_with_a_compressed_name_are_an_error) {
  const std::string zeros("\0\0\0", 3), rest(3'000, 'r');
  for (const std::string end : {".gz", ".GZ", ".zst", ".zstd"})
    for (const std::string name : {"x.txt", "x.jsonl"}) {
      for (const auto& text : {"<html>not found</html>" + rest, zeros + rest, "\x1e\x8b" + rest})
        expect_refused_file("called *" + end, name + end, text);
      expect_refused_file("empty and called *" + end, name + end, "");
    }
  auto as_it_stands = options({input("x.txt.gz", "a text")});
  as_it_stands.plain_text = true;
  expect_packed(as_it_stands, {"a text"});
  expect_packed(options({input("x.txt.gz", zstd_frame("a text"))}), {"a text"});
}

// Zeros are bytes like any other, of bytes, and where one of them separates documents.
TEST_F(PackRefusals, zeros_in_a_text_are_an_error_for_a_word_tokenizer) {
  const auto gpt2 = kTokenizers + "/gpt2";
  const std::string zero("a\0b", 3);
  expect_refused_file("byte 1 is zero", "zero", zero, gpt2);
  expect_packed(options({input("zero", zero)}), {zero});
  auto separated = options({input("zero", zero)}, std::string(1, '\0'));
  separated.tokenizer = gpt2;
  EXPECT_EQ(pack(separated)[0].manifest.documents(), 2);
}

// As a file system leaves them where a machine stopped while a file was written.
TEST_F(PackRefusals, zero_bytes_at_the_end_are_reported) {
  const auto gpt2 = kTokenizers + "/gpt2";
  const std::string line = "{\"text\": \"a\"}\n", zeros(300'000, '\0');
  for (const auto& [file, text, count] :
       {std::tuple{"a.txt", std::string("one"), 1u}, std::tuple{"b.txt", std::string("one"), 200u},
        std::tuple{"c.txt", random_text(200'000, 1, "ab \n"), 300'000u},
        std::tuple{"a.jsonl", line, 4u}, std::tuple{"b.jsonl", line, 300'000u}})
    expect_refused_file(str(count, " zeros behind ", text.size(), " bytes"), file,
                        text + zeros.substr(0, count), gpt2);
  expect_refused_file("zeros within a text", "d.txt", "one" + zeros + "two", gpt2);
  // To bytes they are tokens, and counted.
  const std::string kept("one\0\0", 5), inside("a\0b", 3);
  const auto d = input("d.txt", inside), e = input("e.txt", kept), f = input("f.txt", zeros);
  expect_packed(options({d, f, e}), {inside, zeros, kept});
  expect_logged("a file ends with zeros", options({e}), {"e.txt: 2 ", "byte 3 "});
  expect_logged("two files end with zeros", options({d, f, e}),
                {"2 files ", "f.txt: 300000 ", "byte 0 "});
  EXPECT_EQ(logged([&] { pack(options({d})); }), "");
}

TEST_F(PackTest, text_files_beside_json_lines_can_be_left_out) {
  input("hub/README.md", "# Title\n");
  input("hub/a.jsonl.gz", gzip_member("{\"text\": \"a\"}\n"));
  auto o = options({directory_ / "in/hub"});
  o.field = "text";
  expect_refused("text beside lines of JSON", o,
                 {"README.md: line 1, byte 0: ", str("'", at("in/hub/*.jsonl.gz"), "'")});
  expect_packed(options({directory_ / "in/hub/*.jsonl.gz"}), {"a"});
}

TEST_F(PackTest, a_missing_member_is_reported_with_the_existing_ones) {
  expect_refused("no such member", options({input("x.jsonl", R"({"title": "a", "body": "b"})")}),
                 {R"("text")", R"("title", "body")"});
  expect_refused("no role", chat(R"({"m": [{"from": "human", "value": "a"}]})"),
                 {R"("role")", R"("from", "value")"});
}

TEST_F(PackTest, probable_mistakes_are_reported_at_the_end) {
  const auto unix_lines = input("unix", "a\nb\n"), windows = input("windows", "a\r\n\r\nb\r\n");
  expect_logged("no separator", options({unix_lines}, "\n\n"), {"--document-separator"});
  expect_logged("no separator, lines of windows", options({unix_lines, windows}, "\n\n"),
                {"\\r\\n"});
  EXPECT_EQ(logged([&] { pack(options({input("unix2", "a\n\nb\n"), windows}, "\n\n")); }), "");
  // Of a conversation without an answer nothing is learnt.
  const std::string asked = R"({"m": [{"role": "user", "content": "a"}]})";
  expect_logged("conversations without an answer",
                chat(str(asked, "\n", asked, "\n", R"({"m": []})", "\n",
                         R"({"m": [{"role": "assistant", "content": ""}]})")),
                {"2 conversations"});
}

// Meta's own template has `message['content'] | trim`.
TEST_F(PackTest, llama3_trims_messages_and_chatml_does_not) {
  const std::string space = "\t \u00a0\u3000\u0085\x1f";
  const auto text_of = [&](const char* name) {
    ChatTemplate made = chat_template(name);
    return std::string(content_of(made, space + "a \u200b" + space));
  };
  EXPECT_EQ(text_of("llama3"), "a \u200b") << "a space of no width is none";
  EXPECT_EQ(text_of("chatml"), space + "a \u200b" + space);
  EXPECT_EQ(content_of(chat_template("llama3"), space), "");
}

TEST_F(PackTest, names_of_special_tokens_are_text_in_plain_text) {
  const auto tokenizer = open_tokenizer(kTokenizers + "/gpt2");
  const auto special = tokenizer->about().document_token;
  for (const auto& file :
       {input("a.txt", "a<|endoftext|>b"), input("a.jsonl", "{\"text\": \"a<|endoftext|>b\"}")})
    for (const bool plain : {false, true}) {
      auto o = options({file});
      o.tokenizer = kTokenizers + "/gpt2";
      o.plain_text = plain;
      pack(o);
      const auto tokens = all_tokens(Dataset({o.out.string()}));
      EXPECT_EQ(tokenizer->decode(std::span(tokens).subspan(1), Tokenizer::Specials::named),
                "a<|endoftext|>b");
      EXPECT_EQ(std::ranges::count(tokens, special), plain ? 1 : 2);
    }
}

// A batch of nothing but separators ends where its file does.
TEST_F(PackTest, nothing_is_lost_after_a_file_of_separators) {
  const auto second = input("2", "two\nthree");
  for (const std::size_t lines : {(3u << 17) + 1, 7u << 16, (1u << 19) - 1, 1u << 19}) {
    SCOPED_TRACE(lines);
    expect_packed(options({input("1", std::string(lines, '\n')), second}, "\n"), {"two", "three"});
  }
}

TEST_F(PackTest, a_separator_that_is_too_long_is_an_error) {
  auto o =
      options({input("text", std::string(1u << 17, 'x') + "y")}, std::string((1u << 16) + 1, 'x'));
  expect_refused<UsageError>("long separator", o, {"--document-separator", "65537"});
  o.document_separator.pop_back();
  expect_packed(o, {"y"});
}

TEST_F(PackTest, the_output_may_be_relative_or_end_with_a_slash) {
  auto o = options({input("text", "text")});
  const WorkingDirectory here(directory_.path());
  for (const char* name : {"a/", "./b", "c/./d//", "x/../e"}) {
    o.out = name;
    const auto packed = pack(o)[0];
    expect_consistent(packed, tokens_of({"text"}));
    EXPECT_EQ(packed.path.filename().string().size(), 1u) << packed.path;
    fs::remove_all(packed.path);
  }
}

TEST_F(PackTest, an_unreadable_input_is_reported) {
  const auto locked = input("locked", "text");
  chmod(locked.c_str(), 0);
  chmod(directory_.path().c_str(), 0777);
  const auto o = options({locked});
  const auto message = [&] {
    const AsNobody nobody;
    return message_of<DataError>([&] { pack(o); });
  }();
  expect_contains(message, locked.string());
  expect_wording("data/pack", "an input without permission", message);
  EXPECT_TRUE(outputs().empty());
}

// A vocabulary without the bytes of c and x; with or without those of U+FFFD. In this directory.
std::string tokenizer_with_gaps(const fs::path& directory, bool has_replacement = true) {
  fs::create_directories(directory);
  const std::string more =
      has_replacement ? R"(, "ab": 2, "\u00ef": 3, "\u00bf": 4, "\u00bd": 5, "\u010a": 6)" : "";
  spit(directory / "tokenizer.json",
       str(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
               "added_tokens": [{"id": 9, "content": "<|endoftext|>", "special": true}],
               "model": {"vocab": {"a": 0, "b": 1)",
           more, R"(}, "merges": [)", has_replacement ? R"("a b")" : "", "]}}"));
  return directory.string();
}

TEST_F(PackTest, a_byte_without_a_token_is_an_error_with_its_document) {
  auto o = options({input("a.txt", "ab\nba\nabc")}, "\n");
  o.tokenizer = tokenizer_with_gaps(directory_ / "tokenizer");
  o.document_separator = "\n";
  expect_refused("no token for a byte", o, {"a.txt: byte 6: ", "99 (0x63)"});
  o.document_separator.clear();
  o.inputs = {input("b.jsonl", "{\"p\": \"a\", \"r\": \"ab\"}\n{\"p\": \"a\", \"r\": \"x\"}")};
  o.prompt_field = "p";
  o.response_field = "r";
  expect_refused("no token for a byte of JSON", o, {"b.jsonl: line 2, byte 22: ", "120 (0x78)"});
}

// Ids as the package `tokenizers` has them where it drops (tests/data/tokenizer/bpe_test.cpp).
TEST_F(PackTest, bytes_without_a_token_are_dropped_or_replaced_and_counted) {
  const auto lines = input("b.jsonl", R"({"text": "ab"}
{"text": "acbx"}
{"text": "c\n\ud800c"})");
  auto o = options({lines});
  o.tokenizer = tokenizer_with_gaps(directory_ / "tokenizer");
  const struct {
    MissingBytes missing;
    std::string name;
    Tokens tokens;
    std::string count;
  } cases[] = {
      {MissingBytes::drop, "drop", {9, 2, 9, 2, 9, 6, 3, 4, 5}, "4 bytes "},
      {MissingBytes::replace,
       "replace",
       {9, 2, 9, 0, 3, 4, 5, 1, 3, 4, 5, 9, 3, 4, 5, 6, 3, 4, 5, 3, 4, 5},
       "4 characters "},
  };
  for (const auto& [missing, name, tokens, count] : cases) {
    o.out = directory_ / name;
    o.missing_bytes = missing;
    expect_logged(name + " bytes", o, {count, lines.string() + ": line 2, byte 15", "1 place"});
    EXPECT_EQ(all_tokens(Dataset({o.out.string()})), tokens);
    EXPECT_EQ(Json::parse(slurp(o.out / "dataset.json"), "x").at("missing_bytes").as_string(),
              name);
  }
  o.out = directory_ / "refuse";
  o.missing_bytes = MissingBytes::refuse;
  const auto log = logged([&] {
    expect_refused("refuse bytes", o, {"b.jsonl: line 2, byte 15: ", "--missing-bytes drop"});
  });
  expect_contains(log, "250 bytes");
  expect_wording("data/pack", "a tokenizer that lacks bytes", log);
  // U+FFFD needs tokens itself; what is written in a template is not odd text.
  tokenizer_with_gaps(o.tokenizer, false);
  o.missing_bytes = MissingBytes::replace;
  expect_refused<UsageError>("no token for what replaces", o, {"--missing-bytes drop"});
  write("roles.json", R"({"roles": {"assistant": {"prefix": "cb", "suffix": "a"}}})");
  o.missing_bytes = MissingBytes::drop;
  o.messages_field = "m";
  o.chat_template = at("roles.json");
  expect_refused("no token for a byte of a template", o,
                 {"roles.json: \"assistant\": ", "99 (0x63)"});
}

// What was read under `refuse` has no such byte, so any setting has the same tokens up to there.
TEST_F(PackTest, another_missing_bytes_setting_resumes_only_from_refuse) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += str(R"({"text": ")", random_text(50'000, static_cast<unsigned>(i), "ab"), "\"}\n");
  const auto file = input("a.jsonl", lines + "{\"text\": \"abc\"}\n");
  auto o = options({file}, "", 100'000);
  o.tokenizer = tokenizer_with_gaps(directory_ / "tokenizer");
  EXPECT_THROW(pack(o), DataError);
  spit(file, lines + "{\"text\": \"abc\"}\nno JSON\n");
  o.missing_bytes = MissingBytes::drop;
  expect_refused("no JSON behind", o, {"line 22"});
  for (const auto other : {MissingBytes::replace, MissingBytes::refuse}) {
    o.missing_bytes = other;
    expect_refused<UsageError>(str("was drop, now ", name(other)), o,
                               {"missing_bytes", "\"drop\"", str('"', name(other), '"')});
  }
  spit(file, lines + "{\"text\": \"abc\"}\n");
  o.missing_bytes = MissingBytes::drop;
  const auto packed = pack(o);
  o.out = directory_ / "anew";
  EXPECT_EQ(packed[0].manifest.dump(), pack(o)[0].manifest.dump());
}

TEST_F(PackTest, numbers_that_are_not_json_are_counted_and_packing_continues) {
  const auto o = options({input("a.jsonl",
                                "{\"text\": \"a\"}\n{\"score\": NaN, \"text\": \"b\", "
                                "\"x\": [-Infinity]}\n")});
  expect_logged("NaN and Infinity", o, {"2 unused values", "a.jsonl: line 2, byte 14"});
  EXPECT_EQ(all_tokens(Dataset({o.out.string()})), tokens_of({"a", "b"}));
}

TEST_F(PackTest, lines_that_end_with_a_carriage_return_alone_are_reported) {
  const auto lines = input("a.jsonl", "{\"text\": \"a\"}\r{\"text\": \"b\"}\r");
  expect_refused("lines of JSON that end with \\r", options({lines}),
                 {lines.string() + ": line 1, byte 14: "});
  const auto a = input("a.txt", "one\rtwo\r");
  const auto o = options({a, input("b.txt", "three\r\nfour\r"), input("c.txt", "five\rsix")});
  expect_logged("lines of text that end with \\r", o, {"2 text files", a.string()});
  expect_packed(options(o.inputs), {"one\rtwo\r", "three\r\nfour\r", "five\rsix"});
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
  expect_packed(options({pipe}, "\n\n"), split(text, "\n\n"));
  writer.join();

  const int kept = dup(STDIN_FILENO), file = open((directory_ / "in/text").c_str(), O_RDONLY);
  dup2(file, STDIN_FILENO);
  expect_packed(options({"-"}), {text});
  dup2(kept, STDIN_FILENO);
  close(kept);
  close(file);
}

TEST_F(PackTest, a_full_disk_is_reported_and_the_same_call_resumes) {
  // Room for six shards: of the first ones it is saved how far packing got, before it is full.
  const SmallDisk disk(std::int64_t{12} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
  auto o = options({input("text", random_text(6'000'000, 3, "abc\n"))}, "\n", 500'000);
  o.validation_share = 0.2;
  const auto whole = pack(o);
  o.out = disk.path() / "out";
  expect_contains(message_of<DataError>([&] { pack(o); }), std::strerror(ENOSPC));
  EXPECT_FALSE(fs::exists(o.out));
  EXPECT_TRUE(fs::exists(work_of(o)));
  disk.resize(std::int64_t{64} << 20);
  std::vector<PackedDataset> packed;
  expect_goes_on("resumes with more space", logged([&] { packed = pack(o); }));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(packed[i].manifest.dump(), whole[i].manifest.dump());
    EXPECT_TRUE(verify(packed[i].path).damages.empty());
  }
  EXPECT_FALSE(fs::exists(work_of(o)));
}

TEST_F(PackTest, a_failed_write_leaves_nothing) {
  const auto o = options({input("text", random_text(3'000'000, 3, "abc\n"))}, "", 1'000'000);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t most : {rlim_t{0}, rlim_t{100}, rlim_t{1'500'000}}) {
    const auto old = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &small);
    const auto message = message_of<Error>([&] { pack(o); });
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old);
    expect_contains(message, std::strerror(EFBIG));
    EXPECT_TRUE(outputs().empty());
  }
}

// Of short documents, whose ends alone are more than the text, and of a single long one. Between
// reader and writer lie up to 8 MiB, how many depends on the disk; and 4 for the allocator.
TEST_F(PackTest, full_memory_does_not_depend_on_the_size_of_the_text) {
  const auto text = random_text(std::size_t{1} << 20, 5, "abc\n");
  const TemporaryDirectory disk;
  const auto peak_bytes = [&](int copies, const std::string& separator) {
    std::ofstream out(disk / "text", std::ios::binary);
    for (int i = 0; i < copies; ++i)
      out << text;
    out.close();
    auto o = options({disk / "text"}, separator);
    o.out = disk / str("out", ++outputs_);
    o.threads = 1;  // each has room for more that waits to be written, and fills it or not
    const auto child = fork();
    if (child == 0) {
      try {
        pack(o);
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
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

TEST_F(PackTest, the_same_text_gives_the_same_bytes_for_any_number_of_threads) {
  auto o = options({input("text", random_text(100'000, 3, "abc\n"))}, "\n");
  o.validation_share = 0.1;
  std::set<std::string> manifests;
  for (const int threads : {1, 2, 7}) {
    o.threads = threads;
    o.out = directory_ / str("by", threads);
    manifests.insert(pack(o)[1].manifest.dump());
  }
  EXPECT_EQ(manifests.size(), 1u);
}

}  // namespace lockstep::testing::pack_test
