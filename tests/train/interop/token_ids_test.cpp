#include "train/interop/token_ids.h"

#include <gtest/gtest.h>

#include "tests/train/log.h"

namespace lockstep::testing::token_ids_test {

class TokenIdsTest : public ::testing::Test {
 protected:
  TokenIdsTest() {
    spit(directory_ / "tokenizer.json",
         R"({"added_tokens": [{"id": 90, "content": "<s>"}, {"id": 91, "content": "</s>"}],
             "model": {"vocab": {"<pad>": 7}}})");
  }
  // Text "bos eos pad" for a model with `vocabulary` tokens.
  std::string ids(std::int64_t vocabulary = 100) {
    const auto found = token_ids(directory_.path(), vocabulary);
    return str(found.bos.dump(), " ", found.eos.dump(), " ", found.pad.dump());
  }
  TemporaryDirectory directory_;
};

TEST_F(TokenIdsTest, come_from_the_files_in_order_of_precedence) {
  EXPECT_EQ(ids(), "null null null");
  spit(directory_ / "special_tokens_map.json", R"({"pad_token": "<pad>", "eos_token": "<s>"})");
  spit(directory_ / "tokenizer_config.json",
       R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null})");
  EXPECT_EQ(ids(), "90 91 7");
  spit(directory_ / "config.json",
       R"({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": null, "loss": NaN})");
  EXPECT_EQ(ids(), "1 [2,91] 7") << "the tokenizer's own end is one of the model's";
  spit(directory_ / "generation_config.json", R"({"bos_token_id": 4, "eos_token_id": [91, 5]})");
  EXPECT_EQ(ids(), "4 [91,5] 7");
}

TEST_F(TokenIdsTest, missing_in_generation_config_come_from_config) {
  spit(directory_ / "config.json", R"({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})");
  for (const char* generation :
       {R"({"pad_token_id": 4})",
        R"({"bos_token_id": null, "eos_token_id": NaN, "pad_token_id": 4})",
        R"({"temperature": NaN, "scores": [Infinity, -Infinity], "pad_token_id": 4})"}) {
    spit(directory_ / "generation_config.json", generation);
    EXPECT_EQ(ids(), "1 2 4") << generation;
  }
  spit(directory_ / "generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(ids(), "1 2 3");
}

TEST_F(TokenIdsTest, outside_the_vocabulary_are_ignored) {
  spit(directory_ / "generation_config.json",
       R"({"bos_token_id": 100, "eos_token_id": [2, 100], "pad_token_id": -1})");
  expect_log("train/token_ids", "an id above the vocabulary", {"bos_token_id is 100"},
             [&] { EXPECT_EQ(ids(), "null 2 null"); });
}

TEST_F(TokenIdsTest, of_an_unreadable_file_are_unknown) {
  spit(directory_ / "generation_config.json", "{");
  spit(directory_ / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_log("train/token_ids", "a damaged file", {"generation_config.json: at byte 1"},
             [&] { EXPECT_EQ(ids(), "null 91 null"); });
}

TEST_F(TokenIdsTest, of_a_tekken_are_its_defaults_if_no_file_names_them) {
  std::filesystem::remove(directory_ / "tokenizer.json");
  spit(directory_ / "tekken.json",
       R"({"config": {"pattern": " ", "default_vocab_size": 21, "default_num_special_tokens": 20,
                      "version": "v3"}, "vocab": [{"rank": 0, "token_bytes": "YQ=="}]})");
  EXPECT_EQ(ids(), "1 2 null");
  spit(directory_ / "tokenizer_config.json", R"({"pad_token": "<pad>", "eos_token": "[INST]"})");
  EXPECT_EQ(ids(), "1 3 11");
}

TEST_F(TokenIdsTest, change_a_generation_config_only_if_they_differ) {
  const std::string text = "{ \"eos_token_id\": 91, \"temperature\": 0.6 }";
  EXPECT_EQ(with_token_ids(text, {{}, 91, {}}), text);
  EXPECT_EQ(Json::parse(with_token_ids(text, {1, Json::Array{91, 2}, {}}), "text").dump(),
            R"({"eos_token_id":[91,2],"temperature":0.6,"bos_token_id":1})");
}

TEST_F(TokenIdsTest, leave_nan_in_a_generation_config_as_it_is) {
  EXPECT_EQ(with_token_ids(R"({"NaN": [NaN, -Infinity], "a": "\"NaN\"", "eos_token_id": NaN})",
                           {{}, 91, {}}),
            "{\n  \"NaN\": [\n    NaN,\n    -Infinity\n  ],\n  \"a\": \"\\\"NaN\\\"\",\n"
            "  \"eos_token_id\": 91\n}\n");
}

}  // namespace lockstep::testing::token_ids_test
