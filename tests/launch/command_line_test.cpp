#include "launch/command_line.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/thread_pool.h"
#include "launch/config.h"
#include "tests/files.h"

namespace lockstep::testing::command_line_test {

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
  EXPECT_EQ(refusal({"compare", "runs/a"}), "unknown verb compare; did you mean report RUN RUN?");
  EXPECT_EQ(refusal({"data", "compare"}), "unknown verb compare; see `lockstep data --help`");
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
  EXPECT_EQ(refusal({"config"}), "config: expected CONFIG.toml, --model or --reference");
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
  EXPECT_EQ(refusal({"data", "pack", "--out", "d"}),
            "INPUT is required; see `lockstep data pack --help`");
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
}

TEST(CommandLine, output_that_cannot_be_written_is_an_error_of_every_verb) {
  const TemporaryDirectory directory;
  spit(directory / "text", "text");
  const auto dataset = (directory / "d").string();
  const std::string packing = str("data pack ", (directory / "text").string(), " --out ", dataset);
  for (const auto& arguments :
       {packing, "data inspect " + dataset, "data verify " + dataset, std::string("--help"),
        std::string("--version"), std::string("data --help"), "config " + kQuickstart}) {
    const auto ended = run_program(arguments + " 2>&1 >/dev/full #");
    EXPECT_EQ(ended.code, 74) << arguments;
    expect_contains(ended.output, "lockstep: standard output: cannot write");
  }
}

TEST(CommandLine, a_number_out_of_its_range_is_refused_by_the_flag_s_name) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> verbs{
      {"generate m --tokens", {"-5", "-1"}},
      {"generate m --seed", {"-1"}},
      {"generate m --threads", {"0", "-3", "100000"}},
      {"eval m --tokens", {"-5"}},
      {"eval m --sequence-length", {"-1", "0"}},
      {"eval m --threads", {"-3", "100000"}},
      {"data pack t --out d --shard-tokens", {"0", "-1", "2147483648", "9999999999"}},
      {"data inspect d --at", {"-1"}},
      {"data inspect d --count", {"-4"}},
      {"plan c --network", {"-1", "0"}},
      {"plan c --storage", {"-1", "0", "nan", "1e9"}}};
  for (const auto& [verb, values] : verbs)
    for (const auto& value : values) {
      std::istringstream words(verb);
      std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
      const auto flag = arguments.back();
      arguments.push_back(value);
      const auto message = refusal(arguments);
      expect_contains(message, str(flag, ": expected at least "));
      expect_contains(message, str(", found ", value, "; see `lockstep "));
    }
  expect_contains(refusal({"eval", "m", "--threads", "100000"}),
                  str("expected at least 1 and at most ", most_threads(), ", found 100000"));
  EXPECT_EQ(refusal({"eval", "m", "--tokens", "many"}),
            "--tokens: expected a number, found many; see `lockstep eval --help`");
  EXPECT_EQ(refusal({"eval", "m", "--tokens", "1.5"}),
            "--tokens: expected a whole number, found 1.5; see `lockstep eval --help`");
}

TEST(CommandLine, a_model_that_no_machine_holds_is_a_configuration_error) {
  const TemporaryDirectory directory;
  for (const char* setting : {"model.layers=1000", "train.micro_batch=1048576"}) {
    std::vector<std::string> arguments{"train", kQuickstart, "--run", (directory / "run").string()};
    for (const char* more :
         {"model.width=1048576", "model.head_size=64", "train.batch_tokens=268435456"})
      arguments.insert(arguments.end(), {"--set", more});
    arguments.insert(arguments.end(), {"--set", setting});
    expect_contains(message_of<ConfigError>([&] { run_command_line(arguments); }), "of memory");
  }
}

TEST(CommandLine, more_threads_than_help_are_refused_with_the_key_s_origin) {
  expect_contains(message_of<ConfigError>([] {
                    run_command_line({"train", kQuickstart, "--set", "train.threads=4096"});
                  }),
                  str("--set: train.threads is 4096, expected at most ", most_threads()));
}

// Root's files, seen by another user.
TEST(CommandLine, what_may_not_be_read_or_made_is_a_data_error_that_names_it) {
  const TemporaryDirectory directory;
  const auto run = directory / "run";
  std::filesystem::create_directories(run / "checkpoints");
  spit(directory / "text", "text");
  chmod(directory.path().c_str(), 0755);
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const AsNobody nobody;
    return message_of<DataError>([&] { run_command_line(arguments); });
  };
  const auto made = (directory / "made").string();
  expect_contains(refused({"data", "pack", (directory / "text").string(), "--out", made}),
                  "cannot create the directory: Permission denied");
  for (const auto& locked : {run / "checkpoints", run}) {
    chmod(locked.c_str(), 0);
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"generate", run.string()},
             {"eval", run.string()},
             {"checkpoint", "list", run.string()},
             {"checkpoint", "export", run.string(), "--out", made},
             {"checkpoint", "import", run.string(), "--out", made}})
      expect_contains(refused(arguments), "Permission denied");
  }
}

TEST(CommandLine, an_export_takes_no_tokenizer_with_more_ids_than_the_model) {
  const std::string model = LOCKSTEP_SOURCE_DIR "/tests/oracle/fixtures/choices";
  const TemporaryDirectory directory;
  const auto from = directory.path().string();
  const auto export_to = [&](const std::string& out) {
    return run_command_line({"checkpoint", "export", model, "--out", (directory / out).string(),
                             "--tokenizer-from", from});
  };
  const auto whole = slurp(model + "/tokenizer.json");
  auto json = Json::parse(whole, "tokenizer.json", 32);
  Json added = json.at("added_tokens");
  Json more = added.as_array().front();
  more.set("id", 400);
  more.set("content", "<|more|>");
  added.push(more);
  json.set("added_tokens", added);
  spit(directory / "tokenizer.json", json.dump());
  const auto said = message_of<DataError>([&] { export_to("made"); });
  expect_contains(said, str("--tokenizer-from ", from, ": the tokenizer "));
  expect_contains(said, " has 401 tokens, but the model's vocabulary is 400; name the tokenizer");
  EXPECT_FALSE(std::filesystem::exists(directory / "made"));
  // What is not read here is copied, for `transformers` may read it.
  for (const bool is_read : {true, false}) {
    spit(directory / "tokenizer.json", is_read ? whole : R"({"model": {"type": "WordPiece"}})");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(export_to(is_read ? "read" : "copied"), 0);
    const auto log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("ids are not compared") == std::string::npos, is_read) << log;
  }
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
       {"lockstep ", "\ncommit    ", "\ncompiler  ", "\nprocessor ", "\ngpu       "})
    expect_contains(text, line);
}

}  // namespace lockstep::testing::command_line_test
