#include "launch/command_line.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "launch/config.h"
#include "tests/files.h"

namespace lockstep::testing {
namespace {

const std::string kQuickstart = LOCKSTEP_SOURCE_DIR "/configs/quickstart.toml";

std::string refusal(const std::vector<std::string>& arguments) {
  return message_of<UsageError>([&] { run_command_line(arguments); });
}

// What standard output gets.
std::string output_of(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_command_line(arguments), 0);
  return ::testing::internal::GetCapturedStdout();
}

struct Ended {
  int code = -1;
  std::string output;  // standard output and standard error
};

Ended run_program(const std::string& arguments) {
  Ended ended;
  std::FILE* pipe = popen((LOCKSTEP_BINARY " " + arguments + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ended.output.append(buffer, n);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

TEST(CommandLine, an_unknown_verb_or_flag_is_refused_with_the_nearest) {
  EXPECT_EQ(refusal({"confg"}), "unknown verb confg; did you mean config?");
  EXPECT_EQ(refusal({"config", "a.toml", "--ste=1"}), "unknown flag --ste=1; did you mean --set?");
  EXPECT_EQ(refusal({"--verson"}), "unknown flag --verson; did you mean --version?");
  EXPECT_EQ(refusal({"xylophone"}), "unknown verb xylophone; see `lockstep --help`");
  EXPECT_EQ(refusal({"config", "--xylophone"}),
            "unknown flag --xylophone; see `lockstep config --help`");
}

TEST(CommandLine, what_is_missing_or_too_much_is_refused_with_where_to_look) {
  EXPECT_EQ(refusal({}), "expected a verb; see `lockstep --help`");
  EXPECT_EQ(refusal({"config", "a.toml", "b.toml"}),
            "unexpected argument b.toml; see `lockstep config --help`");
  EXPECT_EQ(refusal({"config"}), "config: expected CONFIG.toml, or --reference");
  expect_contains(refusal({"config", "a.toml", "--set"}), "see `lockstep config --help`");
  EXPECT_EQ(refusal({"config", "a.toml", "--set", "train.steps"}),
            "--set train.steps: expected table.key=value");
}

TEST(CommandLine, a_verb_of_a_verb_has_its_own_hints) {
  EXPECT_EQ(refusal({"data", "pakc"}), "unknown verb pakc; did you mean pack?");
  EXPECT_EQ(refusal({"data"}), "expected a verb; see `lockstep data --help`");
  EXPECT_EQ(refusal({"data", "pack", "a.txt", "--uot", "d"}),
            "unknown flag --uot; did you mean --out?");
  EXPECT_EQ(refusal({"data", "pack", "a.txt"}),
            "--out is required; see `lockstep data pack --help`");
  expect_contains(refusal({"data", "inspect", "a", "--at", "x"}), "see `lockstep data inspect");
}

TEST(CommandLine, help_names_every_verb_and_each_verb_has_its_own) {
  const auto help = output_of({"--help"});
  expect_contains(help, "usage: lockstep VERB [FLAGS]");
  expect_contains(help, "\n  config ");
  const auto of_config = output_of({"config", "--help"});
  expect_contains(of_config, "usage: lockstep config [CONFIG.toml] [FLAGS]");
  expect_contains(of_config, "\nConfiguration:\n");
  expect_contains(of_config, "  --set TABLE.KEY=VALUE ");
  EXPECT_EQ(output_of({"config", "-h"}), of_config);
}

TEST(CommandLine, config_prints_values_and_where_each_came_from) {
  const auto text =
      output_of({"config", kQuickstart, "--set", "train.steps=7", "--set=train.steps=8"});
  expect_contains(text, "\nsteps = 8 ");
  expect_contains(text, "# --set\n");
  expect_contains(text, "configs/quickstart.toml:");
  EXPECT_EQ(resolve_config(text, "printed", {}).values.train.steps, 8);
  EXPECT_EQ(output_of({"config", "--reference"}), configuration_reference());
}

TEST(CommandLine, the_program_ends_with_a_code_that_says_whose_fault_it_was) {
  EXPECT_EQ(run_program("--version").code, 0);
  EXPECT_EQ(run_program("trian").code, 64);
  const auto missing = run_program("config nowhere.toml");
  EXPECT_EQ(missing.code, 78);
  EXPECT_EQ(missing.output.rfind("lockstep: nowhere.toml: ", 0), 0u) << missing.output;
  EXPECT_EQ(run_program("config " + kQuickstart + " >/dev/full").code, 1);
}

TEST(CommandLine, init_from_is_the_key_of_that_name) {
  // A directory whose name is not UTF-8 cannot be kept in a configuration.
  EXPECT_EQ(message_of<ConfigError>([] {
              run_command_line({"train", kQuickstart, "--init-from", "\xff"});
            }),
            "--init-from: train.init_from: not a TOML value: \"\xff\"");
}

TEST(CommandLine, an_environment_variable_sets_a_key_and_a_misspelt_one_is_refused) {
  const auto run_with = [](const char* variable, const std::string& more) {
    setenv(variable, "12", 1);
    auto ended = run_program("config " + kQuickstart + more);
    unsetenv(variable);
    return ended;
  };
  const auto set = run_with("LOCKSTEP_TRAIN_STEPS", "");
  EXPECT_EQ(set.code, 0);
  expect_contains(set.output, "# environment LOCKSTEP_TRAIN_STEPS");
  const auto both = run_with("LOCKSTEP_TRAIN_STEPS", " --set train.steps=5");
  expect_contains(both.output, "\nsteps = 5 ");
  const auto misspelt = run_with("LOCKSTEP_TRAIN_STEP", "");
  EXPECT_EQ(misspelt.code, 78);
  expect_contains(misspelt.output, "did you mean LOCKSTEP_TRAIN_STEPS?");
}

TEST(CommandLine, the_version_says_commit_and_features) {
  const auto text = output_of({"--version"});
  for (const char* line :
       {"lockstep ", "\ncommit    ", "\ncompiler  ", "\ncuda      ", "\nprocessor "})
    expect_contains(text, line);
}

}  // namespace
}  // namespace lockstep::testing
