// A tiny run, which the tests of whole runs share.
#pragma once

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/end_to_end/process.h"
#include "tests/files.h"

namespace lockstep::testing {

namespace fs = std::filesystem;

// EndToEnd has a directory with a tiny configuration and a dataset of repeated sentences.
class EndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(directory_ / "config.toml") << kConfig;
    write_tokens(directory_ / "tokens.bin", 20000);
  }

  static void write_tokens(const fs::path& path, std::int32_t count) {
    std::ofstream out(path, std::ios::binary);
    const auto word = [&](auto value) {
      out.write(reinterpret_cast<const char*>(&value), sizeof value);
    };
    word(std::int32_t{20240520});
    word(std::int32_t{1});
    word(count);
    for (int i = 3; i < 256; ++i)
      word(std::int32_t{0});
    const std::string text = "the quick brown fox jumps over the lazy dog. ";
    for (std::int32_t i = 0; i < count; ++i)
      word(static_cast<std::uint16_t>(text[static_cast<std::size_t>(i) % text.size()]));
  }

  std::vector<std::string> train(const std::string& run, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"train",    path("config.toml"),
                                       "--run",    path(run),
                                       "--extend",  // tests give it more steps
                                       "--set",    "data.train=" + path("tokens.bin"),
                                       "--set",    "data.validation=" + path("tokens.bin")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  Process start(std::vector<std::string> arguments) const {
    return Process(directory_, std::move(arguments));
  }
  // Runs a command to its end; the exit code must be `expected`. Returns standard error.
  std::string run(std::vector<std::string> arguments, int expected) const {
    Process process = start(std::move(arguments));
    EXPECT_EQ(process.wait(), expected) << process.err();
    return process.err();
  }

  // The same, but returns standard output.
  std::string output(std::vector<std::string> arguments, int expected) const {
    Process process = start(std::move(arguments));
    EXPECT_EQ(process.wait(), expected) << process.err();
    return process.out();
  }

  // The results of each step of a run, without times.
  std::vector<std::string> losses(const std::string& run) const {
    std::ifstream in(directory_ / run / "metrics.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      const Json step = Json::parse(line, "metrics.jsonl");
      std::string text;
      for (const char* key : {"step", "loss", "grad_norm", "loss_z", "grad_norm_z", "learning_rate",
                              "tokens_seen", "valid_tokens"})
        text += step.at(key).dump() + " ";
      lines.push_back(text);
    }
    return lines;
  }
  // Line `step` of metrics.jsonl.
  Json metrics(const std::string& run, std::int64_t step) const {
    std::ifstream in(directory_ / run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (Json json = Json::parse(line, "metrics.jsonl"); json.at("step").as_integer() == step)
        return json;
    ADD_FAILURE() << "no step " << step;
    return {};
  }
  fs::path checkpoint(const std::string& run, std::int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return directory_ / run / "checkpoints" / name;
  }
  static void damage(const fs::path& checkpoint) {
    const auto file = checkpoint / "rank-00000.safetensors";
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(file) - 100);
    bytes.seekg(at);
    const int old = bytes.get();
    bytes.seekp(at);
    bytes.put(static_cast<char>(old ^ 1));
  }
  std::string state(const std::string& run, const std::string& step) const {
    return read_all(directory_ / run / "checkpoints" / step / "rank-00000.safetensors");
  }

  static std::vector<std::string> with(std::vector<std::string> all,
                                       const std::vector<std::string>& settings) {
    for (const auto& setting : settings)
      all.insert(all.end(), {"--set", setting});
    return all;
  }

  static constexpr const char* kConfig = R"(
[model]
family = "llama3"
layers = 2
width = 32
heads = 2
mlp_width = 64
vocabulary = 257
max_positions = 64
[train]
steps = 40
batch_tokens = 256
sequence_length = 32
threads = 2
[optimizer]
learning_rate = 1e-2
[schedule]
kind = "constant"
[eval]
every_steps = 0
[checkpoint]
every_steps = 10
)";
  TemporaryDirectory temporary_;
  const fs::path& directory_ = temporary_.path();
};

}  // namespace lockstep::testing
