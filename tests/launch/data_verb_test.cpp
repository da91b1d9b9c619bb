#include "launch/data_verb.h"

#include <csignal>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "data/dataset.h"
#include "tests/captured.h"
#include "tests/wording.h"

namespace lockstep::testing::data_verb_test {

class DataVerbs : public ::testing::Test {
 protected:
  DataVerbs() {
    spit(directory_ / "text", "one|two|three|four");
    pack_.inputs = {(directory_ / "text").string()};
    pack_.out = (directory_ / "d").string();
  }
  // Standard output of a verb that returns `code`.
  static std::string output_of(int code, const std::function<int()>& verb) {
    return stdout_of([&] { EXPECT_EQ(verb(), code); });
  }
  // Packing is a usage error that names `what`.
  void expect_refused(const std::string& what) const {
    expect_refusal<UsageError>("launch/data_verb", what, {what}, [&] { data_pack(pack_); });
  }

  TemporaryDirectory directory_;
  DataPackOptions pack_;
};

TEST_F(DataVerbs, pack_reports_its_datasets_and_verify_accepts_them) {
  pack_.document_separator = std::string(1, '|');
  pack_.validation = "25%";
  std::string text;
  expect_wording("launch/data_verb", "held out",
                 stderr_of([&] { text = output_of(0, [&] { return data_pack(pack_); }); }));
  for (const char* part : {"d/train: ", "d/validation: ", " in 3 documents, 1 shard\n"})
    expect_contains(text, part);
  const auto train = str(pack_.out, "/train");
  expect_wording("launch/data_verb", "whole", output_of(0, [&] { return data_verify({train}); }));
  expect_contains(output_of(0, [&] { return data_inspect({.dataset = train}); }), "vocabulary 257");
}

TEST_F(DataVerbs, inspect_uses_the_tokenizer_beside_a_shard_and_warns_of_another) {
  const std::string fixtures = LOCKSTEP_SOURCE_DIR "/tests/data/tokenizers";
  const auto inspected = [&](const std::string& dataset, const std::string& tokenizer = {}) {
    std::string text;
    auto said = stderr_of([&] {
      text = output_of(
          0, [&] { return data_inspect({.dataset = dataset, .at = {}, .tokenizer = tokenizer}); });
    });
    return std::pair(text, said);
  };
  pack_.tokenizer = fixtures + "/qwen3";
  output_of(0, [&] { return data_pack(pack_); });
  const std::string shard = pack_.out + "/train_000000.bin";
  // The directory has no dataset.json, so the tokenizer is unknown.
  const std::string alone = (directory_ / "alone/tokens.bin").string();
  std::filesystem::create_directory(directory_ / "alone");
  spit(alone, std::string("\x21\0\x22\0", 4));
  expect_contains(inspected(alone).first, "tokens 0 to 2:\n33 34 \n");
  for (const auto& dataset : {pack_.out, shard}) {
    const auto [text, said] = inspected(dataset);
    expect_contains(text, "one|two|three|four");
    EXPECT_EQ(said, "");
  }
  std::filesystem::copy(fixtures + "/qwen3/tokenizer.json", directory_ / "alone");
  const auto [text, said] = inspected(alone);
  EXPECT_EQ(text.find("33 34"), std::string::npos) << text;
  EXPECT_EQ(said, "");
  // Another tokenizer file with the same number of tokens.
  std::filesystem::create_directory(directory_ / "other");
  const auto other = (directory_ / "other/tokenizer.json").string();
  spit(other, slurp(fixtures + "/qwen3/tokenizer.json") + "\n");
  const auto expect_warned = [](const std::string& place, const std::string& warned,
                                const std::string& dataset) {
    expect_contains(warned, str("warning: ", dataset, " "));
    expect_wording("launch/data_verb", str("another tokenizer, ", place, " ", dataset), warned);
  };
  for (const auto& dataset : {pack_.out, shard})
    expect_warned("named for", inspected(dataset, other).second, dataset);
  spit(directory_ / "d/tokenizer.json", slurp(other));
  for (const auto& dataset : {pack_.out, shard}) {
    const auto [shown, warned] = inspected(dataset);
    expect_contains(shown, "one|two|three|four");
    expect_warned("beside", warned, dataset);
  }
}

TEST_F(DataVerbs, verify_lists_damage_of_each_dataset_and_returns_65) {
  output_of(0, [&] { return data_pack(pack_); });
  const auto shard = directory_ / "d/train_000000.bin";
  auto bytes = slurp(shard);
  bytes.back() = 'x';
  spit(shard, bytes);
  std::string text;
  const auto errors = stderr_of([&] {
    text = output_of(65, [&] {
      return data_verify({pack_.out, (directory_ / "nowhere").string()});
    });
  });
  expect_contains(text, "d: 1 shard, 19 tokens, ");
  expect_contains(text, "nowhere: ");
  expect_contains(errors, "train_000000.bin: ");
  expect_contains(errors, "nowhere: ");
  expect_wording("launch/data_verb", "damage", text);
  expect_wording("launch/data_verb", "what is damaged", errors);
}

TEST_F(DataVerbs, a_signal_ends_packing_and_the_message_names_the_leftovers) {
  const auto said = (directory_ / "said").string(), pipe = (directory_ / "pipe").string();
  const auto work = directory_ / "d.tmp";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [signal, code] : std::map<int, int>{{SIGINT, 130}, {SIGTERM, 75}}) {
    std::filesystem::remove_all(work);
    const pid_t child = fork();
    if (child == 0) {
      const int file = open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(file, STDERR_FILENO);
      std::signal(signal, SIG_DFL);  // background jobs of a shell ignore SIGINT
      pack_.inputs = {pipe};         // the pipe has no writer
      try {
        data_pack(pack_);
      } catch (...) {
      }
      _exit(1);
    }
    while (!std::filesystem::exists(work / "command.json"))
      std::this_thread::yield();
    kill(child, signal);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), code);
    expect_contains(slurp(said), "d.tmp ");
    expect_wording("launch/data_verb", str("signal ", signal), slurp(said).substr(9));  // no time
  }
}

TEST_F(DataVerbs, separators_may_be_written_with_escapes) {
  spit(directory_ / "text", std::string("a\n\tb\\c\0d", 8));
  for (const auto& [written, documents] : std::vector<std::pair<std::string, std::size_t>>{
           {R"(\n\t)", 2}, {R"(\\)", 2}, {R"(\0)", 2}, {R"(\x62\x5C)", 2}, {R"(b\x5cc)", 2}}) {
    pack_.out = (directory_ / str("d", written.size(), documents, written[1])).string();
    pack_.document_separator = written;
    expect_contains(output_of(0, [&] { return data_pack(pack_); }),
                    str(" in ", documents, " documents"));
  }
}

TEST_F(DataVerbs, invalid_options_are_rejected_by_name) {
  for (const std::string share : {"0%", "100%", "1", "-1%", "x", "%", "5 %", "0.5%%", "nan"}) {
    pack_.validation = share;
    expect_refused(str("--validation ", share));
  }
  pack_.validation = "";
  for (const std::string separator : {"\\", "\\q", "\\x", "\\x1", "\\x1g"}) {
    pack_.document_separator = separator;
    expect_refused(str("--document-separator ", separator));
  }
  pack_.document_separator = "";
  pack_.tokenizer = "bpe";
  expect_refusal<DataError>("launch/data_verb", "bpe", {"bpe: "}, [&] { data_pack(pack_); });
  pack_.tokenizer = "bytes";
  pack_.out = "";
  expect_refused("--out");
  pack_.inputs.clear();
  expect_refusal<UsageError>("launch/data_verb", "no input", {}, [&] { data_pack(pack_); });
}

}  // namespace lockstep::testing::data_verb_test
