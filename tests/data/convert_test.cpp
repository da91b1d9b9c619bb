#include "data/convert.h"

#include <gtest/gtest.h>
#include <limits>

#include "data/dataset.h"
#include "data/pack.h"
#include "data/tokenizer.h"
#include "data/verify.h"
#include "tests/data/shards.h"

namespace lockstep::testing::convert_test {

namespace fs = std::filesystem;

const std::string kTokenizers = LOCKSTEP_TOKENIZERS;

constexpr OutputKind kAllKinds[] = {OutputKind::lockstep, OutputKind::llmc, OutputKind::nanogpt,
                                    OutputKind::megatron, OutputKind::datatrove};

class ConvertTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  ConvertOptions options(const std::string& from, const std::string& to, OutputKind kind) const {
    ConvertOptions options;
    options.inputs = {at(from)};
    options.out = directory_ / to;
    options.to = kind;
    return options;
  }
  void converted(const std::string& from, const std::string& to, OutputKind kind) const {
    convert(options(from, to, kind));
  }
  // A dataset of ours with GPT-2's tokens, 50256 in front of each document.
  Documents write_gpt2(const std::string& name, std::int64_t count = 200) const {
    auto documents = random_texts(count, 50256);
    for (auto& document : documents)
      document.insert(document.begin(), 50256);
    fs::create_directories(directory_ / name);
    spit(directory_ / (name + ".bin"), gpt2_shard(joined(documents)));
    converted(name + ".bin", name + "/ours", OutputKind::lockstep);
    return documents;
  }
  // The documents of a dataset, without `boundary`.
  Documents documents_of(const std::string& name, std::int32_t boundary = -1) const {
    const Dataset dataset({at(name)});
    Documents documents;
    dataset.for_each_document([&](std::int64_t first, std::int64_t end) {
      Tokens tokens(static_cast<std::size_t>(end - first));
      dataset.read(tokens, first);
      std::erase(tokens, boundary);
      documents.push_back(std::move(tokens));
    });
    return documents;
  }
  Manifest manifest_of(const std::string& name) const {
    return Manifest::parse(slurp(directory_ / name / "dataset.json"), name);
  }
  std::vector<std::string> damages(const std::string& name) const {
    return verify(directory_ / name).damages;
  }
  static Documents without(Documents documents, std::int32_t boundary) {
    for (auto& document : documents)
      std::erase(document, boundary);
    return documents;
  }
  TemporaryDirectory directory_;
  int outputs_ = 0;
};

TEST_F(ConvertTest, documents_survive_every_way_there_and_back) {
  const auto documents = without(write_gpt2("a"), 50256);
  for (const auto there : kAllKinds)
    for (const auto back : kAllKinds) {
      const auto name = str("c", static_cast<int>(there), static_cast<int>(back));
      converted("a/ours", name + "-there", there);
      converted(name + "-there", name + "-back", back);
      EXPECT_EQ(documents_of(name + "-back", 50256), documents) << name;
      EXPECT_EQ(verify(directory_ / (name + "-back")).damages, std::vector<std::string>{});
    }
}

TEST_F(ConvertTest, formats_that_list_documents_get_every_token_as_it_is) {
  const auto documents = write_gpt2("a");
  for (const auto kind : {OutputKind::lockstep, OutputKind::megatron, OutputKind::datatrove}) {
    const auto name = str("c", static_cast<int>(kind));
    converted("a/ours", name, kind);
    EXPECT_EQ(documents_of(name), documents) << name;
  }
  // And ours that came of bytes, whole, in any number of shards.
  const auto tokens = random_documents(3'000);
  write_dataset(directory_ / "b", tokens, 700);
  for (const std::int64_t shard_tokens : {100, 1'000, 1 << 20}) {
    auto to = options("b", str("b", shard_tokens), OutputKind::lockstep);
    to.shard_tokens = shard_tokens;
    const auto done = convert(to);
    EXPECT_EQ(done.tokens, 3'000);
    EXPECT_EQ(done.shards, (3'000 + shard_tokens - 1) / shard_tokens);
    const auto found = verify(to.out);
    EXPECT_TRUE(found.hashed);
    EXPECT_EQ(found.damages, std::vector<std::string>{});
    EXPECT_EQ(documents_of(str("b", shard_tokens)), documents_of("b"));
    EXPECT_EQ(Dataset({to.out.string()}).format().name, "bytes");
  }
}

TEST_F(ConvertTest, the_token_between_documents_goes_where_the_format_wants_it) {
  write_megatron(directory_ / "m", {{1, 2, 50256}, {50256, 3}, {4}});
  converted("m", "llmc", OutputKind::llmc);
  EXPECT_EQ(slurp(directory_ / "llmc/train_000000.bin"),
            gpt2_shard({50256, 1, 2, 50256, 3, 50256, 4}));
  converted("m", "nano", OutputKind::nanogpt);
  EXPECT_EQ(slurp(directory_ / "nano/train.bin"), body({1, 2, 50256, 3, 50256, 4, 50256}, 2));
  // Bytes have another one, which is replaced.
  write_dataset(directory_ / "b", {256, 7, 8, 256, 256, 9}, 4);
  converted("b", "b-llmc", OutputKind::llmc);
  EXPECT_EQ(slurp(directory_ / "b-llmc/train_000000.bin"),
            gpt2_shard({50256, 7, 8, 50256, 50256, 9}));
}

TEST_F(ConvertTest, documents_lie_whole_in_shards_of_formats_that_list_them_by_shard) {
  const auto documents = write_gpt2("a", 100);
  for (const auto kind : {OutputKind::megatron, OutputKind::datatrove}) {
    auto to = options("a/ours", str("c", static_cast<int>(kind)), kind);
    to.shard_tokens = 300;
    to.name = "x";
    const auto done = convert(to);
    EXPECT_GT(done.shards, 3);
    const Dataset dataset({to.out.string()});
    EXPECT_EQ(dataset.shards(), static_cast<std::size_t>(done.shards));
    EXPECT_EQ(documents_of(str("c", static_cast<int>(kind))), documents);
    std::vector<std::int64_t> starts;
    dataset.for_each_document([&](std::int64_t first, std::int64_t) { starts.push_back(first); });
    for (std::size_t shard = 0; shard < dataset.shards(); ++shard)
      EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), dataset.shard_start(shard)));
  }
}

// As pack makes them of prompts and responses, where one token starts a document and ends a text.
TEST_F(ConvertTest, documents_with_the_token_at_both_ends_have_it_between_them_once) {
  const Documents documents{{50256, 1, 2, 50256}, {50256, 3, 50256}, {50256, 50256}, {50256}, {4}};
  write_megatron(directory_ / "m", documents);
  converted("m", "llmc", OutputKind::llmc);
  EXPECT_EQ(slurp(directory_ / "llmc/train_000000.bin"),
            gpt2_shard({50256, 1, 2, 50256, 3, 50256, 50256, 50256, 4}));
  converted("m", "nanogpt", OutputKind::nanogpt);
  EXPECT_EQ(slurp(directory_ / "nanogpt/train.bin"),
            body({1, 2, 50256, 3, 50256, 50256, 50256, 4, 50256}, 2));
}

TEST_F(ConvertTest, masks_are_kept_where_the_format_has_them_and_named_where_not) {
  const auto tokens = random_documents(1'000);
  const auto mask = random_mask(1'000);
  write_dataset(directory_ / "d", tokens, 300, Boundary::front, mask);
  const auto mask_of = [&](const std::string& name) {
    std::vector<std::uint8_t> read(1'000);
    const Dataset dataset({at(name)});
    EXPECT_TRUE(dataset.has_masks()) << name;
    dataset.read_mask(read, 0);
    return read;
  };
  for (const auto kind : {OutputKind::lockstep, OutputKind::datatrove}) {
    const auto name = str("c", static_cast<int>(kind));
    auto to = options("d", name, kind);
    to.shard_tokens = 333;
    for (const auto& lost : convert(to).lost)
      EXPECT_EQ(lost.find("masks"), std::string::npos);
    EXPECT_EQ(mask_of(name), mask);
    EXPECT_EQ(verify(directory_ / name).damages, std::vector<std::string>{});
  }
  converted("c4", "back", OutputKind::lockstep);
  EXPECT_EQ(mask_of("back"), mask);
  spit(directory_ / "q.bin", llmq_header(2, 1'000, 300, 1) + body(tokens, 4) + mask_bits(mask));
  converted("q.bin", "of_llmq", OutputKind::lockstep);
  EXPECT_EQ(mask_of("of_llmq"), mask);
  for (const auto kind : {OutputKind::llmc, OutputKind::nanogpt, OutputKind::megatron}) {
    const auto done = convert(options("d", str("lost", static_cast<int>(kind)), kind));
    EXPECT_EQ(done.lost.at(0), "loss masks");
  }
}

TEST_F(ConvertTest, tokens_have_the_width_that_their_ids_need) {
  const auto bytes_of = [&](const std::string& name) {
    return Dataset({at(name)}).format().token_bytes;
  };
  write_megatron(directory_ / "small", {{1, 2, 65'535}, {4}}, 4, 4);
  write_megatron(directory_ / "large", {{1, 2, 65'536}, {4}}, 4, 4);
  for (const auto kind : {OutputKind::lockstep, OutputKind::datatrove}) {
    converted("small", str("s", static_cast<int>(kind)), kind);
    EXPECT_EQ(bytes_of(str("s", static_cast<int>(kind))), 2);
    converted("large", str("l", static_cast<int>(kind)), kind);
    EXPECT_EQ(bytes_of(str("l", static_cast<int>(kind))), 4);
  }
  EXPECT_EQ(Dataset({at("s0")}).format().vocabulary, 65'536);
  EXPECT_EQ(Dataset({at("l0")}).format().vocabulary, 65'537);
  converted("small", "s3", OutputKind::megatron);
  EXPECT_EQ(bytes_of("s3"), 4);  // as Megatron's own writer does from 65500 ids on
  write_megatron(directory_ / "smaller", {{1, 2, 65'498}}, 4, 4);
  converted("smaller", "s33", OutputKind::megatron);
  EXPECT_EQ(bytes_of("s33"), 2);
}

TEST_F(ConvertTest, what_a_format_cannot_hold_is_refused_by_place_and_leaves_nothing) {
  const auto refusal = [&](const std::string& from, OutputKind kind) {
    auto message = message_of<DataError>([&] { convert(options(from, "refused", kind)); });
    EXPECT_FALSE(fs::exists(directory_ / "refused"));
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos);
    return message;
  };
  write_megatron(directory_ / "m", {{1, 2}, {3, 70'000}}, 4, 4);
  expect_contains(refusal("m", OutputKind::nanogpt), "m.bin: token 3 is 70000, which nanoGPT");
  write_megatron(directory_ / "m", {{1, 2}, {3, 50'257}}, 4, 4);
  expect_contains(refusal("m", OutputKind::llmc), "token 3 is 50257, which llm.c with GPT-2's");
  write_megatron(directory_ / "m", {{1, 2}, {3, 128'256}}, 4, 4);
  expect_contains(refusal("m", OutputKind::llmc), "token 3 is 128256, which llm.c with Llama 3's");
  write_megatron(directory_ / "m", {{1, 2}, {3, 50'256, 4}}, 4, 4);
  expect_contains(refusal("m", OutputKind::llmc),
                  "token 3 is 50256, which llm.c with GPT-2's tokens puts between documents, but "
                  "here it is within document 1; pack the text with --plain-text");
}

TEST_F(ConvertTest, a_directory_called_as_the_one_it_works_in_is_not_touched) {
  write_megatron(directory_ / "m", {{1, 2}}, 4, 4);
  const auto taken = directory_ / str("o.tmp-", getpid());
  fs::create_directories(taken);
  spit(taken / "notes", "precious");
  expect_contains(
      message_of<UsageError>([&] { convert(options("m", "o", OutputKind::datatrove)); }),
      taken.string() + ": exists");
  EXPECT_EQ(slurp(taken / "notes"), "precious");
}

TEST_F(ConvertTest, the_tokenizer_goes_along_between_datasets_of_ours) {
  const auto source = kTokenizers + "/gpt2/tokenizer.json";
  write_dataset(directory_ / "d", random_documents(100), 50);
  auto manifest = write_dataset(directory_ / "x", random_documents(100, 2), 50);
  manifest.format.name = "A";
  manifest.tokenizer_hash = open_tokenizer(source)->about().hash;
  spit(directory_ / "x/dataset.json", manifest.dump());
  spit(directory_ / "x/tokenizer.json", slurp(source));
  converted("x", "e", OutputKind::lockstep);
  EXPECT_EQ(slurp(directory_ / "e/tokenizer.json"), slurp(source));
  EXPECT_EQ(manifest_of("e").tokenizer_hash, manifest.tokenizer_hash);
  EXPECT_EQ(manifest_of("e").format.name, "A");
  EXPECT_EQ(damages("e"), std::vector<std::string>{});
  // Of several inputs, of which the first does not say what it is.
  auto unknown = write_dataset(directory_ / "u", random_documents(100, 3), 50);
  unknown.tokenizer_hash = "";
  spit(directory_ / "u/dataset.json", unknown.dump());
  spit(directory_ / "u/tokenizer.json", "another one");
  auto several = options("u", "f", OutputKind::lockstep);
  several.inputs.push_back(at("x"));
  convert(several);
  EXPECT_EQ(slurp(directory_ / "f/tokenizer.json"), slurp(source));
  EXPECT_EQ(manifest_of("f").tokenizer_hash, manifest.tokenizer_hash);
  EXPECT_EQ(manifest_of("f").format.name, "A");
  EXPECT_EQ(damages("f"), std::vector<std::string>{});
  // What lies there is not what dataset.json says, or nothing says what it should be.
  spit(directory_ / "x/tokenizer.json", "{}");
  ::testing::internal::CaptureStderr();
  converted("x", "g", OutputKind::lockstep);
  expect_contains(::testing::internal::GetCapturedStderr(), "no tokenizer of A (");
  fs::create_directory(directory_ / "y");
  spit(directory_ / "y/x.bin", gpt2_shard({50256, 1}));
  spit(directory_ / "y/tokenizer.json", slurp(source));
  converted("y/x.bin", "h", OutputKind::lockstep);
  for (const char* name : {"g", "h"})
    EXPECT_FALSE(fs::exists(directory_ / name / "tokenizer.json"));
  ASSERT_EQ(damages("g").size(), 1u);
  expect_contains(damages("g")[0], "tokenizer.json: is missing");
  EXPECT_EQ(damages("h"), std::vector<std::string>{});
  EXPECT_EQ(manifest_of("h").format.name, "unknown");
  EXPECT_EQ(manifest_of("h").tokenizer_hash, "");
  EXPECT_EQ(manifest_of("h").format.vocabulary, 50257);
}

TEST_F(ConvertTest, what_the_tokens_are_of_can_be_said) {
  const auto tokenizer = kTokenizers + "/gpt2";
  const auto known = open_tokenizer(tokenizer)->about();
  write_megatron(directory_ / "m", {{1, 2}, {3, 4}});
  write_megatron(directory_ / "n", {{1, 2, 7}, {3}});
  for (const char* name : {"m", "n"}) {
    auto to = options(name, str(name, "-gpt2"), OutputKind::lockstep);
    to.tokenizer = tokenizer;
    convert(to);
    const auto manifest = manifest_of(str(name, "-gpt2"));
    EXPECT_EQ(manifest.format.name, "gpt2");
    EXPECT_EQ(manifest.format.vocabulary, known.vocabulary);
    EXPECT_EQ(manifest.tokenizer_hash, known.hash);
    EXPECT_EQ(damages(str(name, "-gpt2")), std::vector<std::string>{});
  }
  EXPECT_EQ(Dataset({at("m-gpt2"), at("n-gpt2")}).tokens(), 8);
  auto to = options("m", "m-wide", OutputKind::lockstep);
  to.vocabulary = 100'000;
  convert(to);
  EXPECT_EQ(manifest_of("m-wide").format.vocabulary, 100'000);
  EXPECT_EQ(manifest_of("m-wide").format.token_bytes, 4);
  // Two that do not say of which tokens they are.
  converted("m", "m-unknown", OutputKind::lockstep);
  converted("n", "n-unknown", OutputKind::lockstep);
  EXPECT_EQ(Dataset({at("m-unknown"), at("n-unknown")}).format().vocabulary, 8);
  // And what cannot be.
  const auto refused = [&](const std::string& from, const std::string& name,
                           std::int64_t vocabulary) {
    auto to_none = options(from, "refused", OutputKind::lockstep);
    to_none.tokenizer = name;
    to_none.vocabulary = vocabulary;
    try {
      convert(to_none);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  expect_contains(refused("m", "", 4), "m.bin: at byte 6: token 3 is 4, expected ids below 4");
  expect_contains(refused("m", "bytes", 4), "--vocabulary beside --tokenizer");
  expect_contains(refused("m-gpt2", "bytes", 0), "but the tokens are of gpt2 (");
}

// Formats that know one token between documents, and tokenizers that have another one.
TEST_F(ConvertTest, ids_come_back_from_formats_with_a_document_token_of_their_own) {
  const auto round_trip = [&](const std::string& name, const std::string& tokenizer) {
    const auto documents = documents_of(name);
    for (const auto kind : {OutputKind::llmc, OutputKind::nanogpt})
      for (const auto through : {OutputKind::lockstep, OutputKind::megatron}) {
        const auto there = str(name, "-", static_cast<int>(kind), static_cast<int>(through));
        auto to = options(name, there, kind);
        convert(to);
        auto from = options(there, there + "-back", through);
        from.tokenizer = tokenizer;
        convert(from);
        EXPECT_EQ(documents_of(there + "-back"), documents) << there;
        EXPECT_EQ(damages(there + "-back"), std::vector<std::string>{});
        if (through != OutputKind::lockstep) continue;
        const auto manifest = manifest_of(there + "-back"), before = manifest_of(name);
        EXPECT_EQ(manifest.format.boundary, Boundary::front);
        EXPECT_EQ(manifest.format.boundary_token, before.format.boundary_token);
        EXPECT_EQ(manifest.tokenizer_hash, before.tokenizer_hash);
        // And straight to the other one, as the dataset itself goes there.
        auto across = options(there, there + "-across", OutputKind::llmc);
        across.tokenizer = tokenizer;
        convert(across);
        converted(name, there + "-straight", OutputKind::llmc);
        EXPECT_EQ(slurp(directory_ / (there + "-across/train_000000.bin")),
                  slurp(directory_ / (there + "-straight/train_000000.bin")));
      }
  };
  // Two that stand behind each other are of a document without text.
  spit(directory_ / "b.txt", "\xff\x01 one\n\ntwo\n\nthree");
  pack({.inputs = {at("b.txt")}, .out = at("b"), .document_separator = "\n\n"});
  round_trip("b", "bytes");
  write_dataset(directory_ / "e", {256, 7, 8, 256, 256, 9, 256}, 3);
  round_trip("e", "bytes");
  const auto tokenizer = kTokenizers + "/smollm2";
  pack({.inputs = {at("b.txt")},
        .out = at("t"),
        .document_separator = "\n\n",
        .tokenizer = tokenizer});
  ASSERT_NE(manifest_of("t").format.boundary_token, 50256);
  round_trip("t", tokenizer);
  // Of formats that list documents the tokenizer says which token it is.
  converted("b", "m", OutputKind::megatron);
  auto to = options("m", "m-llmc", OutputKind::llmc);
  to.tokenizer = "bytes";
  convert(to);
  converted("b", "b-llmc", OutputKind::llmc);
  EXPECT_EQ(slurp(directory_ / "m-llmc/train_000000.bin"),
            slurp(directory_ / "b-llmc/train_000000.bin"));
}

TEST_F(ConvertTest, which_document_token_became_another_is_said) {
  const auto said = [&](const std::string& from, OutputKind kind,
                        const std::string& tokenizer = "") {
    auto to = options(from, str("to", ++outputs_), kind);
    to.tokenizer = tokenizer;
    return convert(to).replaced;
  };
  write_dataset(directory_ / "b", {256, 7, 8, 256, 9}, 4);
  for (const auto kind : {OutputKind::llmc, OutputKind::nanogpt}) {
    expect_contains(said("b", kind), "document token 256 became 50256");
    expect_contains(said("b", kind), "`lockstep data convert --tokenizer`");
  }
  for (const auto kind : {OutputKind::lockstep, OutputKind::megatron, OutputKind::datatrove})
    EXPECT_EQ(said("b", kind), "");
  write_gpt2("a");
  EXPECT_EQ(said("a/ours", OutputKind::llmc), "");
  write_datatrove(directory_ / "wide", {{1, 2, 119'976}, {4}}, 4);
  expect_contains(said("wide.ds", OutputKind::llmc),
                  "128000, the document token of llm.c with Llama 3");
  expect_contains(said("wide.ds", OutputKind::llmc), "ids below 119977");
  write_megatron(directory_ / "small", {{256, 2}, {256, 4}});
  expect_contains(said("small", OutputKind::nanogpt), "the tokens have ids below 257");
  expect_contains(said("small", OutputKind::nanogpt, "bytes"), "document token 256 became 50256");
}

// GPT-NeoX's, say, have 0 between documents and 50256 in text.
TEST_F(ConvertTest, a_token_that_may_be_text_is_not_taken_for_another_one_s_place) {
  auto text = slurp(kTokenizers + "/gpt2/tokenizer.json");
  const std::string first = R"([{"id":700,)";
  text.replace(
      text.find(first), first.size(),
      R"([{"id":60000,"content":"<far>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true},{"id":700,)");
  fs::create_directory(directory_ / "t");
  spit(directory_ / "t/tokenizer.json", text);
  const auto back = [&](const Tokens& tokens) {
    spit(directory_ / "n.bin", body(tokens, 2));
    auto to = options("n.bin", str("out", ++outputs_), OutputKind::lockstep);
    to.tokenizer = at("t");
    convert(to);
    return documents_of(str("out", outputs_));
  };
  EXPECT_EQ(back({5, 50256, 6, 60000, 50256}), (Documents{{700, 5}, {700, 6, 60000}}));
  expect_contains(message_of<DataError>([&] {
                    back({5, 50256, 700, 6});
                  }),
                  "n.bin: token 2 is 700, the tokenizer's document token, within document 1");
}

TEST_F(ConvertTest, the_largest_id_that_dataset_json_can_say_is_said_and_one_more_refused) {
  constexpr auto kLargest = std::numeric_limits<std::int32_t>::max();
  write_megatron(directory_ / "m", {{1, kLargest - 1}}, 4, 4);
  converted("m", "d", OutputKind::lockstep);
  EXPECT_EQ(documents_of("d"), (Documents{{1, kLargest - 1}}));
  write_megatron(directory_ / "m", {{1, kLargest}}, 4, 4);
  expect_contains(message_of<DataError>([&] { converted("m", "e", OutputKind::lockstep); }),
                  "m.bin: at byte 4: token 1 is 2147483647, expected ids below 2147483647");
}

TEST_F(ConvertTest, llmq_becomes_a_dataset_without_documents) {
  const auto tokens = random_tokens(500, 151'644);
  spit(directory_ / "q.bin", llmq_header(2, 500, 151'643, 0) + body(tokens, 4));
  converted("q.bin", "d", OutputKind::lockstep);
  const auto manifest = Manifest::parse(slurp(directory_ / "d/dataset.json"), "d");
  EXPECT_EQ(manifest.format.boundary, Boundary::none);
  EXPECT_EQ(manifest.documents(), 0);
  EXPECT_EQ(manifest.format.token_bytes, 4);
  EXPECT_EQ(documents_of("d"), Documents{tokens});
}

// nanoGPT's shards of characters never hold the token that GPT-2's do.
TEST_F(ConvertTest, characters_become_a_dataset_without_documents) {
  spit(directory_ / "train.bin", body(random_tokens(500, 65), 2));
  converted("train.bin", "d", OutputKind::lockstep);
  const auto manifest = Manifest::parse(slurp(directory_ / "d/dataset.json"), "d");
  EXPECT_EQ(manifest.format.boundary, Boundary::none);
  EXPECT_EQ(manifest.format.vocabulary, 65);
  EXPECT_EQ(verify(directory_ / "d").damages, std::vector<std::string>{});
}

TEST_F(ConvertTest, an_output_that_exists_or_has_no_name_is_refused) {
  write_dataset(directory_ / "d", random_documents(100), 50);
  const auto refusal = [&](ConvertOptions options) {
    return message_of<UsageError>([&] { convert(options); });
  };
  expect_contains(refusal(options("d", "d", OutputKind::llmc)), "d: exists");
  auto unnamed = options("d", "e", OutputKind::llmc);
  unnamed.name = "a/b";
  expect_contains(refusal(unnamed), "--name a/b");
  unnamed.name = "";
  expect_contains(refusal(unnamed), "--name");
  expect_contains(message_of<UsageError>([] { output_kind("mds"); }),
                  "--to mds: expected lockstep");
}

TEST_F(ConvertTest, a_full_disk_leaves_nothing_under_the_output_s_name) {
  const SmallDisk disk(std::int64_t{2} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a file system in memory";
  const auto tokens = random_documents(2'000'000);
  write_dataset(directory_ / "d", tokens, 500'000);
  for (const auto kind : kAllKinds) {
    auto to = options("d", "unused", kind);
    to.out = disk.path() / "out";
    expect_contains(message_of<DataError>([&] { convert(to); }), "free some space");
    EXPECT_TRUE(fs::is_empty(disk.path())) << static_cast<int>(kind);
  }
}

}  // namespace lockstep::testing::convert_test
