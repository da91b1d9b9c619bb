#include "train/interop/model_tokenizer.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/data/shards.h"
#include "tests/files.h"

namespace lockstep::testing::model_tokenizer_test {

const std::string kFixture = LOCKSTEP_FIXTURES "/choices";

ModelSource checkpoint(const std::filesystem::path& path, std::int64_t vocabulary) {
  ModelSource source{.form = ModelSource::Form::checkpoint, .path = path, .model = {}};
  source.model.vocabulary = vocabulary;
  return source;
}

TEST(ModelTokenizer, is_found_with_the_run_its_archive_or_the_model) {
  const TemporaryDirectory run;
  const auto step = run / "checkpoints/step-00000001";
  EXPECT_EQ(tokenizer_of(checkpoint(step, 400)), "");
  EXPECT_EQ(tokenizer_of(checkpoint(step, 257)), "bytes");
  EXPECT_THROW(open_tokenizer_of(checkpoint(step, 400), ""), UsageError);
  keep_tokenizer(kFixture, run / "tokenizer");
  keep_tokenizer("bytes", run / "nothing");
  EXPECT_FALSE(path_exists(run / "nothing"));
  EXPECT_TRUE(path_exists(run / "tokenizer/tokenizer_config.json"));
  for (const auto& path : {step, run / "checkpoints/step-00000001/", run / "step-00000001"}) {
    EXPECT_EQ(tokenizer_of(checkpoint(path, 400)), (run / "tokenizer").string()) << path;
    EXPECT_EQ(open_tokenizer_of(checkpoint(path, 400), "")->about().hash,
              open_tokenizer(kFixture)->about().hash);
  }
  const auto model = find_model(kFixture);
  EXPECT_EQ(tokenizer_of(model), kFixture);
}

// A model's directory: its config.json, and files of which only the names matter.
void spit_model(const std::filesystem::path& path, const std::vector<std::string>& names) {
  std::filesystem::create_directories(path);
  for (const char* name : {"config.json", "tokenizer.json"})
    std::filesystem::copy(std::filesystem::path(kFixture) / name, path / name);
  for (const auto& name : names)
    spit(path / name, "of " + path.filename().string());
}

TEST(ModelTokenizer, a_run_keeps_all_files_of_the_model_that_it_starts_from) {
  const TemporaryDirectory directory;
  std::vector<std::string> names;
  for (const std::string name : kTokenizerFiles)
    if (name != "tokenizer.json") names.push_back(name);
  spit_model(directory / "model", names);
  spit_model(directory / "data", {"tokenizer_config.json", "generation_config.json"});
  const auto kept = [&](const char* name) { return slurp(directory / "run" / name); };
  // The data's files, otherwise the model's; generation_config.json is the model's.
  keep_tokenizer(directory / "data", directory / "run", directory / "model");
  for (const auto& name : names)
    EXPECT_EQ(kept(name.c_str()), name == "tokenizer_config.json" ? "of data" : "of model") << name;
  // A resumed run copies its own files; the model is gone.
  std::filesystem::remove_all(directory / "model");
  keep_tokenizer(directory / "run", directory / "run", directory / "model");
  for (const auto& name : names)
    EXPECT_EQ(kept(name.c_str()), name == "tokenizer_config.json" ? "of data" : "of model") << name;
  // A model with another tokenizer adds no files.
  spit_model(directory / "other", {"chat_template.jinja"});
  spit(directory / "other/tokenizer.json", "{}");
  keep_tokenizer(directory / "data", directory / "second", directory / "other");
  EXPECT_FALSE(path_exists(directory / "second/chat_template.jinja"));
  EXPECT_EQ(slurp(directory / "second/generation_config.json"), "of data");
  // The model's tokenizer, if the data name none.
  keep_tokenizer("", directory / "third", directory / "other");
  EXPECT_EQ(slurp(directory / "third/chat_template.jinja"), "of other");
  keep_tokenizer("bytes", directory / "fourth", directory / "other");
  EXPECT_FALSE(path_exists(directory / "fourth"));
}

TEST(ModelTokenizer, ids_only_in_config_json_are_kept) {
  const TemporaryDirectory directory;
  spit_model(directory / "model", {});
  auto config = Json::parse(slurp(directory / "model/config.json"), "config");
  config.set("eos_token_id", Json::Array{5, 7});
  config.set("pad_token_id", 3);
  config.set("bos_token_id", Json());
  spit(directory / "model/config.json", config.dump());
  keep_tokenizer("", directory / "run", directory / "model");
  EXPECT_EQ(Json::parse(slurp(directory / "run/generation_config.json"), "kept").dump(),
            R"({"_from_model_config":true,"eos_token_id":[5,7],"pad_token_id":3})");
  // Ids that generation_config.json lacks, also from run to run.
  spit(directory / "model/generation_config.json",
       R"({"pad_token_id": 4, "eos_token_id": null, "temperature": 0.5, "top_k": NaN})");
  for (const auto& from : {directory / "model", directory / "second"}) {
    keep_tokenizer(from, directory / "second", directory / "model");
    EXPECT_EQ(slurp(directory / "second/generation_config.json"),
              "{\n  \"pad_token_id\": 4,\n  \"eos_token_id\": [\n    5,\n    7\n  ],\n"
              "  \"temperature\": 0.5,\n  \"top_k\": NaN\n}\n");
  }
  // A file that lacks no id is copied unchanged.
  const std::string whole = R"({ "eos_token_id": 7, "pad_token_id": 4, "top_k": NaN })";
  spit(directory / "model/generation_config.json", whole);
  keep_tokenizer("", directory / "third", directory / "model");
  EXPECT_EQ(slurp(directory / "third/generation_config.json"), whole);
}

TEST(ModelTokenizer, with_more_tokens_than_the_model_is_an_error) {
  const auto source = checkpoint("nowhere", 399);
  EXPECT_THROW(open_tokenizer_of(source, kFixture), DataError);
  EXPECT_EQ(open_tokenizer_of(source, "bytes")->about().name, "bytes");
}

TEST(ModelTokenizer, of_a_dataset_is_in_its_directory) {
  const TemporaryDirectory directory;
  LocalFiles files;
  write_dataset(directory / "bytes", random_documents(100), 100);
  EXPECT_EQ(tokenizer_of_dataset(directory / "bytes", files), "bytes");
  EXPECT_EQ(tokenizer_of_dataset(directory / "nowhere", files), "");
  for (const char* shards : {"bytes/part_100.bin", "bytes/part_100.ends", "bytes/*_10*.bin"})
    EXPECT_EQ(tokenizer_of_dataset(directory / shards, files), "bytes") << shards;
  keep_tokenizer(kFixture, directory / "bytes");
  for (const char* data : {"bytes", "bytes/part_100.bin", "bytes/*_10*.bin"})
    EXPECT_EQ(tokenizer_of_dataset(directory / data, files), (directory / "bytes").string());
}

TEST(ModelTokenizer, of_a_tekken_is_kept_and_starts_documents) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "data");
  spit(directory / "data/tekken.json",
       R"({"config": {"pattern": " ", "default_vocab_size": 21, "default_num_special_tokens": 20,
                      "version": "v3"}, "vocab": [{"rank": 0, "token_bytes": "YQ=="}]})");
  keep_tokenizer(directory / "data", directory / "run");
  EXPECT_EQ(tokenizer_in(directory / "run"), directory / "run/tekken.json");
  LocalFiles files;
  const auto what = tokenizer_of_dataset(directory / "run", files);
  EXPECT_EQ(what, (directory / "run").string());
  EXPECT_TRUE(starts_documents(what, *open_tokenizer(what)));
}

// Decided by the post-processor.
TEST(ModelTokenizer, starts_documents_as_transformers_does) {
  const TemporaryDirectory directory;
  const auto said = [&](const std::string& processor) {
    auto json = Json::parse(slurp(kFixture + "/tokenizer.json"), "tokenizer.json", 32);
    json.set("post_processor", Json::parse(processor, "processor"));
    spit(directory / "tokenizer.json", json.dump());
    const auto what = directory.path().string();
    return starts_documents(what, *open_tokenizer(what));
  };
  const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
  const std::string front = R"({"SpecialToken":{"id":"<|endoftext|>","type_id":0}},)" + text;
  const auto single = [](const std::string& parts) {
    return R"({"type":"TemplateProcessing","single":[)" + parts + "]}";
  };
  EXPECT_FALSE(said("null"));
  EXPECT_FALSE(said(R"({"type":"ByteLevel"})"));
  EXPECT_FALSE(said(single(text)));
  EXPECT_TRUE(said(single(front)));
  EXPECT_TRUE(
      said(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + single(front) + "]}"));
  EXPECT_TRUE(starts_documents("bytes", ByteTokenizer()));
}

}  // namespace lockstep::testing::model_tokenizer_test
