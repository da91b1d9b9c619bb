#include "data/hub.h"

#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::hub_test {

TEST(Hub, ids_and_addresses_get_a_download_command) {
  // Empty: not the name of a repository.
  const std::pair<const char*, const char*> names[] = {
      {"gpt2", "gpt2"},
      {"gpt2@main", "gpt2 --revision main"},
      {"org/name", "org/name"},
      {"org/name/", "org/name"},
      {"org/name@main", "org/name --revision main"},
      {"org/name@refs/pr/1", "org/name --revision refs/pr/1"},
      {"org/name?x=1", "org/name"},
      {"datasets/org/name", "org/name --repo-type dataset"},
      {"datasets/org/name/", "org/name --repo-type dataset"},
      {"datasets/name@v1", "name --repo-type dataset --revision v1"},
      {"https://huggingface.co/org/name", "org/name"},
      {"https://huggingface.co/org/name/", "org/name"},
      {"https://huggingface.co/org/name?x=1", "org/name"},
      {"https://huggingface.co/org/name#top", "org/name"},
      {"https://huggingface.co/org/name/tree/main?x=1", "org/name"},
      {"https://huggingface.co/datasets/org/name/tree/main", "org/name --repo-type dataset"},
      {"https://hf.co/org/name", "org/name"},
      {"hf://org/name@main/config.json", "org/name --revision main"},
      {"hf://datasets/org/name@main/a.parquet", "org/name --repo-type dataset --revision main"},
      {"org/name/more", ""},
      {"huggingface.co/org/name", ""},  // may be a copy on this machine
      {"org//", ""},
      {"org/name@", ""},
      {"org/name@a b", ""},
      {"./org/name", ""},
      {"/org/name", ""},
      {"org/na me", ""},
      {"datasets/", ""},
      {"", ""}};
  for (const auto& [name, arguments] : names) {
    const auto advice = download_advice(name);
    if (*arguments == '\0')
      EXPECT_EQ(advice, "") << name;
    else
      expect_contains(advice, str("`hf download ", arguments, " --local-dir DIR`"));
  }
  for (const char* address : {"https://huggingface.co/", "s3://org/name", "gpt2"})
    expect_wording("data/hub", address, download_advice(address));
}

TEST(Hub, an_existing_path_is_not_an_id) {
  const TemporaryDirectory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  std::filesystem::create_directories("org/here");
  for (const char* name : {"org", "org/", "org/here/", "org/absent", "org/absent@main"})
    EXPECT_EQ(download_advice(name), "") << name;
  std::filesystem::current_path(before);
}

}  // namespace lockstep::testing::hub_test
