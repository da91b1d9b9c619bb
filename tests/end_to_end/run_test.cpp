// A run from the command line learns, stops at a signal, resumes bitwise, and rejects wrong input.
#include "tests/end_to_end/run.h"

#include <cstring>
#include <gtest/gtest.h>

namespace lockstep::testing::run_test {

TEST_F(EndToEnd, a_run_learns_saves_evaluates_and_generates) {
  run(train("run"), 0);
  EXPECT_EQ(losses("run").size(), 40u);
  Process eval = start({"eval", path("run"), "--data", path("tokens.bin"), "--tokens", "2048"});
  ASSERT_EQ(eval.wait(), 0) << eval.err();
  EXPECT_LT(Json::parse(eval.out(), "eval").at("loss_nats").as_double(), 2.5);
  const std::vector<std::string> generate{"generate", path("run"), "--prompt",
                                          "the ",     "--tokens",  "20"};
  Process first = start(generate);
  ASSERT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(first.out().rfind("the ", 0), 0u) << first.out();
  const auto text = first.out();
  Process second = start(generate);
  second.wait();
  EXPECT_EQ(second.out(), text);
}

TEST_F(EndToEnd, nan_weights_are_an_error_that_names_the_model) {
  run(train("run", {"--set", "train.steps=1"}), 0);
  const auto model = path("model");
  run({"checkpoint", "export", path("run"), "--out", model, "--dtype", "fp32"}, 0);
  auto bytes = read_all(directory_ / "model/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header + header), bytes.end(),
            '\xff');
  spit(directory_ / "model/model.safetensors", bytes);
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"eval", model, "--data", path("tokens.bin"), "--tokens", "1024"},
        {"generate", model}}) {
    const auto refusal = run(verb, 65);
    expect_contains(refusal, model);
    expect_contains(refusal, "nan");
  }
}

TEST_F(EndToEnd, each_command_with_a_model_names_unsupported_formats) {
  const auto quantised = path("quantised"), adapter = path("adapter");
  fs::create_directory(quantised);
  spit(quantised + "/config.json",
       R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 4, "n_head": 1, "n_positions": 8,
           "vocab_size": 300, "quantization_config": {"quant_method": "gptq"}})");
  fs::create_directory(adapter);
  spit(adapter + "/adapter_config.json", "{}");
  const std::pair<std::string, const char*> models[] = {
      {"meta-llama/Llama-3.1-8B", "hf download meta-llama/Llama-3.1-8B --local-dir DIR"},
      {quantised, "quantization_config: the weights are quantised (quant_method is 'gptq')"},
      {adapter, "adapter_config.json"}};
  for (const auto& [model, expected] : models)
    for (const std::vector<std::string>& verb :
         {train("run", {"--init-from", model}),
          {"eval", model, "--data", path("tokens.bin")},
          {"eval", model, "--choices", path("choices.jsonl")},
          {"generate", model},
          {"config", "--model", model},
          {"checkpoint", "export", model, "--out", path("out")},
          {"checkpoint", "import", model, "--out", path("imported")}})
      expect_contains(run(verb, 65), expected);
  run(train("source", {"--set", "train.steps=1"}), 0);
  const auto export_with = [&](const std::string& from) {
    return run(
        {"checkpoint", "export", path("source"), "--out", path("out"), "--tokenizer-from", from},
        65);
  };
  expect_contains(export_with(models[0].first), models[0].second);
  expect_contains(export_with(path("config.toml")), "holds no tokenizer; expected a directory");
  const std::vector<std::string> hub{"--tokenizer", models[0].first};
  expect_contains(run({"generate", path("source"), hub[0], hub[1]}, 65), models[0].second);
}

TEST_F(EndToEnd, a_signal_stops_a_run_and_a_killed_run_resumes_bitwise) {
  run(train("whole"), 0);
  for (const auto& [number, code] : {std::pair{SIGTERM, 75}, {SIGUSR1, 75}, {SIGINT, 130}}) {
    const auto name = "stopped-" + std::to_string(number);
    const std::vector<std::string> slow{"--set", "train.steps=100000"};
    Process process = start(train(name, slow));
    ASSERT_TRUE(process.says("saved step 10 ")) << process.err();
    process.signal(number);
    EXPECT_EQ(process.wait(), code) << process.err();
    EXPECT_NE(process.err().find("stopped by a signal after step"), std::string::npos);
  }
  // Killed without warning, at some step after the tenth: unsaved steps are computed again.
  Process killed = start(train("killed"));
  ASSERT_TRUE(killed.says("saved step 10 ")) << killed.err();
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.wait(), 128 + SIGKILL);
  run(train("killed"), 0);
  EXPECT_EQ(losses("killed"), losses("whole"));
  EXPECT_EQ(state("killed", "step-00000040"), state("whole", "step-00000040"));
  EXPECT_FALSE(state("whole", "step-00000040").empty());
}

TEST_F(EndToEnd, changed_data_are_rejected_unless_allowed) {
  run(train("run", {"--set", "train.steps=10"}), 0);
  write_tokens(directory_ / "tokens.bin", 21000);
  const auto said = run(train("run"), 78);
  EXPECT_NE(said.find("--allow-dataset-change"), std::string::npos) << said;
  run(train("run", {"--allow-dataset-change"}), 0);
}

TEST_F(EndToEnd,
       validation_data_of_another_tokenizer_are_rejected_and_the_training_data_are_reported) {
  spit(directory_ / "text.txt", std::string(4000, 'x'));
  run({"data", "pack", path("text.txt"), "--out", path("bytes")}, 0);
  expect_contains(run(train("run", {"--set", "data.validation=" + path("bytes")}), 78),
                  "bytes separates documents by token 256");
  EXPECT_FALSE(fs::exists(directory_ / "run")) << "of a run that never was";
  expect_contains(run(train("run", {"--set", "train.steps=1"}), 0),
                  "data.validation equals data.train");
}

TEST_F(EndToEnd, the_saved_configuration_of_a_run_resumes_the_run) {
  run(train("run", {"--set", "train.steps=10"}), 0);
  const auto said =
      run({"train", path("run/config.toml"), "--set", "train.steps=12", "--extend"}, 0);
  EXPECT_NE(said.find("resuming from step 10 of 12"), std::string::npos) << said;
  EXPECT_EQ(losses("run").size(), 12u);
}

TEST_F(EndToEnd, one_process_at_a_time_trains_in_a_directory) {
  Process first = start(train("run", {"--set", "train.steps=100000"}));
  ASSERT_TRUE(first.says("saved step 10 ")) << first.err();
  const auto second_directory = directory_ / "second";
  fs::create_directories(second_directory);
  Process second(second_directory, train("run"));
  EXPECT_EQ(second.wait(), 75);
  EXPECT_NE(second.err().find(str("(pid ", first.pid(), " on host ")), std::string::npos)
      << second.err();
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 75);
}

TEST_F(EndToEnd, a_run_starts_from_the_weights_of_another) {
  run(train("first", {"--set", "train.steps=20"}), 0);
  const std::vector<std::string> from{"--set", "train.init_from=" + path("first"),
                                      "--set", "optimizer.learning_rate=0",
                                      "--set", "train.steps=1"};
  run(train("second", from), 0);
  Process a = start({"eval", path("first"), "--tokens", "1024"});
  ASSERT_EQ(a.wait(), 0) << a.err();
  const double expected = Json::parse(a.out(), "eval").at("loss_nats").as_double();
  Process b = start({"eval", path("second"), "--tokens", "1024"});
  ASSERT_EQ(b.wait(), 0) << b.err();
  EXPECT_EQ(Json::parse(b.out(), "eval").at("loss_nats").as_double(), expected);
  auto other = from;
  other.insert(other.end(), {"--set", "model.layers=3"});
  const auto said = run(train("third", other), 78);
  EXPECT_NE(said.find("layers = 2, but model.layers is 3"), std::string::npos) << said;
  const auto scaled = run(
      with(train("fourth", from), {"model.rope_scaling_factor=8", "model.rope_scaling_context=8"}),
      78);
  EXPECT_NE(scaled.find("rope_scaling_factor = 1, but model.rope_scaling_factor is 8"),
            std::string::npos)
      << scaled;
}

TEST_F(EndToEnd, an_evaluation_reads_at_most_the_requested_tokens) {
  run(train("run", {"--set", "train.steps=1"}), 0);
  const auto tokens = [&](const char* most) {
    Process eval = start({"eval", path("run"), "--data", path("tokens.bin"), "--sequence-length",
                          "32", "--tokens", most});
    EXPECT_EQ(eval.wait(), 0) << eval.err();
    return Json::parse(eval.out(), "eval").at("tokens").as_integer();
  };
  EXPECT_EQ(tokens("100"), 96);
  EXPECT_EQ(tokens("5000"), 4992);  // not a multiple of the windows read at once
  EXPECT_EQ(tokens("1"), 32);
  EXPECT_EQ(tokens("0"), 19968);
}

// MPI itself has one rank.
TEST_F(EndToEnd, leftover_variables_of_mpirun_are_rejected) {
  setenv("LSAN_OPTIONS", "detect_leaks=0", 1);  // NOLINT(concurrency-mt-unsafe) Open MPI leaks
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);       // NOLINT(concurrency-mt-unsafe)
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);       // NOLINT(concurrency-mt-unsafe)
  const auto said = run(train("run"), 78);
  unsetenv("OMPI_COMM_WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe)
  unsetenv("OMPI_COMM_WORLD_RANK");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_NE(said.find("mpirun started rank 1 of 4"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(path("run")));
  setenv("PMIX_NAMESPACE", "prterun-1@1", 1);  // NOLINT(concurrency-mt-unsafe)
  setenv("PMIX_RANK", "0", 1);                 // NOLINT(concurrency-mt-unsafe)
  const auto first = run(train("run"), 0);     // PMIx states no number of ranks
  unsetenv("PMIX_NAMESPACE");                  // NOLINT(concurrency-mt-unsafe)
  unsetenv("PMIX_RANK");                       // NOLINT(concurrency-mt-unsafe)
  unsetenv("LSAN_OPTIONS");                    // NOLINT(concurrency-mt-unsafe)
  EXPECT_NE(first.find("started rank 0 (MPI: rank 0 of 1)"), std::string::npos) << first;
}

// The measurement shows in the time of evaluations, and it does not change losses.
TEST_F(EndToEnd, the_peak_is_measured_again_at_the_first_evaluation_or_save) {
  run(with(train("saved"), {"eval.tokens=256", "train.steps=12", "checkpoint.every_steps=5"}), 0);
  run(with(train("kept"), {"eval.tokens=256", "train.steps=12", "checkpoint.every_steps=0"}), 0);
  const auto evaluation = [&](const char* name, std::int64_t step) {
    return metrics(name, step).at("evaluation_seconds").as_double();
  };
  EXPECT_GT(evaluation("saved", 5), 0);
  EXPECT_EQ(evaluation("saved", 10), 0);
  EXPECT_EQ(evaluation("kept", 5), 0);
  EXPECT_EQ(losses("saved"), losses("kept"));
}

TEST_F(EndToEnd, metrics_have_the_times_of_evaluations_saves_and_components) {
  run(with(train("run"), {"eval.every_steps=5", "eval.tokens=256", "train.steps=20"}), 0);
  const auto seconds = [&](std::int64_t step, const char* what) {
    return metrics("run", step).at(std::string(what) + "_seconds").as_double();
  };
  EXPECT_GT(seconds(5, "evaluation"), 0);
  EXPECT_EQ(seconds(6, "evaluation"), 0);
  EXPECT_GT(seconds(11, "checkpoint"), 0);  // of the save after step 10
  EXPECT_EQ(seconds(12, "checkpoint"), 0);
  for (std::int64_t step = 1; step <= 20; ++step) {
    EXPECT_GT(seconds(step, "data"), 0);
    double sum = 0;
    for (const char* component :
         {"products", "attention", "memory_bound", "communication_tensor", "communication_shard",
          "communication_replicate", "communication_ranks", "communication_host", "optimizer",
          "data", "other"})
      sum += seconds(step, component);
    EXPECT_NEAR(sum, seconds(step, "step"), 1e-9) << step;
  }
}

// The run is so large that the base memory of a process does not matter. An evaluation needs the
// most memory, which is in the peak of the next step.
TEST_F(EndToEnd, the_memory_of_a_run_equals_the_announced_memory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  const auto said =
      run(with(train("run"), {"train.steps=2", "eval.every_steps=1", "train.sequence_length=64",
                              "train.batch_tokens=65536", "train.micro_batch=1024",
                              "model.width=64", "model.mlp_width=192"}),
          0);
  const auto at = said.find("memory: ");
  ASSERT_NE(at, std::string::npos) << said;
  const double unit = said.find(" GiB for weights", at) != std::string::npos ? 1 << 30 : 1 << 20;
  const double announced = std::stod(said.substr(at + 8)) * unit;
  EXPECT_GT(announced, 0.5 * (1 << 30));
  EXPECT_NEAR(metrics("run", 2).at("peak_bytes").as_double() / announced, 1, 0.05);
}

TEST_F(EndToEnd, a_model_survives_export_and_import) {
  run(train("run", {"--set", "train.steps=10"}), 0);
  run({"checkpoint", "export", path("run"), "--out", path("hf"), "--dtype", "fp32"}, 0);
  run({"checkpoint", "import", path("hf"), "--out", path("back")}, 0);
  std::vector<double> losses;
  for (const char* model : {"run", "hf", "back"}) {
    Process eval = start({"eval", path(model), "--data", path("tokens.bin"), "--tokens", "1024",
                          "--sequence-length", "32"});
    ASSERT_EQ(eval.wait(), 0) << eval.err();
    losses.push_back(Json::parse(eval.out(), "eval").at("loss_nats").as_double());
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
  run({"checkpoint", "import", path("hf"), "--out", path("run")}, 64);  // it has checkpoints
}

TEST_F(EndToEnd, an_imported_run_trains_as_a_run_from_the_same_weights) {
  run(train("run", {"--set", "train.steps=10"}), 0);
  run({"checkpoint", "import", path("run"), "--out", path("imported")}, 0);
  const auto said = run(train("imported", {"--set", "train.steps=5"}), 0);
  EXPECT_NE(said.find("starting from the weights in "), std::string::npos) << said;
  run(train("second", {"--init-from", path("run"), "--set", "train.steps=5"}), 0);
  EXPECT_EQ(losses("imported"), losses("second"));
  run(train("imported", {"--set", "train.steps=8"}), 0);  // resumes from its own checkpoint
  EXPECT_EQ(losses("imported").size(), 8u);
}

TEST_F(EndToEnd, errors_name_their_cause_and_have_meaningful_exit_codes) {
  EXPECT_NE(run({"trian"}, 64).find("did you mean train"), std::string::npos);
  EXPECT_NE(run(train("run", {"--set", "train.stesp=3"}), 78).find("train.steps"),
            std::string::npos);
  EXPECT_NE(run(train("run", {"--set", "data.train=" + path("absent")}), 65).find("absent"),
            std::string::npos);
  fs::resize_file(directory_ / "tokens.bin", 3000);
  EXPECT_NE(run(train("run"), 65).find("tokens.bin: at byte 3000"), std::string::npos);
  EXPECT_NE(run({"generate", path("nowhere")}, 65).find("nowhere"), std::string::npos);
}

TEST_F(EndToEnd, a_token_outside_the_vocabulary_is_named_with_file_and_byte) {
  std::fstream file(directory_ / "tokens.bin", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1024 + 2 * 777);
  file.write("\x05\x01", 2);  // 261
  file.close();
  const auto said = run(train("run"), 65);
  EXPECT_NE(said.find("tokens.bin"), std::string::npos) << said;
  EXPECT_NE(said.find("2578"), std::string::npos) << said;
  EXPECT_NE(said.find("261"), std::string::npos) << said;
}

}  // namespace lockstep::testing::run_test
