#include "data/pack/convert.h"

#include <gtest/gtest.h>
#include <limits>

#include "data/dataset.h"
#include "data/pack/pack.h"
#include "data/pack/verify.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/shards.h"

namespace lockstep::testing::convert_test {

namespace fs = std::filesystem;

const std::string kGpt2 = LOCKSTEP_TOKENIZERS "/gpt2";

constexpr OutputKind kAllKinds[] = {OutputKind::lockstep, OutputKind::llmc, OutputKind::nanogpt,
                                    OutputKind::megatron, OutputKind::datatrove};

class ConvertTest : public DirectoryTest {
 protected:
  ConvertOptions options(const std::string& from, const std::string& to, OutputKind kind,
                         const std::string& tokenizer = "") const {
    ConvertOptions options;
    options.inputs = {at(from)};
    options.out = directory_ / to;
    options.to = kind;
    options.tokenizer = tokenizer;
    return options;
  }
  Converted converted(const std::string& from, const std::string& to, OutputKind kind,
                      const std::string& tokenizer = "") const {
    return convert(options(from, to, kind, tokenizer));
  }
  template <class E = DataError>
  static void expect_refused(const std::string& name, const ConvertOptions& o,
                             std::initializer_list<std::string> pins) {
    expect_refusal<E>("data/convert", name, pins, [&] { convert(o); });
  }
  // A dataset of ours with GPT-2's tokens, 50256 in front of each document.
  Documents write_gpt2(const std::string& name, std::int64_t count = 200) const {
    auto documents = random_texts(count, 50256);
    for (auto& document : documents)
      document.insert(document.begin(), 50256);
    write(name + ".bin", gpt2_shard(joined(documents)));
    converted(name + ".bin", name, OutputKind::lockstep);
    return documents;
  }
  Documents documents_in(const std::string& name) const {
    return documents_of(Dataset({at(name)}));
  }
  std::string shard_of(const std::string& name) const {
    return slurp(directory_ / name / "train_000000.bin");
  }
  Manifest manifest_of(const std::string& name) const {
    return Manifest::parse(slurp(directory_ / name / "dataset.json"), name);
  }
  void expect_whole(const std::string& name) const {
    EXPECT_EQ(verify(directory_ / name).damages, std::vector<std::string>{});
  }
  static Documents without(Documents documents, std::int32_t boundary) {
    for (auto& document : documents)
      std::erase(document, boundary);
    return documents;
  }
  // A name that was not given before.
  std::string new_name() { return str("out", ++outputs_); }

 private:
  int outputs_ = 0;
};

TEST_F(ConvertTest, documents_survive_conversion_to_every_format_and_back) {
  const auto documents = write_gpt2("a");
  for (const auto there : kAllKinds) {
    const auto name = str("there", static_cast<int>(there));
    converted("a", name, there);
    // Formats that list documents have every token as it is.
    if (there != OutputKind::llmc && there != OutputKind::nanogpt) {
      EXPECT_EQ(documents_in(name), documents) << name;
    }
    for (const auto back : kAllKinds) {
      const auto name_back = str(name, "-back", static_cast<int>(back));
      converted(name, name_back, back);
      EXPECT_EQ(without(documents_in(name_back), 50256), without(documents, 50256)) << name_back;
      expect_whole(name_back);
    }
  }
}

TEST_F(ConvertTest, lockstep_datasets_are_converted_to_any_number_of_shards) {
  write_dataset(directory_ / "b", random_documents(3'000), 700);
  for (const std::int64_t shard_tokens : {100, 1'000, 1 << 20}) {
    const auto name = str("b", shard_tokens);
    auto to = options("b", name, OutputKind::lockstep);
    to.shard_tokens = shard_tokens;
    const auto done = convert(to);
    EXPECT_EQ(done.tokens, 3'000);
    EXPECT_EQ(done.shards, (3'000 + shard_tokens - 1) / shard_tokens);
    EXPECT_TRUE(verify(to.out).hashed);
    expect_whole(name);
    EXPECT_EQ(documents_in(name), documents_in("b"));
    EXPECT_EQ(manifest_of(name).format.name, "bytes");
  }
}

TEST_F(ConvertTest, the_separator_token_is_where_the_format_has_it) {
  const auto expect_becomes = [&](const Tokens& llmc, const Tokens& nanogpt) {
    const auto a = new_name(), b = new_name();
    converted("m", a, OutputKind::llmc);
    EXPECT_EQ(shard_of(a), gpt2_shard(llmc));
    converted("m", b, OutputKind::nanogpt);
    EXPECT_EQ(slurp(directory_ / b / "train.bin"), body(nanogpt, 2));
  };
  write_megatron(at("m"), {{1, 2, 50256}, {50256, 3}, {4}});
  expect_becomes({50256, 1, 2, 50256, 3, 50256, 4}, {1, 2, 50256, 3, 50256, 4, 50256});
  // As pack makes them of prompts and responses, where one token starts a document and ends a text:
  // it is between them once.
  write_megatron(at("m"), {{50256, 1, 2, 50256}, {50256, 3, 50256}, {50256, 50256}, {50256}, {4}});
  expect_becomes({50256, 1, 2, 50256, 3, 50256, 50256, 50256, 4},
                 {1, 2, 50256, 3, 50256, 50256, 50256, 4, 50256});
  // Bytes have another one, which is replaced.
  write_dataset(directory_ / "b", {256, 7, 8, 256, 256, 9}, 4);
  converted("b", "b-llmc", OutputKind::llmc);
  EXPECT_EQ(shard_of("b-llmc"), gpt2_shard({50256, 7, 8, 50256, 50256, 9}));
}

TEST_F(ConvertTest, documents_do_not_cross_shards_in_formats_that_list_them_per_shard) {
  const auto documents = write_gpt2("a", 100);
  for (const auto kind : {OutputKind::megatron, OutputKind::datatrove}) {
    auto to = options("a", new_name(), kind);
    to.shard_tokens = 300;
    to.name = "x";
    const auto done = convert(to);
    EXPECT_GT(done.shards, 3);
    const Dataset dataset({to.out.string()});
    EXPECT_EQ(dataset.shards(), static_cast<std::size_t>(done.shards));
    EXPECT_EQ(documents_of(dataset), documents);
    std::vector<std::int64_t> starts;
    dataset.for_each_document([&](std::int64_t first, std::int64_t) { starts.push_back(first); });
    for (std::size_t shard = 0; shard < dataset.shards(); ++shard)
      EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), dataset.shard_start(shard)));
  }
}

TEST_F(ConvertTest, masks_are_kept_if_the_format_has_them_else_reported) {
  const auto tokens = random_documents(1'000);
  const auto mask = random_mask(1'000);
  write_dataset(directory_ / "d", tokens, 300, Boundary::front, mask);
  write("q.bin", llmq_header(2, 1'000, 300, 1) + body(tokens, 4) + mask_bits(mask));
  const std::pair<std::string, OutputKind> kept[] = {{"d", OutputKind::lockstep},
                                                     {"d", OutputKind::datatrove},
                                                     {"out2", OutputKind::lockstep},
                                                     {"q.bin", OutputKind::lockstep}};
  for (const auto& [from, kind] : kept) {
    const auto name = new_name();
    auto to = options(from, name, kind);
    to.shard_tokens = 333;
    for (const auto& lost : convert(to).lost)
      EXPECT_EQ(lost.find("mask"), std::string::npos);
    const Dataset dataset({at(name)});
    EXPECT_TRUE(dataset.has_masks()) << name;
    EXPECT_EQ(whole_mask(dataset), mask) << name;
    expect_whole(name);
  }
  for (const auto kind : {OutputKind::llmc, OutputKind::nanogpt, OutputKind::megatron})
    expect_wording("data/convert", "masks are lost", converted("d", new_name(), kind).lost.at(0));
}

TEST_F(ConvertTest, tokens_have_the_width_that_the_ids_need) {
  constexpr auto kLargest = std::numeric_limits<std::int32_t>::max();
  const struct {
    std::int32_t largest;
    OutputKind to;
    int token_bytes;
  } cases[] = {
      {65'535, OutputKind::lockstep, 2},       {65'535, OutputKind::datatrove, 2},
      {65'536, OutputKind::lockstep, 4},       {65'536, OutputKind::datatrove, 4},
      {kLargest - 1, OutputKind::lockstep, 4},  // which is what dataset.json can say
      {65'535, OutputKind::megatron, 4},        // as Megatron's own writer does from 65500 ids on
      {65'498, OutputKind::megatron, 2},
  };
  for (const auto& [largest, kind, token_bytes] : cases) {
    SCOPED_TRACE(largest);
    const auto name = new_name();
    write_megatron(at("m"), {{1, 2, largest}, {4}}, 4, 4);
    converted("m", name, kind);
    EXPECT_EQ(Dataset({at(name)}).format().token_bytes, token_bytes);
    EXPECT_EQ(documents_in(name), (Documents{{1, 2, largest}, {4}}));
    if (kind == OutputKind::lockstep) {
      EXPECT_EQ(manifest_of(name).format.vocabulary, std::int64_t{largest} + 1);
    }
  }
}

TEST_F(ConvertTest, tokens_that_a_format_cannot_store_are_an_error_with_their_place) {
  const struct {
    const char* name;
    Tokens second;  // document, behind two tokens
    OutputKind to;
    std::string pin;
  } cases[] = {
      {"nanoGPT", {3, 70'000}, OutputKind::nanogpt, "token 3 is 70000"},
      {"llm.c, GPT-2", {3, 50'257}, OutputKind::llmc, "token 3 is 50257"},
      {"llm.c, Llama 3", {3, 128'256}, OutputKind::llmc, "token 3 is 128256"},
      {"token within a document", {3, 50'256, 4}, OutputKind::llmc, "token 3 is 50256"},
      {"largest id", {3, 2147483647}, OutputKind::lockstep, "at byte 12: token 3 is 2147483647"},
  };
  for (const auto& [name, second, kind, pin] : cases) {
    write_megatron(at("m"), {{1, 2}, second}, 4, 4);
    expect_refused(name, options("m", "refused", kind), {"m.bin: ", pin});
    EXPECT_FALSE(fs::exists(directory_ / "refused"));
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos);
  }
}

TEST_F(ConvertTest, a_foreign_work_directory_is_not_touched) {
  write_megatron(at("m"), {{1, 2}}, 4, 4);
  const auto taken = str("o.tmp-", getpid());
  write(taken + "/notes", "precious");
  auto text = message_of<UsageError>([&] { converted("m", "o", OutputKind::datatrove); });
  ASSERT_TRUE(text.starts_with(at(taken))) << text;
  expect_wording("data/convert", "its directory is taken", text.substr(at(taken).size()));
  EXPECT_EQ(slurp(directory_ / taken / "notes"), "precious");
}

// tokenizer.json of GPT-2 lies beside data that are said to be of it.
TEST_F(ConvertTest, lockstep_datasets_keep_their_tokenizer) {
  const auto json = slurp(kGpt2 + "/tokenizer.json");
  const auto hash = open_tokenizer(kGpt2)->about().hash;
  const auto write_ours = [&](const std::string& name, std::uint64_t seed,
                              const std::string& tokenizer_hash, const std::string& tokenizer) {
    auto manifest = write_dataset(directory_ / name, random_documents(100, seed), 50);
    manifest.format.name = "A";
    manifest.tokenizer_hash = tokenizer_hash;
    write_manifest(directory_ / name, manifest);
    write(name + "/tokenizer.json", tokenizer);
  };
  write_ours("x", 2, hash, json);
  converted("x", "e", OutputKind::lockstep);
  // Of several inputs, of which the first does not say what it is.
  write_ours("u", 3, "", "another one");
  auto several = options("u", "f", OutputKind::lockstep);
  several.inputs.push_back(at("x"));
  convert(several);
  for (const char* name : {"e", "f"}) {
    EXPECT_EQ(slurp(directory_ / name / "tokenizer.json"), json);
    EXPECT_EQ(manifest_of(name).tokenizer_hash, hash);
    EXPECT_EQ(manifest_of(name).format.name, "A");
    expect_whole(name);
  }
  // The file differs from dataset.json, or is not listed.
  write("x/tokenizer.json", "{}");
  expect_wording("data/convert", "another tokenizer beside it",
                 logged([&] { converted("x", "g", OutputKind::lockstep); }));
  write("y/x.bin", gpt2_shard({50256, 1}));
  write("y/tokenizer.json", json);
  converted("y/x.bin", "h", OutputKind::lockstep);
  for (const char* name : {"g", "h"})
    EXPECT_FALSE(fs::exists(directory_ / name / "tokenizer.json"));
  const auto damages = verify(directory_ / "g").damages;
  ASSERT_EQ(damages.size(), 1u);
  expect_contains(damages[0], at("g/tokenizer.json"));
  expect_whole("h");
  EXPECT_EQ(manifest_of("h").format.name, "unknown");
  EXPECT_EQ(manifest_of("h").tokenizer_hash, "");
  EXPECT_EQ(manifest_of("h").format.vocabulary, 50257);
}

TEST_F(ConvertTest, the_tokenizer_of_the_tokens_can_be_given) {
  const auto known = open_tokenizer(kGpt2)->about();
  write_megatron(at("m"), {{1, 2}, {3, 4}});
  write_megatron(at("n"), {{1, 2, 7}, {3}});
  for (const std::string name : {"m", "n"}) {
    converted(name, name + "-gpt2", OutputKind::lockstep, kGpt2);
    const auto manifest = manifest_of(name + "-gpt2");
    EXPECT_EQ(manifest.format.name, "gpt2");
    EXPECT_EQ(manifest.format.vocabulary, known.vocabulary);
    EXPECT_EQ(manifest.tokenizer_hash, known.hash);
    expect_whole(name + "-gpt2");
    converted(name, name + "-unknown", OutputKind::lockstep);
  }
  EXPECT_EQ(Dataset({at("m-gpt2"), at("n-gpt2")}).tokens(), 8);
  EXPECT_EQ(Dataset({at("m-unknown"), at("n-unknown")}).format().vocabulary, 8);
  auto to = options("m", "m-wide", OutputKind::lockstep);
  to.vocabulary = 100'000;
  convert(to);
  EXPECT_EQ(manifest_of("m-wide").format.vocabulary, 100'000);
  EXPECT_EQ(manifest_of("m-wide").format.token_bytes, 4);
  to.out = directory_ / "refused";
  to.vocabulary = 4;
  expect_refused("a vocabulary that is too small", to, {"m.bin: at byte 6: token 3 is 4,"});
  to.tokenizer = "bytes";
  expect_refused<UsageError>("vocabulary and tokenizer", to, {"--vocabulary", "--tokenizer"});
  expect_refused<UsageError>("another tokenizer than that of the tokens",
                             options("m-gpt2", "refused", OutputKind::lockstep, "bytes"),
                             {"gpt2 ("});
}

// Formats that know one token between documents, and tokenizers that have another one.
TEST_F(ConvertTest, document_tokens_are_restored_from_formats_with_their_own) {
  const auto round_trip = [&](const std::string& name, const std::string& tokenizer) {
    const auto documents = documents_in(name);
    for (const auto kind : {OutputKind::llmc, OutputKind::nanogpt})
      for (const auto through : {OutputKind::lockstep, OutputKind::megatron}) {
        const auto there = new_name(), back = new_name(), across = new_name(),
                   straight = new_name();
        converted(name, there, kind);
        converted(there, back, through, tokenizer);
        EXPECT_EQ(documents_in(back), documents) << name << ' ' << there;
        expect_whole(back);
        if (through != OutputKind::lockstep) continue;
        const auto manifest = manifest_of(back), before = manifest_of(name);
        EXPECT_EQ(manifest.format.boundary, Boundary::front);
        EXPECT_EQ(manifest.format.boundary_token, before.format.boundary_token);
        EXPECT_EQ(manifest.tokenizer_hash, before.tokenizer_hash);
        // And straight to the other one, as the dataset itself goes there.
        converted(there, across, OutputKind::llmc, tokenizer);
        converted(name, straight, OutputKind::llmc);
        EXPECT_EQ(shard_of(across), shard_of(straight));
      }
  };
  write("b.txt", "\xff\x01 one\n\ntwo\n\nthree");
  pack({.inputs = {at("b.txt")}, .out = at("b"), .document_separator = "\n\n"});
  round_trip("b", "bytes");
  // Two in a row mean a document without text.
  write_dataset(directory_ / "e", {256, 7, 8, 256, 256, 9, 256}, 3);
  round_trip("e", "bytes");
  const std::string tokenizer = LOCKSTEP_TOKENIZERS "/smollm2";
  pack({.inputs = {at("b.txt")},
        .out = at("t"),
        .document_separator = "\n\n",
        .tokenizer = tokenizer});
  ASSERT_NE(manifest_of("t").format.boundary_token, 50256);
  round_trip("t", tokenizer);
  // Of formats that list documents the tokenizer says which token it is.
  converted("b", "m", OutputKind::megatron);
  converted("m", "m-llmc", OutputKind::llmc, "bytes");
  converted("b", "b-llmc", OutputKind::llmc);
  EXPECT_EQ(shard_of("m-llmc"), shard_of("b-llmc"));
}

TEST_F(ConvertTest, a_replaced_document_token_is_reported) {
  write_dataset(directory_ / "b", {256, 7, 8, 256, 9}, 4);
  write_gpt2("a");
  write_datatrove(at("wide"), {{1, 2, 119'976}, {4}}, 4);
  write_megatron(at("small"), {{256, 2}, {256, 4}});
  const struct {
    std::string name, from;
    OutputKind to;
    std::string tokenizer;
    std::vector<std::string> pins;  // none: nothing is said
  } cases[] = {
      {"bytes to llm.c", "b", OutputKind::llmc, "", {"256", "50256", "--tokenizer"}},
      {"bytes to nanoGPT", "b", OutputKind::nanogpt, "", {"256", "50256", "--tokenizer"}},
      {"bytes to ours", "b", OutputKind::lockstep, "", {}},
      {"bytes to Megatron", "b", OutputKind::megatron, "", {}},
      {"bytes to datatrove", "b", OutputKind::datatrove, "", {}},
      {"GPT-2 to llm.c", "a", OutputKind::llmc, "", {}},
      {"wide ids to llm.c", "wide.ds", OutputKind::llmc, "", {"128000", "119977"}},
      {"small ids to nanoGPT", "small", OutputKind::nanogpt, "", {"257"}},
      {"small ids of bytes", "small", OutputKind::nanogpt, "bytes", {"256", "50256"}},
  };
  for (const auto& [name, from, kind, tokenizer, pins] : cases) {
    const auto said = converted(from, new_name(), kind, tokenizer).replaced;
    EXPECT_EQ(said.empty(), pins.empty()) << name;
    for (const auto& pin : pins)
      expect_contains(said, pin);
    if (!pins.empty()) expect_wording("data/convert", name, said);
  }
}

// GPT-NeoX's, say, have 0 between documents and 50256 in text.
TEST_F(ConvertTest, a_separator_that_may_be_text_is_not_replaced) {
  auto text = slurp(kGpt2 + "/tokenizer.json");
  const std::string first = R"([{"id":700,)";
  text.replace(
      text.find(first), first.size(),
      R"([{"id":60000,"content":"<far>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true},{"id":700,)");
  write("t/tokenizer.json", text);
  write("n.bin", body({5, 50256, 6, 60000, 50256}, 2));
  converted("n.bin", "d", OutputKind::lockstep, at("t"));
  EXPECT_EQ(documents_in("d"), (Documents{{700, 5}, {700, 6, 60000}}));
  write("n.bin", body({5, 50256, 700, 6}, 2));
  expect_refused("the tokenizer's document token within a document",
                 options("n.bin", "e", OutputKind::lockstep, at("t")), {"n.bin: token 2 is 700"});
}

// nanoGPT's shards of characters never hold the token that GPT-2's do.
TEST_F(ConvertTest, llmq_and_character_shards_become_datasets_without_documents) {
  const auto tokens = random_tokens(500, 151'644), characters = random_tokens(500, 65);
  write("q.bin", llmq_header(2, 500, 151'643, 0) + body(tokens, 4));
  write("train.bin", body(characters, 2));
  converted("q.bin", "q", OutputKind::lockstep);
  converted("train.bin", "c", OutputKind::lockstep);
  for (const char* name : {"q", "c"}) {
    EXPECT_EQ(manifest_of(name).format.boundary, Boundary::none);
    EXPECT_EQ(manifest_of(name).documents(), 0);
    expect_whole(name);
  }
  EXPECT_EQ(manifest_of("q").format.token_bytes, 4);
  EXPECT_EQ(manifest_of("c").format.vocabulary, 65);
  EXPECT_EQ(documents_in("q"), Documents{tokens});
  EXPECT_EQ(documents_in("c"), Documents{characters});
}

TEST_F(ConvertTest, an_output_that_exists_or_has_no_name_is_an_error) {
  write_dataset(directory_ / "d", random_documents(100), 50);
  expect_refused<UsageError>("output exists", options("d", "d", OutputKind::llmc), {at("d")});
  auto unnamed = options("d", "e", OutputKind::llmc);
  for (const char* name : {"a/b", ""}) {
    unnamed.name = name;
    expect_refused<UsageError>(str("--name \"", name, '"'), unnamed, {"--name", name});
  }
  expect_refusal<UsageError>("data/convert", "--to mds", {"--to mds"}, [] { output_kind("mds"); });
}

TEST_F(ConvertTest, a_full_disk_leaves_nothing_under_the_output_name) {
  const SmallDisk disk(std::int64_t{1} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a file system in memory";
  write_dataset(directory_ / "d", random_documents(1'000'000), 250'000);
  for (const auto kind : kAllKinds) {
    auto to = options("d", "unused", kind);
    to.out = disk.path() / "out";
    expect_contains(message_of<DataError>([&] { convert(to); }), std::strerror(ENOSPC));
    EXPECT_TRUE(fs::is_empty(disk.path())) << static_cast<int>(kind);
  }
}

}  // namespace lockstep::testing::convert_test
