// The configurations that come with the program are found by name.
#include "launch/presets.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/wording.h"

namespace lockstep::testing::presets_test {

TEST(Presets, a_name_leads_to_its_file_and_a_path_stays) {
  EXPECT_TRUE(config_file("llama3_8b").string().ends_with("/configs/llama3_8b.toml"));
  EXPECT_TRUE(config_file("qwen2.5_0.5b").string().ends_with("/configs/qwen2.5_0.5b.toml"));
  EXPECT_EQ(config_file("here/llama3_8b"), "here/llama3_8b");
  EXPECT_EQ(config_file("llama3_8b.toml"), "llama3_8b.toml");
  expect_refusal<ConfigError>("launch/presets", "an unknown name",
                              {"llama_8b: no such file", "llama3_8b?", "config --list"},
                              [] { config_file("llama_8b"); });
}

TEST(Presets, are_listed_with_what_they_are) {
  const auto list = list_of_presets();
  for (const char* line : {"gpt2_124m       GPT-2 124M", "quickstart      A byte-level model",
                           "llama3_8b       Llama 3 8B"})
    expect_contains(list, line);
}

}  // namespace lockstep::testing::presets_test
