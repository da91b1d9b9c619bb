// A run that is started again resumes bitwise, rejects settings of another run, and never discards
// work.
#include <algorithm>
#include <map>
#include <regex>

#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "core/file.h"
#include "tests/end_to_end/run.h"

namespace lockstep::testing::resume_test {

class Resume : public EndToEnd {};

struct Variant {
  const char* name;
  std::vector<std::string> settings;  // DATA: the directory of datasets
};
std::ostream& operator<<(std::ostream& out, const Variant& v) {
  return out << v.name;
}
class ResumeOf : public EndToEnd, public ::testing::WithParamInterface<Variant> {
 protected:
  // Packs datasets of short documents: text in several shards, and prompts with responses. The
  // masks exclude the prompts. The pairs are so few that a run reads them more than once.
  void pack() {
    std::ofstream text(directory_ / "text"), pairs(directory_ / "pairs.jsonl");
    for (int i = 0; i < 2000; ++i)
      text << "document " << i * 7919 % 1000 << " says " << i % 13 << "\n\n";
    for (int i = 0; i < 150; ++i)
      pairs << R"({"prompt": "what is )" << i << R"(? ", "response": ")" << i * 7919 % 1000
            << "\"}\n";
    text.close();
    pairs.close();
    const auto pack = [&](const char* from, const char* to, std::vector<std::string> more) {
      more.insert(more.begin(),
                  {"data", "pack", path(from), "--out", path(to), "--validation", "10%"});
      run(more, 0);
    };
    pack("text", "text-set", {"--document-separator", "\\n\\n", "--shard-tokens", "4000"});
    pack("pairs.jsonl", "pairs-set", {"--prompt-field", "prompt", "--response-field", "response"});
  }
  std::vector<std::string> variant(const std::string& run,
                                   const std::vector<std::string>& more) const {
    auto settings = GetParam().settings;
    const auto has_data = [](const std::string& setting) {
      return setting.starts_with("data.train=") || setting.starts_with("data.source=");
    };
    if (std::ranges::none_of(settings, has_data))
      settings.emplace_back("data.train=DATA/text-set/train");
    settings.insert(settings.begin(), "data.validation=DATA/text-set/validation");
    for (auto& setting : settings)
      setting = std::regex_replace(setting, std::regex("DATA"), directory_.string());
    settings.emplace_back("schedule.warmup_steps=4");
    return with(with({"train", path("config.toml"), "--extend", "--run", path(run)}, settings),
                more);
  }
};

TEST_P(ResumeOf, a_stopped_run_resumes_bitwise_and_evaluations_and_samples_change_no_bit) {
  pack();
  const std::vector<std::string> watched{"eval.every_steps=5", "eval.tokens=96",
                                         "log.sample_every_steps=4", "log.sample_tokens=6"};
  auto endless = watched;
  endless.emplace_back("train.steps=1000000");
  Process stopped = start(variant("run", endless));
  ASSERT_TRUE(stopped.says("saved step 10 ")) << stopped.err();
  stopped.signal(SIGTERM);
  ASSERT_EQ(stopped.wait(), 75) << stopped.err();
  const auto said = stopped.err();
  std::smatch match;
  ASSERT_TRUE(std::regex_search(said, match, std::regex("after step ([0-9]+); rerun")));
  const auto last = std::stoll(match[1]) + 15;
  auto ending = watched;
  ending.push_back("train.steps=" + std::to_string(last));
  run(variant("run", ending), 0);
  run(variant("whole", ending), 0);
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(std::ssize(losses("run")), last);
  const auto name = checkpoint("run", last).filename().string();
  EXPECT_EQ(state("run", name), state("whole", name));
  EXPECT_FALSE(state("whole", name).empty());
  run(variant("unwatched", {"train.steps=" + std::to_string(last), "data.validation=[]"}), 0);
  EXPECT_EQ(state("unwatched", name), state("whole", name));
}

INSTANTIATE_TEST_SUITE_P(
    variants, ResumeOf,
    ::testing::Values(
        Variant{"fp32", {}},
        Variant{"masked_micro_batches", {"train.micro_batch=3", "data.document_mask=true"}},
        Variant{"bf16_with_masters", {"precision.compute=bf16", "train.micro_batch=3"}},
        Variant{"bf16_rounded_stochastically",
                {"precision.compute=bf16", "precision.master_weights=false",
                 "precision.moments=bf16", "data.document_mask=true"}},
        Variant{"packed_rows_with_masks", {"data.train=DATA/pairs-set/train"}},
        Variant{"examples_with_masks",
                {"data.train=DATA/pairs-set/train", "data.rows=examples", "train.micro_batch=3"}},
        Variant{"packed_rows_of_a_mixture",
                {"data.source=[{path = \"DATA/text-set/train\", weight = 1}, "
                 "{path = \"DATA/pairs-set/train\", weight = 2.5}]"}},
        Variant{"a_mixture_with_shards_in_turns",
                {"data.source=[{path = \"DATA/text-set/train\", weight = 2.5}, "
                 "{path = \"DATA/pairs-set/train\", weight = 1}]",
                 "data.rows=windows", "data.shuffle_shards=2", "data.document_mask=true"}}),
    [](const auto& p) { return std::string(p.param.name); });

// Run `whole` stops once, when its mixture changes. Run `run` stops there and at other steps.
TEST_F(Resume, a_changed_mixture_is_read_in_the_same_order_however_often_the_run_is_stopped) {
  write_tokens(directory_ / "more.bin", 15000);
  const auto source = [&](const char* file, const char* weight) {
    return str("{path = \"", path(file), "\", weight = ", weight, "}");
  };
  const auto mixture = [&](const std::string& sources, const char* steps, const char* name) {
    return with({"train", path("config.toml"), "--extend", "--run", path(name)},
                {"data.source=[" + sources + "]", str("train.steps=", steps),
                 "checkpoint.keep_every_steps=10"});
  };
  const auto one = source("tokens.bin", "1");
  const auto two = source("more.bin", "2.5") + ", " + source("tokens.bin", "1");
  for (const char* name : {"whole", "run"}) {  // one dataset, as data.train and then as a source
    run(with({"train", path("config.toml"), "--extend", "--run", path(name)},
             {"data.train=" + path("tokens.bin"), "train.steps=10"}),
        0);
    run(mixture(one, "20", name), 0);
  }
  const auto said = run(mixture(two, "40", "whole"), 0);
  expect_contains(said, "data: from sample 160 on " + path("more.bin") + " 71.43%, " +
                            path("tokens.bin") + " 28.57% (from its sample 160); before, " +
                            path("tokens.bin") + " 100.00%");
  expect_contains(said, "data.source " + path("more.bin") + ": 71.4% of the samples, ");
  for (const char* steps : {"23", "31", "40"}) {
    const auto again = run(mixture(two, steps, "run"), 0);
    EXPECT_EQ(again.find("data: from sample") != again.npos, std::string(steps) == "23") << again;
  }
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
  // Steps before the change are reproduced.
  auto verify = mixture(two, "40", "whole");
  verify.insert(verify.end(), {"--verify-resume", "25"});
  expect_contains(run(verify, 0), "again from the checkpoint of step 10: losses");
  // Other tokens in the same file are rejected.
  write_tokens(directory_ / "more.bin", 14000);
  const auto refused = run(mixture(two, "41", "run"), 78);
  expect_contains(refused,
                  "the dataset " + path("more.bin") + " differs from the one that was read");
  write_tokens(directory_ / "small.bin", 200);
  auto allowed = mixture(two + ", " + source("small.bin", "2"), "60", "run");
  allowed.emplace_back("--allow-dataset-change");
  expect_contains(run(allowed, 0), "data.source " + path("small.bin") + " is repeated for ");
}

// The steps after the newest checkpoint are computed with the data that they read at first.
TEST_F(Resume, recorded_steps_are_verified_before_a_mixture_changes) {
  write_tokens(directory_ / "more.bin", 15000);
  const auto of = [&](const char* name, const std::string& sources, const char* steps,
                      const std::vector<std::string>& more) {
    auto all = with({"train", path("config.toml"), "--extend", "--run", path(name)},
                    {"data.source=[" + sources + "]", str("train.steps=", steps)});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto source = [&](const char* file, const char* weight) {
    return str("{path = \"", path(file), "\", weight = ", weight, "}");
  };
  const auto one = source("tokens.bin", "1"), other = source("more.bin", "1"),
             two = one + ", " + source("more.bin", "2.5"), three = one + ", " + other;
  run(of("whole", one, "20", {}), 0);
  run(of("whole", three, "40", {}), 0);
  // The checkpoint of the last step is removed, as if the run had been killed.
  const std::vector<std::string> verify{"--verify-resume", "5"};  // they follow step 20
  run(of("run", one, "25", {}), 0);
  fs::remove_all(checkpoint("run", 25));
  const auto said = run(of("run", two, "27", verify), 0);
  expect_contains(said, "computed steps 21 to 25 again from the checkpoint of step 20: losses");
  expect_contains(
      said, "warning: data: " + path("more.bin") + " is a new source; it starts at its sample 0");
  fs::remove_all(checkpoint("run", 27));
  expect_contains(run(of("run", other, "40", verify), 78),
                  "the dataset " + path("more.bin") + " differs from the one that was read");
  auto allowed = verify;
  allowed.emplace_back("--allow-dataset-change");
  const auto refused = run(of("run", other, "40", allowed), 78);
  expect_contains(refused, "warning: data: " + path("tokens.bin") + " is no longer read");
  expect_contains(refused, "--verify-resume: expected dataset " + path("tokens.bin"));
  expect_contains(run(of("run", three, "40", verify), 0),
                  "computed steps 21 to 25 again from the checkpoint of step 20: losses");
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
}

TEST_F(Resume, rows_of_another_length_are_read_in_the_same_order_however_often_the_run_is_stopped) {
  const auto rows_of = [&](const char* name, const char* length, const char* steps) {
    return with(train(name), {str("train.sequence_length=", length), "model.max_positions=128",
                              str("train.steps=", steps)});
  };
  for (const char* name : {"whole", "run"})
    run(rows_of(name, "32", "11"), 0);
  const auto said = run(rows_of("whole", "64", "30"), 0);
  expect_contains(said, "data: from sample 88 on " + path("tokens.bin") +
                            " 100.00% (from its sample 44); before");
  expect_contains(said,
                  "data: rows have 64 tokens from this step on, 32 before; their order differs");
  run(rows_of("whole", "128", "40"), 0);
  for (const char* steps : {"13", "23", "30"})
    run(rows_of("run", "64", steps), 0);
  // Rows of the earlier length are not read again.
  auto verify = rows_of("run", "128", "40");
  verify.insert(verify.end(), {"--verify-resume", "5"});
  expect_contains(run(verify, 78),
                  "--verify-resume: the steps were computed from rows of 64 tokens, but "
                  "train.sequence_length is 128");
  run(rows_of("run", "128", "35"), 0);
  expect_contains(run(verify, 0), "computed steps 31 to 35 again from the checkpoint of step 30");
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
  const auto data = read_manifest(checkpoint("run", 40)).about.at("data");
  EXPECT_EQ(data.at("sequence_length").as_integer(), 128);
  EXPECT_EQ(data.at("first_sample").as_integer(), 11 * 8 + 19 * 4 + 10 * 2);
  EXPECT_EQ(metrics("run", 40).at("tokens_seen").as_integer(), 40 * 256);
}

TEST_F(Resume, a_damaged_checkpoint_is_skipped) {
  run(train("whole"), 0);
  run(train("run", {"--set", "train.steps=20"}), 0);
  damage(checkpoint("run", 20));
  const auto said = run(train("run"), 0);
  EXPECT_NE(said.find("resuming from step 10"), std::string::npos) << said;
  expect_contains(said, "step-00000020 is now step-00000020.damaged-1");
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
}

TEST_F(Resume, a_run_without_a_valid_checkpoint_is_an_error_and_stays_unchanged) {
  run(train("run", {"--set", "train.steps=20"}), 0);
  for (const std::int64_t step : {10, 20})
    damage(checkpoint("run", step));
  const auto before = slurp(directory_ / "run/metrics.jsonl");
  const auto said = run(train("run"), 65);
  for (const char* part : {"step-00000010", "step-00000020", "is damaged",
                           "move checkpoints/ away to start from scratch"})
    expect_contains(said, part);
  EXPECT_EQ(slurp(directory_ / "run/metrics.jsonl"), before);
  fs::rename(directory_ / "run/checkpoints", directory_ / "run/away");
  expect_contains(run(train("run"), 0), "starting from random weights");
}

TEST_F(Resume, a_different_model_or_data_order_is_rejected_and_other_changes_are_logged) {
  run(train("run", {"--set", "train.steps=10"}), 0);
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused{
      {{"model.heads=4"}, "heads = 2, but model.heads is 4"},
      {{"model.layers=3"}, "layers = 2, but model.layers is 3"},
      {{"model.norm_epsilon=0.1"}, "norm_epsilon = 1e-05, but model.norm_epsilon is 0.1"},
      {{"data.seed=77"}, "data.seed is 77, but was 1 up to step 10"},
      {{"data.rows=examples"}, "data.rows is examples, but was windows up to step 10"},
      {{"data.shuffle_shards=1"}, "data.shuffle_shards is 1, but was 0 up to step 10"}};
  for (const auto& [settings, expected] : refused)
    expect_contains(run(with(train("run"), settings), 78), expected);
  const auto said = run(with(train("run"), {"optimizer.learning_rate=0.005"}), 0);
  expect_contains(said, "changed: optimizer.learning_rate: 0.01 -> 0.005");
  expect_contains(said, "changed: train.steps: 10 -> 40");
  EXPECT_EQ(said.find("changed: model"), std::string::npos) << said;
}

TEST_F(Resume, recorded_steps_can_be_verified_before_a_resume) {
  run(train("whole"), 0);
  run(with(train("run"), {"train.steps=25", "train.weight_hash_every_steps=5"}), 0);
  const auto metrics = directory_ / "run/metrics.jsonl";
  const auto recorded = read_all(metrics);
  auto again = with(train("run"), {"train.weight_hash_every_steps=5"});
  again.insert(again.end(), {"--verify-resume", "5"});
  // The newest checkpoint is of the last step, so the verification starts from an earlier one.
  const auto verified =
      "computed steps 21 to 25 again from the checkpoint of step 20: losses, gradient norms and 1 "
      "weight hashes are bit-identical to the recorded ones";
  auto damaged = recorded;
  const auto at_24 = damaged.find("\"loss\":", damaged.find("{\"step\":24,"));
  auto& digit = damaged[damaged.find(',', at_24) - 1];
  digit = digit == '1' ? '2' : '1';
  std::ofstream(metrics) << damaged;
  expect_contains(run(again, 1), "step 24 is not reproduced: loss ");
  EXPECT_EQ(read_all(metrics), damaged);
  EXPECT_FALSE(fs::exists(checkpoint("run", 30)));
  std::ofstream(metrics) << recorded;
  const auto said = run(again, 0);
  expect_contains(said, verified);
  expect_contains(said, "resuming from step 25");
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
  fs::remove(metrics);
  expect_contains(run(again, 78), "has no step after a checkpoint of this phase");
}

TEST_F(Resume, loaded_weights_with_another_hash_than_the_saved_one_are_an_error) {
  run(with(train("run"), {"train.steps=20"}), 0);
  const auto step = checkpoint("run", 20);
  auto manifest = read_manifest(step);
  const auto saved = manifest.about.at("weight_hash").as_string();
  EXPECT_EQ(metrics("run", 20).at("weight_hash").as_string(), saved);
  manifest.about.set("weight_hash", "0123456789abcdef");
  write_text(step / kCheckpointManifestName, manifest.dump());
  const auto said = run(train("run"), 75);
  expect_contains(said, "the weights of step 20 have the hash " + saved +
                            " in memory, but 0123456789abcdef when they were saved");
  manifest.about.set("weight_hash", saved);
  write_text(step / kCheckpointManifestName, manifest.dump());
  run(train("run"), 0);
}

TEST_F(Resume, checkpoints_are_copied_from_a_local_directory_to_the_run_and_an_archive) {
  run(train("whole"), 0);
  const auto tiers = [&](const std::string& steps) {
    return with(train("run"),
                {"train.steps=" + steps, "checkpoint.every_steps=5", "checkpoint.keep_last=1",
                 "checkpoint.keep_every_steps=10", "checkpoint.local_directory=" + path("local"),
                 "checkpoint.archive_directory=" + path("archive")});
  };
  const auto steps_below = [](const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  const auto said = run(tiers("25"), 0);
  expect_contains(said, "saved step 25 in ");
  expect_contains(said, "copied step 25 to " + path("run/checkpoints") + " in ");
  expect_contains(said, "copied step 20 to " + path("archive/run-"));
  const auto local = *fs::directory_iterator(directory_ / "local"),
             archive = *fs::directory_iterator(directory_ / "archive");
  const auto of_machine = steps_below(local);  // the newest two, and the last good one
  EXPECT_EQ(Names(of_machine.end() - 2, of_machine.end()),
            (Names{"step-00000020", "step-00000025"}));
  EXPECT_EQ(steps_below(archive), (Names{"step-00000010", "step-00000020"}));
  EXPECT_EQ(steps_below(directory_ / "run/checkpoints").back(), "step-00000025");
  for (const char* verb : {"verify", "list"})
    run({"checkpoint", verb, archive.path().string()}, 0);
  run({"eval", archive.path().string(), "--tokens", "64"}, 0);
  expect_contains(run({"checkpoint", "prune", archive.path().string()}, 65), "expected a run");

  // The files are as if the host had died before the copy.
  fs::remove_all(checkpoint("run", 25));
  fs::remove(local.path() / "step-00000025/copied");
  const auto resumed = run(tiers("30"), 0);
  expect_contains(resumed, "loaded step 25 from " + local.path().string() + " of each host in ");
  expect_contains(resumed, "copied step 25 to " + path("run/checkpoints") + " in ");
  // Checkpoints that a user removes do not come back from the host, but from the archive they do.
  fs::remove_all(directory_ / "run/checkpoints");
  expect_contains(run(tiers("40"), 0), "copied step 30 back to " + path("run/checkpoints") +
                                           " from " + archive.path().string());
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));

  // If the checkpoint on the host is damaged, the copy of the same save is used.
  const auto file = local.path() / "step-00000040/rank-00000.safetensors";
  flip(file, fs::file_size(file) - 100, 1);
  const auto again = run(tiers("40"), 0);
  expect_contains(again, "step 40: other copies are used, because " + local.path().string());
  expect_contains(again, " came from other hosts and ");
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
}

TEST_F(Resume, a_last_checkpoint_that_is_not_copied_is_an_error) {
  const SmallDisk disk(100'000);  // space for logs, but not for a checkpoint
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), directory_ / "run");
  const auto command =
      with(train("run"), {"train.steps=5", "checkpoint.local_directory=" + path("local")});
  const auto said = run(command, 74);
  expect_contains(said, "saved step 5 in ");
  expect_contains(said, "step 5 is not copied to ");
  expect_contains(said, "No space left on device");
  disk.resize(std::int64_t{10} << 20);
  const auto again = run(command, 0);
  expect_contains(again, "loaded step 5 from ");
  expect_contains(again, "copied step 5 to ");
}

// The run directory gets no checkpoint before the last one. The run is killed after it was saved.
TEST_F(Resume, saves_by_time_stay_on_the_hosts_and_the_run_resumes_from_them) {
  const auto command = [&](const std::string& name, std::int64_t steps) {
    return with(train(name), {"train.steps=" + std::to_string(steps), "schedule.warmup_steps=4",
                              "checkpoint.every_steps=0", "checkpoint.every_seconds=1",
                              "checkpoint.local_directory=" + path("local")});
  };
  Process process = start(command("run", 1'000'000'000));
  ASSERT_TRUE(process.says("saved step ")) << process.err();
  process.signal(SIGKILL);
  ASSERT_EQ(process.wait(), 128 + SIGKILL) << process.err();
  EXPECT_TRUE(checkpoint_steps(directory_ / "run/checkpoints").empty());
  const auto local = *fs::directory_iterator(directory_ / "local");
  const auto saved = checkpoint_steps(local.path());
  ASSERT_FALSE(saved.empty());
  EXPECT_LE(saved.size(), 2U);
  const auto last = saved.back() + 5;
  const auto said = run(command("run", last), 0);
  expect_contains(said, str("loaded step ", saved.back(), " from ", local.path().string()));
  EXPECT_EQ(said.find(str("copied step ", saved.back(), " to ")), said.npos);
  EXPECT_EQ(checkpoint_steps(directory_ / "run/checkpoints"), std::vector{last});
  run(command("whole", last), 0);
  EXPECT_TRUE(losses("run") == losses("whole"));
  const auto name = checkpoint("whole", last).filename().string();
  EXPECT_TRUE(state("run", name) == state("whole", name));
}

TEST_F(Resume, a_local_directory_without_room_for_two_checkpoints_is_an_error) {
  const SmallDisk disk(30'000);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  const auto said =
      run(with(train("run"), {"checkpoint.local_directory=" + disk.path().string()}), 78);
  expect_contains(said, "checkpoint.local_directory: ");
  expect_contains(said, ": two checkpoints of ");
}

TEST_F(Resume, an_imported_run_resumes_from_the_checkpoints_on_its_hosts) {
  run(with(train("run"), {"train.steps=1"}), 0);
  run({"checkpoint", "import", path("run"), "--out", path("imported")}, 0);
  const std::string local = "checkpoint.local_directory=" + path("local");
  run(with(train("imported"), {"train.steps=5", local}), 0);
  // The files are as if the host had died before the copy.
  fs::remove_all(checkpoint("imported", 5));
  for (const auto& of_run : fs::directory_iterator(directory_ / "local"))
    fs::remove(of_run.path() / "step-00000005/copied");
  const auto said = run(with(train("imported"), {"train.steps=8", local}), 0);
  expect_contains(said, "loaded step 5 from ");
  expect_contains(said, "resuming from step 5 of 8");
}

// The archive also has the import, because 0 is a multiple of every interval.
TEST_F(Resume, an_imported_run_may_restart_from_its_import) {
  run(with(train("run"), {"train.steps=1"}), 0);
  run({"checkpoint", "import", path("run"), "--out", path("imported")}, 0);
  const std::vector<std::string> archive{"checkpoint.archive_directory=" + path("archive"),
                                         "checkpoint.keep_every_steps=1000"};
  run(with(with(train("imported"), archive), {"train.steps=5"}), 0);
  fs::remove_all(checkpoint("imported", 5));
  expect_contains(run(with(with(train("imported"), archive), {"train.steps=5"}), 0),
                  "starting from the weights in ");
}

TEST_F(Resume, an_unreadable_archive_is_ignored_only_if_the_run_has_a_checkpoint) {
  fs::create_symlink("loop", directory_ / "loop");
  const std::string archive = "checkpoint.archive_directory=" + path("loop"),
                    milestones = "checkpoint.keep_every_steps=100";
  run(with(train("run"), {"train.steps=5"}), 0);
  const auto said = run(with(train("run"), {"train.steps=8", archive, milestones}), 0);
  expect_contains(said, "checkpoint.archive_directory is ignored: ");
  expect_contains(said, "resuming from step 5 of 8");
  // A run without checkpoints may have some in the archive.
  expect_contains(run(with(train("other"), {archive, milestones}), 65), "loop");
}

TEST_F(Resume, verify_resume_without_a_checkpoint_is_an_error) {
  auto command = train("run");
  command.insert(command.end(), {"--verify-resume", "5"});
  expect_contains(run(command, 78), "--verify-resume: there is no checkpoint in " + path("run"));
}

TEST_F(Resume, unusable_checkpoint_directories_are_reported_at_the_start) {
  const std::string nowhere = "/proc/nowhere";
  expect_contains(run(with(train("run"), {"checkpoint.local_directory=" + nowhere}), 65),
                  nowhere + ": cannot create the directory");
  EXPECT_FALSE(fs::exists(directory_ / "run/metrics.jsonl"));
  const auto said = run(with(train("run"), {"train.steps=5", "checkpoint.keep_every_steps=5",
                                            "checkpoint.archive_directory=" + nowhere}),
                        0);
  expect_contains(said, "warning: checkpoint.archive_directory cannot be used now: " + nowhere);
  expect_contains(said, "warning: step 5 is not copied to " + nowhere);
}

TEST_F(Resume, checkpoint_list_exits_with_the_code_of_bad_data_if_one_is_damaged) {
  run(with(train("run"), {"train.steps=20"}), 0);
  run({"checkpoint", "list", path("run")}, 0);
  damage(checkpoint("run", 10));
  run({"checkpoint", "list", path("run")}, 65);
}

TEST_F(Resume, checkpoints_are_verified_inspected_compared_and_pruned) {
  run(with(train("run"), {"train.steps=20"}), 0);
  run(with(train("again"), {"train.steps=20"}), 0);
  const auto at_10 = checkpoint("run", 10).string(), at_20 = checkpoint("run", 20).string();
  const auto verified = output({"checkpoint", "verify", path("run")}, 0);
  for (const auto& part : {at_10, at_20, std::string("/s  valid")})
    expect_contains(verified, part);
  for (const char* part : {"step 20, saved ", "  data.seed: ", "  configuration.train.steps: 20",
                           "rank-00000.safetensors", "model.norm.weight/adam_m"})
    expect_contains(output({"checkpoint", "inspect", path("run")}, 0), part);
  expect_contains(output({"checkpoint", "diff", path("run"), path("again")}, 0), ", 0 differ");
  expect_contains(output({"checkpoint", "diff", at_10, at_20}, 1), " elements differ, by at most ");
  run({"checkpoint", "diff", at_10, path("nowhere")}, 65);
  const std::vector<std::string> prune{"checkpoint", "prune", path("run"), "--keep-last", "1"};
  auto dry_run = prune;
  dry_run.push_back("--dry-run");
  EXPECT_EQ(output(dry_run, 0), at_10 + "\n");
  EXPECT_TRUE(fs::exists(at_10));
  expect_contains(run({"checkpoint", "prune", path("run")}, 0), "deleted 0 of 2 checkpoints");
  EXPECT_EQ(output(prune, 0), at_10 + "\n");
  EXPECT_FALSE(fs::exists(at_10));
  damage(at_20);
  expect_contains(output({"checkpoint", "verify", at_20}, 65), "  damaged: ");
}

TEST_F(Resume, checkpoints_at_the_interval_and_the_best_stay) {
  run(with(train("run"), {"checkpoint.keep_last=1", "checkpoint.keep_every_steps=20"}), 0);
  EXPECT_FALSE(fs::exists(checkpoint("run", 10)));
  EXPECT_TRUE(fs::exists(checkpoint("run", 20)));
  EXPECT_TRUE(fs::exists(checkpoint("run", 40)));
  expect_contains(run({"checkpoint", "prune", path("run")}, 0),
                  " of 3 checkpoints in " + path("run/checkpoints") +
                      " (keep_last 1, keep_every_steps 20, keep_best 0)");
  EXPECT_TRUE(fs::exists(checkpoint("run", 20)));
  run({"checkpoint", "prune", path("run"), "--keep-every-steps", "0"}, 0);
  const auto good =  // that the newest one names; the one between may have been saved later
      read_manifest(checkpoint("run", 40)).about.at("last_good_checkpoint").as_integer();
  EXPECT_EQ(fs::exists(checkpoint("run", 20)), good == 20);
  EXPECT_TRUE(fs::exists(checkpoint("run", 40)));
  // With this learning rate the first evaluation is the best.
  run(with(train("best"), {"checkpoint.keep_last=1", "checkpoint.keep_best=1",
                           "eval.every_steps=10", "optimizer.learning_rate=3"}),
      0);
  std::map<double, std::int64_t> losses;
  for (const std::int64_t step : {10, 20, 30, 40})
    losses.emplace(metrics("best", step).at("validation_loss").as_double(), step);
  EXPECT_TRUE(fs::exists(checkpoint("best", losses.begin()->second)));
  EXPECT_NE(losses.begin()->second, 40) << "it stays as the newest";
}

TEST_F(Resume, tokens_seen_are_the_sum_of_all_batches) {
  run(with(train("run"), {"train.steps=10"}), 0);
  run(with(train("run"), {"train.steps=20", "train.batch_tokens=512"}), 0);
  EXPECT_EQ(metrics("run", 10).at("tokens_seen").as_integer(), 2560);
  EXPECT_EQ(metrics("run", 20).at("tokens_seen").as_integer(), 2560 + 5120);
}

TEST_F(Resume, a_diverging_run_aborts_and_names_the_last_good_checkpoint) {
  const std::vector<std::string> diverging{"optimizer.learning_rate=100",
                                           "optimizer.weight_decay=100", "train.most_skipped=3",
                                           "checkpoint.every_steps=1", "checkpoint.keep_last=1"};
  run(with(train("run"), {"train.steps=5", "checkpoint.every_steps=1"}), 0);
  const auto said = run(with(train("run"), diverging), 1);
  expect_contains(said, "3 updates in a row were skipped");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(said, match,
                                std::regex("last one at step ([0-9]+); the last good checkpoint is "
                                           "step ([0-9]+) in (.*); to resume from it, move (.*) "
                                           "away")))
      << said;
  // The step that ended the run is in its log.
  EXPECT_TRUE(metrics("run", std::stoll(match[1])).at("skipped").as_bool());
  Process good = start({"eval", match[3], "--tokens", "1024"});
  EXPECT_EQ(good.wait(), 0) << good.err();
  fs::remove_all(fs::path(match[4].str()));
  const auto again = run(with(train("run"), {"optimizer.learning_rate=1e-3"}), 0);
  expect_contains(again, "resuming from step " + match[2].str());
}

// FullDisk has a run on a small disk, which is full until relieve().
class FullDisk : public EndToEnd {
 protected:
  void SetUp() override {
    EndToEnd::SetUp();
    if (!disk_.mounted()) GTEST_SKIP() << "only root may mount a small disk";
    fs::create_directory_symlink(disk_.path(), directory_ / "run");
  }
  void fill(std::int64_t left) {
    std::ofstream out(disk_.path() / "filler", std::ios::binary);
    out << std::string(static_cast<std::size_t>(kBytes - left), 'x');
  }
  void relieve() { fs::remove(disk_.path() / "filler"); }

  static constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  SmallDisk disk_{kBytes};
};

// Signalled has a run whose evaluations take a minute.
class Signalled : public EndToEnd {
 protected:
  Process start_run() {
    write_tokens(directory_ / "long.bin", 40'000'000);
    return start(with(train("run"), {"data.validation=" + path("long.bin"), "eval.every_steps=2",
                                     "eval.tokens=0", "log.every_steps=1"}));
  }
};

TEST_F(Signalled, during_an_evaluation_a_run_saves_and_ends_at_once) {
  Process process = start_run();
  ASSERT_TRUE(process.says("| loss ")) << process.err();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // step 2 takes milliseconds
  const auto begin = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.err();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(fs::exists(checkpoint("run", 2)));
  EXPECT_EQ(losses("run").size(), 2u);
}

TEST_F(Signalled, during_its_start_a_run_ends_with_the_code_of_a_resumable_run) {
  Process process = start_run();
  ASSERT_TRUE(process.says("memory: ")) << process.err();
  process.signal(SIGUSR1);
  EXPECT_EQ(process.wait(), 75) << process.err();
}

TEST_F(FullDisk, a_failed_save_is_reported_and_retried) {
  fill(300'000);  // less than a checkpoint
  Process process = start(with(train("run"), {"train.steps=1000000", "log.tensorboard=false",
                                              "checkpoint.most_failed=1000000"}));
  ASSERT_TRUE(process.says("step 10 is not saved: ")) << process.err();
  relieve();
  ASSERT_TRUE(process.says("saved step ")) << process.err();
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.err();
}

TEST_F(FullDisk, a_failed_last_save_aborts_the_run) {
  fill(300'000);
  const auto said = run(with(train("run"), {"train.steps=20", "log.tensorboard=false"}), 74);
  expect_contains(said, "step 10 is not saved: ");
  expect_contains(said, "No space left on device");
  EXPECT_EQ(losses("run").size(), 20u);
}

// A shorter line may fit after a longer one failed. The next failure is then reported again.
TEST_F(FullDisk, an_unwritable_log_is_reported_once_until_it_is_written_again) {
  fill(32'000);
  Process process = start(with(
      train("run"), {"train.steps=1000000", "checkpoint.every_steps=0", "log.prometheus_file=''"}));
  ASSERT_TRUE(process.says("tfevents")) << process.err();  // the second of two files that grow
  const auto lines = [&] {
    const auto err = process.err();
    std::ptrdiff_t count = 0;
    for (std::size_t at = 0; (at = err.find("| loss ", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  for (const auto before = lines(); lines() < before + 3;)  // each is of ten steps
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  relieve();
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.err();
  const auto said = process.err();
  const auto count = [&](const std::string& pattern) {
    const std::regex line(pattern);
    return std::distance(std::sregex_iterator(said.begin(), said.end(), line), {});
  };
  const auto agains = count("metrics.jsonl is written again");
  EXPECT_GE(agains, 1) << said;
  EXPECT_EQ(count("/metrics.jsonl: .*cannot append: "), agains) << said;
  EXPECT_EQ(count("tfevents.*: cannot append: "), count("TensorBoard's file is written again"))
      << said;
  const auto missing = count("lines of steps \\d+ to \\d+ are missing"),
             single = count("lines of steps (\\d+) to \\1 are missing");
  EXPECT_GT(missing, single) << "every failure was warned of: " << said;
  expect_contains(said, "saved step ");
}

}  // namespace lockstep::testing::resume_test
