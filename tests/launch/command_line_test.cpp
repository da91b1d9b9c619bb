#include "launch/command_line.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/thread_pool.h"
#include "launch/config.h"
#include "tests/captured.h"
#include "tests/data/shards.h"
#include "tests/wording.h"

namespace lockstep::testing::command_line_test {

const std::string kQuickstart = LOCKSTEP_SOURCE_DIR "/configs/quickstart.toml";

// The words of `line` are a usage error. `line` is the name of its message.
void refused(const std::string& line, std::initializer_list<std::string> pins) {
  std::istringstream words(line);
  const std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
  expect_refusal<UsageError>("launch/command_line", line.empty() ? "(no words)" : line, pins,
                             [&] { run_command_line(arguments); });
}

// Standard output of a command that succeeds.
std::string output_of(const std::vector<std::string>& arguments) {
  return stdout_of([&] { EXPECT_EQ(run_command_line(arguments), 0); });
}

struct Ended {
  int code = -1;
  std::string output;  // standard output and standard error
};

// Runs the program with `variable`, NAME=VALUE, in its environment.
Ended run_program(const std::string& arguments, const std::string& variable = {}) {
  Ended ended;
  const auto command = str(variable, " ", LOCKSTEP_BINARY, " ", arguments, " 2>&1");
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ended.output.append(buffer, n);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

TEST(CommandLine, an_unknown_verb_or_flag_is_rejected_with_the_nearest) {
  refused("confg", {"confg", "config?"});
  refused("compare runs/a", {"compare", "report RUN RUN"});
  refused("data compare", {"compare", "lockstep data --help"});
  refused("data pakc", {"pakc", "pack?"});
  refused("config a.toml --ste=1", {"--ste=1", "--set"});
  refused("data pack a.txt --uot d", {"--uot", "--out"});
  refused("--verson", {"--verson", "--version"});
  refused("xylophone", {"xylophone", "lockstep --help"});
  refused("config --xylophone", {"--xylophone", "lockstep config --help"});
  refused("train a.toml --lr 1", {"--lr", "--set optimizer.learning_rate=VALUE?"});
  refused("train a.toml --batch-size=8", {"--batch-size=8", "--set train.batch_tokens=VALUE?"});
  refused("data pack a.txt --lr 1", {"--lr", "lockstep data pack --help"});
}

TEST(CommandLine, missing_and_surplus_arguments_are_rejected_with_the_help_to_read) {
  refused("", {"lockstep --help"});
  refused("data", {"lockstep data --help"});
  refused("config a.toml b.toml", {"b.toml", "lockstep config --help"});
  refused("config", {"CONFIG.toml", "--model", "--reference"});
  refused("config a.toml --set", {"--set", "lockstep config --help"});
  refused("config a.toml --set train.steps", {"--set train.steps"});
  refused("data pack a.txt", {"--out", "lockstep data pack --help"});
  refused("data pack --out d", {"INPUT", "lockstep data pack --help"});
  refused("data inspect a --at x", {"--at", "lockstep data inspect --help"});
}

TEST(CommandLine, help_lists_the_verbs_and_a_verb_has_its_own_help) {
  const auto help = output_of({"--help"}), of_config = output_of({"config", "--help"});
  expect_contains(help, "\n  config ");
  expect_contains(of_config, "  --set TABLE.KEY=VALUE ");
  EXPECT_EQ(output_of({"config", "-h"}), of_config);
  EXPECT_EQ(output_of({"help"}), help);
  EXPECT_EQ(output_of({"help", "config"}), of_config);
  EXPECT_EQ(output_of({"help", "data", "pack"}), output_of({"data", "pack", "--help"}));
  refused("help xylophone", {"xylophone", "lockstep --help"});
}

// The help of `verb`, such as {"data", "pack"}, then of the verbs below it, as sections of a page.
std::string help_sections(const std::vector<std::string>& verb) {
  std::string title = "lockstep";
  for (const auto& word : verb)
    title += " " + word;
  auto words = verb;
  words.emplace_back("--help");
  const auto help = output_of(words);
  auto text = str("\n## ", title, "\n\n```text\n", help, "```\n");
  std::istringstream lines(help.substr(std::min(help.size(), help.find("\nVerbs:\n") + 1)));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  ");) {
    auto below = verb;
    below.push_back(line.substr(2, line.find(' ', 2) - 2));
    text += help_sections(below);
  }
  return text;
}

TEST(CommandLine, the_page_of_commands_has_the_help_of_every_verb) {
  const std::filesystem::path page = LOCKSTEP_SOURCE_DIR "/docs/commands.md";
  const auto text =
      str("# Commands\n\n`lockstep VERB --help` prints each of these texts.\n"
          "`lockstep completion bash` and `lockstep completion zsh` print a script that completes\n"
          "verbs, flags and keys of the configuration.\n",
          help_sections({}));
  if (is_writing_wording()) spit(page, text);
  EXPECT_TRUE(slurp(page) == text)
      << "docs/commands.md differs; run this test with LOCKSTEP_WORDING=write, read the difference";
}

TEST(CommandLine, config_prints_values_and_their_origins) {
  const auto text =
      output_of({"config", kQuickstart, "--set", "train.steps=7", "--set=train.steps=8"});
  expect_contains(text, "\nsteps = 8 ");
  expect_contains(text, "# --set\n");
  expect_contains(text, "configs/quickstart.toml:");
  EXPECT_EQ(resolve_config(text, "printed", {}).values.train.steps, 8);
  EXPECT_EQ(output_of({"config", "--reference"}), configuration_reference());
}

TEST(CommandLine, the_exit_code_depends_on_the_kind_of_error) {
  const TemporaryDirectory directory;
  const auto nowhere = (directory / "nowhere.toml").string();
  EXPECT_EQ(run_program("--version").code, 0);
  EXPECT_EQ(run_program("trian").code, 64);
  const auto missing = run_program(str("config '", nowhere, "'"));
  EXPECT_EQ(missing.code, 78);
  EXPECT_TRUE(missing.output.starts_with(str("lockstep: ", nowhere, ": "))) << missing.output;
}

TEST(CommandLine, output_that_cannot_be_written_is_an_error_of_every_verb) {
  const TemporaryDirectory directory;
  spit(directory / "text", "text");
  const auto dataset = str("'", (directory / "d").string(), "'");
  const auto packing = str("data pack '", (directory / "text").string(), "' --out ", dataset);
  for (const std::string& arguments :
       std::vector<std::string>{packing, "data inspect " + dataset, "data verify " + dataset,
                                "--help", "--version", "data --help", "config " + kQuickstart}) {
    const auto ended = run_program(arguments + " 2>&1 >/dev/full #");
    EXPECT_EQ(ended.code, 74) << arguments;
    expect_contains(ended.output, "lockstep: standard output: ");
  }
}

TEST(CommandLine, a_number_outside_its_range_is_rejected_by_the_name_of_the_flag) {
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
      std::istringstream words(str(verb, " ", value));
      const std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
      const auto message = message_of<UsageError>([&] { run_command_line(arguments); });
      const auto& flag = arguments[arguments.size() - 2];
      EXPECT_TRUE(message.starts_with(flag + ": ")) << message;
      expect_contains(message, str(" ", value, ";"));
      if (flag != "--threads") expect_wording("launch/command_line", words.str(), message);
    }
  expect_contains(message_of<UsageError>([] {
                    run_command_line({"eval", "m", "--threads", "100000"});
                  }),
                  str(most_threads()));
  refused("eval m --tokens many", {"--tokens", "many", "lockstep eval --help"});
  refused("eval m --tokens 1.5", {"--tokens", "1.5", "lockstep eval --help"});
}

TEST(CommandLine, a_model_larger_than_any_memory_is_a_configuration_error) {
  const TemporaryDirectory directory;
  const auto data = (directory / "data").string();
  write_dataset(data, Tokens(10'000, 65), 10'000);
  for (const char* setting : {"model.layers=1000", "train.micro_batch=1048576"}) {
    std::vector<std::string> arguments{"train", kQuickstart, "--run", (directory / "run").string()};
    for (const std::string& more :
         {str("data.train=", data), str("data.validation=", data), str("model.width=1048576"),
          str("model.head_size=64"), str("train.batch_tokens=268435456")})
      arguments.insert(arguments.end(), {"--set", more});
    arguments.insert(arguments.end(), {"--set", setting});
    expect_contains(message_of<ConfigError>([&] { run_command_line(arguments); }), "16.0 TiB");
  }
}

TEST(CommandLine, too_many_threads_are_rejected_with_the_origin_of_the_key) {
  expect_contains(message_of<ConfigError>([] {
                    run_command_line({"train", kQuickstart, "--set", "train.threads=4096"});
                  }),
                  "--set: train.threads is 4096, ");
}

// Another user reads the files of root.
TEST(CommandLine, a_path_without_permission_is_a_data_error_with_the_reason) {
  const TemporaryDirectory directory;
  const auto run = directory / "run";
  std::filesystem::create_directories(run / "checkpoints");
  spit(directory / "text", "text");
  chmod(directory.path().c_str(), 0555);
  const auto no_access = [&](const std::vector<std::string>& arguments) {
    const AsNobody nobody;
    expect_contains(message_of<DataError>([&] { run_command_line(arguments); }), strerror(EACCES));
  };
  const auto made = (directory / "made").string();
  no_access({"data", "pack", (directory / "text").string(), "--out", made});
  chmod(directory.path().c_str(), 0755);
  for (const auto& locked : {run / "checkpoints", run}) {
    chmod(locked.c_str(), 0);
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"generate", run.string()},
             {"eval", run.string()},
             {"checkpoint", "list", run.string()},
             {"checkpoint", "export", run.string(), "--out", made},
             {"checkpoint", "import", run.string(), "--out", made}})
      no_access(arguments);
  }
}

TEST(CommandLine, export_rejects_a_tokenizer_with_more_tokens_than_the_model) {
  const std::string model = LOCKSTEP_SOURCE_DIR "/tests/oracle/fixtures/choices";
  const TemporaryDirectory directory;
  const auto from = (directory / "from").string();
  std::filesystem::create_directory(from);
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
  spit(from + "/tokenizer.json", json.dump());
  expect_refusal<DataError>("launch/command_line", "--tokenizer-from with 401 tokens",
                            {str("--tokenizer-from ", from), "401", "400"},
                            [&] { export_to("made"); });
  EXPECT_FALSE(std::filesystem::exists(directory / "made"));
  // A tokenizer that Lockstep cannot read is copied, because `transformers` may read it.
  for (const bool is_read : {true, false}) {
    spit(from + "/tokenizer.json", is_read ? whole : R"({"model": {"type": "WordPiece"}})");
    const auto log = stderr_of([&] { EXPECT_EQ(export_to(is_read ? "read" : "copied"), 0); });
    EXPECT_EQ(log.find("warning: ") == std::string::npos, is_read) << log;
    if (!is_read) expect_wording("launch/command_line", "--tokenizer-from that is not read", log);
  }
}

TEST(CommandLine, init_from_sets_the_key_of_that_name) {
  // A directory whose name is not UTF-8 cannot be kept in a configuration.
  expect_contains(message_of<ConfigError>([] {
                    run_command_line({"train", kQuickstart, "--init-from", "\xff"});
                  }),
                  "--init-from: train.init_from: ");
}

TEST(CommandLine, an_environment_variable_sets_a_key_and_a_misspelt_one_is_rejected) {
  const auto run_with = [](const char* variable, const std::string& more) {
    return run_program("config " + kQuickstart + more, str(variable, "=12"));
  };
  const auto set = run_with("LOCKSTEP_TRAIN_STEPS", "");
  EXPECT_EQ(set.code, 0);
  expect_contains(set.output, "# environment LOCKSTEP_TRAIN_STEPS");
  const auto both = run_with("LOCKSTEP_TRAIN_STEPS", " --set train.steps=5");
  expect_contains(both.output, "\nsteps = 5 ");
  const auto misspelt = run_with("LOCKSTEP_TRAIN_STEP", "");
  EXPECT_EQ(misspelt.code, 78);
  expect_contains(misspelt.output, "LOCKSTEP_TRAIN_STEPS?");
}

TEST(CommandLine, the_version_shows_commit_and_features) {
  const auto text = output_of({"--version"});
  for (const char* line :
       {"lockstep ", "\ncommit    ", "\ncompiler  ", "\ncpu       ", "\ngpu       "})
    expect_contains(text, line);
}

}  // namespace lockstep::testing::command_line_test
