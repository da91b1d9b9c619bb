// `lockstep ctl`: what it does to a run while it trains is what the run would be with that history.
#include <algorithm>
#include <csignal>
#include <sys/stat.h>

#include "tests/end_to_end/run.h"

namespace lockstep::testing::ctl_test {

class Ctl : public EndToEnd {
 protected:
  void SetUp() override {
    EndToEnd::SetUp();
    fs::create_directories(directory_ / "ctl");
    write_tokens(directory_ / "more.bin", 21000);
  }
  // Arguments of a run that trains longer than any test.
  std::vector<std::string> long_run(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> all{"train",
                                 path("config.toml"),
                                 "--run",
                                 path(name),
                                 "--set",
                                 "train.steps=10000000",
                                 "--set",
                                 "checkpoint.every_steps=200",
                                 "--set",
                                 "log.every_steps=1000",
                                 "--set",
                                 "log.tensorboard=false",
                                 "--set",
                                 "data.source=[{path=\"" + path("tokens.bin") +
                                     "\",weight=1},{path=\"" + path("more.bin") + "\",weight=2}]"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Sends a command to the run "run", checks its exit code, and returns both outputs.
  std::string ctl(std::vector<std::string> words, int expected = 0) const {
    words.insert(words.begin(), {"ctl", path("run")});
    Process process(directory_ / "ctl", words);
    EXPECT_EQ(process.wait(), expected) << process.out() << process.err();
    return process.out() + process.err();
  }
  fs::path control(const std::string& name) const { return directory_ / "run/control" / name; }
  void write_request(const std::string& number, const std::string& text) const {
    std::ofstream(control("temporary")) << text;
    fs::rename(control("temporary"), control(number + ".request"));
  }
  // The outcome and the message of an answer, which must arrive within a minute.
  std::string answer(const std::string& number) const {
    for (int i = 0; i < 6000 && !fs::exists(control(number + ".answer")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto json = Json::parse(read_all(control(number + ".answer")), "answer " + number);
    return json.at("outcome").as_string() + ": " + json.at("message").as_string();
  }
  std::int64_t step_of(const std::string& number) const {
    return Json::parse(read_all(control(number + ".answer")), number).at("step").as_integer();
  }
  Json amendments() const {
    return Json::parse(read_all(directory_ / "run/amendments.json"), "file").at("amendments");
  }
  static std::string well_formed(std::int64_t number, const std::string& command) {
    return str(R"({"number":)", number, R"(,"command":")", command,
               R"(","step":0,"skip":"","settings":[],"target":"","dry_run":false,)",
               R"("user":"u","host":"h","time":1})");
  }
};

// The reference run has the changes as [[phase]], skips the same steps, is not killed, and never
// goes back.
TEST_F(Ctl, ten_actions_and_a_kill_equal_a_run_that_was_started_with_their_history) {
  auto process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("saved step 200 ")) << process->err();
  expect_contains(ctl({"save"}), "it is kept until");
  const auto saved = step_of("000001");
  expect_contains(ctl({"set", "optimizer.learning_rate=5e-3", "optimizer.weight_decay=0.2"}),
                  "in effect after step ");
  ctl({"pause"});
  expect_contains(ctl({"status"}), "paused          yes");
  ctl({"set", "data.source=[{path=\"" + path("tokens.bin") + "\",weight=3},{path=\"" +
                  path("more.bin") + "\",weight=1}]"});
  const auto before_kill = step_of("000004");
  ASSERT_TRUE(process->says(str("saved step ", before_kill, " "))) << process->err();
  process->signal(SIGKILL);
  process->wait();
  process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("resuming from step ")) << process->err();
  ctl({"set", "train.batch_tokens=512"});
  const std::string skip = str(saved + 30, "..", saved + 41);
  expect_contains(ctl({"rollback", str(saved), "--skip", skip}, 1), "pass --yes");
  expect_contains(ctl({"rollback", str(saved), "--skip", skip, "--yes"}), "went back to step");
  EXPECT_TRUE(fs::exists(directory_ / "run/metrics.before-1.jsonl"));
  ctl({"set", "schedule.kind=constant", "optimizer.clip_norm=0.5", "log.every_steps=500"});
  ctl({"release", str(saved)});
  // The changes before the rollback are of later steps. The run has to reach them.
  const auto last_change = [&] {
    std::int64_t last = 0;
    const auto all = amendments();
    for (const Json& one : all.as_array())
      if (one.find("settings") != nullptr) last = std::max(last, one.at("at_step").as_integer());
    return last;
  }();
  for (std::int64_t step = 0; step < last_change + 20;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto lines = losses("run");
    step = lines.empty() ? 0 : std::stoll(lines.back());
  }
  const auto log = ctl({"log"});
  for (const char* words :
       {"save: taken", "pause: done", "set train.batch_tokens=512: done", "release", "rollback"})
    expect_contains(log, words);
  expect_contains(ctl({"stop"}), "the run ends");
  EXPECT_EQ(process->wait(), 130);
  const auto live = losses("run");
  const auto end = std::stoll(live.back());

  std::vector<std::pair<std::int64_t, std::string>> phases;
  const auto all = amendments();
  for (const Json& one : all.as_array()) {
    if (one.find("settings") == nullptr) continue;
    std::string text;
    for (const Json& setting : one.at("settings").as_array()) {
      auto words = setting.as_string();
      if (words == "schedule.kind=constant") words = "schedule.kind='constant'";
      text += words + "\n";
    }
    phases.emplace_back(one.at("at_step").as_integer(), text);
  }
  EXPECT_EQ(phases.size(), 4u);
  std::ranges::sort(phases);
  // The last phase lets the reference save the same step.
  phases.emplace_back(end, "train.most_skipped = 11\n");
  for (const auto& [step, text] : phases)
    std::ofstream(directory_ / "config.toml", std::ios::app)
        << "[[phase]]\nfrom_step = " << step << "\n"
        << text;
  // --set would hide the mixture of the phases.
  auto command = long_run("reference", {"--skip-steps", skip});
  const auto source = std::ranges::find_if(
      command, [](const auto& word) { return word.starts_with("data.source="); });
  const std::string sources = "\n[data]\nsource" + source->substr(source->find('=')) + "\n";
  command.erase(source - 1, source + 1);
  auto config = read_all(directory_ / "config.toml");
  config.insert(config.find("[optimizer]"), sources.substr(1));
  std::ofstream(directory_ / "config.toml") << config;
  Process reference(directory_, command);
  ASSERT_TRUE(reference.says(str("saved step ", end, " "))) << reference.err();
  reference.signal(SIGKILL);
  reference.wait();
  auto whole = losses("reference");
  whole.resize(live.size());
  EXPECT_EQ(live, whole);
  EXPECT_EQ(state("run", checkpoint("run", end).filename()),
            state("reference", checkpoint("run", end).filename()));
}

TEST_F(Ctl, refuses_with_the_reason_and_changes_nothing) {
  const Process process(directory_, long_run("run"));
  ASSERT_TRUE(process.says("saved step 200 ")) << process.err();
  const std::tuple<std::vector<std::string>, int, const char*> refused[] = {
      {{"set", "model.width=64"}, 1, "model.width: cannot change while the run trains"},
      {{"set", "precision.compute=bf16"}, 1, "cannot change while the run trains"},
      {{"set", "layout.shard=2"}, 1, "add a [[phase]] to its configuration"},
      {{"set", "train.seed=2"}, 1, "cannot change while the run trains"},
      {{"set", "optimizer.lr=1"}, 78, "did you mean optimizer.learning_rate?"},
      {{"set", "optimizer.learning_rate=fast"}, 1, "expected a number"},
      {{"set", "optimizer.learning_rate"}, 64, "expected table.key=value"},
      {{"set", "data.source=[{path=\"" + path("tokens.bin") + "\",weight=3}]"},
       1,
       "the sources that the run reads"},
      {{"set", "optimizer.beta1=0.8", "--at", "1"}, 1, "the run is at step"},
      {{"set", "optimizer.beta1=0.8", "--at", "10000000"}, 1, "has only 10000000 steps"},
      {{"rollback", "7", "--yes"}, 1, "no checkpoint of step 7; choose one of steps"},
      {{"rollback", "soon", "--yes"}, 64, "expected a step"},
      {{"release", "200"}, 1, "no checkpoint of step 200 is kept by `save`; kept steps: none"},
      {{"resume"}, 1, "the run is not paused"},
      {{"drain", "host7"}, 1, "no supervisor takes requests of this run"},
      {{"pasue"}, 64, "did you mean pause?"},
      {{"save", "now"}, 64, "expected the form"},
      {{"save", "--at", "7"}, 64, "only `set` has it"}};
  for (const auto& [words, code, reason] : refused)
    expect_contains(ctl(words, code), reason);
  expect_contains(ctl({"set", "optimizer.beta1=0.8", "--dry-run"}), "would be accepted");
  EXPECT_FALSE(fs::exists(directory_ / "run/amendments.json"));
}

TEST_F(Ctl, files_that_are_no_requests_are_refused_and_harm_nothing) {
  Process process(directory_, long_run("run"));
  ASSERT_TRUE(process.says("saved step 200 ")) << process.err();
  fs::create_directory(control("000001.request"));
  write_request("000002", "{\"number\": ");
  write_request("000003", std::string(1 << 20, 'x'));
  ASSERT_EQ(mkfifo(control("000004.request").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", control("000005.request"));
  write_request("000006", well_formed(7, "pause"));
  write_request("000007", well_formed(7, "explode"));
  write_request("000008", std::string(1000, '['));
  write_request("000009", R"({"number":9,"command":"save","settings":7})");
  write_request("99999999", well_formed(99999999, "stop"));
  write_request("12", well_formed(12, "stop"));
  write_request("-00001", well_formed(1, "stop"));
  for (const char* number :
       {"000001", "000002", "000003", "000004", "000005", "000006", "000007", "000008", "000009"})
    expect_contains(answer(number), "refused: ");
  expect_contains(answer("000003"), "000003.request");
  expect_contains(answer("000006"), "number is 7, expected 6");
  expect_contains(answer("000007"), "unknown command \"explode\"");
  write_request("000020", well_formed(20, "pause"));
  expect_contains(answer("000020"), "done: paused");
  write_request("000015", well_formed(15, "stop"));
  expect_contains(answer("000015"), "refused: out of order: expected a number above 20");
  expect_contains(ctl({"resume"}), "done: training continues");
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
}

TEST_F(Ctl, a_run_that_does_not_train_takes_no_requests_and_leaves_none) {
  run(train("run"), 0);
  expect_contains(ctl({"save"}, 75), "no process trains in ");
  expect_contains(ctl({"status"}), "none trains in this directory");
  EXPECT_FALSE(fs::exists(control("000001.request")));
  write_request("000001", well_formed(1, "stop"));  // sent by hand
  const Process process(directory_, long_run("run", {"--extend", "--allow-dataset-change"}));
  expect_contains(answer("000001"), "refused: it was sent to an earlier start of the run");
  expect_contains(ctl({"log"}), "sent to an earlier start");
}

// A kill between the record of an action and its end; the next start takes it again, once.
TEST_F(Ctl, an_action_that_a_death_interrupts_is_taken_again_once) {
  auto process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("saved step 200 ")) << process->err();
  expect_contains(ctl({"set", "optimizer.learning_rate=5e-3", "--no-wait"}), "sent request 1");
  ASSERT_TRUE(process->says("request 1 after step ")) << process->err();
  process->signal(SIGKILL);
  process->wait();
  process = std::make_unique<Process>(directory_, long_run("run"));
  expect_contains(answer("000001"), "done: in effect after step ");
  EXPECT_EQ(amendments().as_array().size(), 1u);
  ctl({"save"});
  const auto saved = step_of("000002");
  ctl({"rollback", str(saved), "--yes", "--no-wait"});
  ASSERT_TRUE(process->says("request 3 after step ")) << process->err();
  process->signal(SIGKILL);
  process->wait();
  process = std::make_unique<Process>(directory_, long_run("run"));
  expect_contains(answer("000003"), str("done: the run went back to step ", saved));
  ctl({"save"});
  process->signal(SIGKILL);
  process->wait();
  process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("resuming from step ")) << process->err();
  EXPECT_EQ(process->err().find("went back"), std::string::npos) << "never twice";
  EXPECT_FALSE(fs::exists(directory_ / "run/metrics.before-2.jsonl"));
}

// The run cannot go back to a damaged checkpoint. The next start resumes from the newest one.
TEST_F(Ctl, an_action_that_cannot_be_carried_out_does_not_keep_the_run_from_starting) {
  auto process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("saved step 200 ")) << process->err();
  ctl({"save"});
  const auto saved = step_of("000001");
  damage(checkpoint("run", saved));
  expect_contains(ctl({"rollback", str(saved), "--yes"}, 1), "failed: ");
  EXPECT_EQ(process->wait(), 75) << process->err();
  process = std::make_unique<Process>(directory_, long_run("run"));
  ASSERT_TRUE(process->says("resuming from step ")) << process->err();
  EXPECT_FALSE(fs::exists(directory_ / "run/metrics.before-1.jsonl"));
}

TEST_F(Ctl, two_senders_get_their_own_numbers_and_answers) {
  const Process process(directory_, long_run("run"));
  ASSERT_TRUE(process.says("saved step 200 ")) << process.err();
  std::vector<std::unique_ptr<Process>> senders;
  for (int i = 0; i < 4; ++i) {
    const auto directory = directory_ / str("sender-", i);
    fs::create_directory(directory);
    senders.push_back(
        std::make_unique<Process>(directory, std::vector<std::string>{"ctl", path("run"), "save"}));
  }
  for (auto& sender : senders) {
    EXPECT_EQ(sender->wait(), 0) << sender->err();
    expect_contains(sender->out(), "done: saved step ");
  }
  const auto log = ctl({"log"});
  for (const char* number : {"1", "2", "3", "4"})
    expect_contains(log, str("  ", number, "  "));
  expect_contains(ctl({"status"}), "kept by save");
}

}  // namespace lockstep::testing::ctl_test
