#include "data/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::testing::chat_template_test {

TEST(ChatTemplate, of_a_model_is_found_in_its_files) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(model_template(directory.path()).has_value());
  spit(
      directory / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(model_template(directory.path())->text, "b");
  spit(directory / "tokenizer_config.json", R"({"chat_template": "c"})");
  EXPECT_EQ(model_template(directory.path())->text, "c");
  spit(directory / "chat_template.json", R"({"chat_template": "d"})");
  EXPECT_EQ(model_template(directory.path())->text, "d");
  spit(directory / "chat_template.jinja", "e");
  EXPECT_EQ(model_template(directory.path())->text, "e");
  EXPECT_EQ(model_template(directory.path())->path, directory / "chat_template.jinja");
}

TEST(ChatTemplate, is_recognised_by_its_markers) {
  EXPECT_EQ(recognised_template("{{ '<|im_start|>' + message.role }}{{ '<|im_end|>' }}"), "chatml");
  EXPECT_EQ(recognised_template("<|start_header_id|>{{ role }}<|end_header_id|>x<|eot_id|>"),
            "llama3");
  EXPECT_EQ(recognised_template("[INST] {{ content }} [/INST]"), "");
}

}  // namespace lockstep::testing::chat_template_test
