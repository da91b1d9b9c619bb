#include "train/run/trainer.h"

#include <csignal>
#include <gtest/gtest.h>

#include "checkpoint/checkpointer.h"
#include "tests/captured.h"
#include "tests/data/shards.h"
#include "train/run/run_context.h"

namespace lockstep::testing::trainer_test {

// Raises SIGTERM after a step was reported.
class SignalAfter final : public StepObserver {
 public:
  explicit SignalAfter(std::int64_t step) : step_(step) {}
  void open() override {}
  void fill_in(StepReport&) override {}
  void observe(StepReport& report, bool /*is_comparison*/) override {
    if (report.step == step_) std::raise(SIGTERM);
  }
  void meter_changed() override {}
  void end() override {}

 private:
  std::int64_t step_;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    spit(directory_ / "tokens.bin", gpt2_shard(random_tokens(400, 256)));
    auto& c = options_.config;
    c.model = family_defaults(Family::llama3);
    c.model.layers = 1;
    c.model.width = c.model.mlp_width = 8;
    c.model.heads = c.model.kv_heads = 2;
    c.model.head_size = 4;
    c.model.vocabulary = 257;
    c.model.max_positions = c.train.sequence_length = 8;
    c.model.rope_scaling.reset();
    c.train.steps = 4;
    c.train.micro_batch = 2;
    c.train.batch_tokens = 16;
    c.train.threads = 1;
    c.data.train = {(directory_ / "tokens.bin").string()};
    options_.settings = Json::Object{};
    options_.run = directory_ / "run";
  }
  // Returns the exit code of a run that gets SIGTERM after this step.
  int stopped_after(std::int64_t step) {
    options_.make_observer = [step](auto&) { return std::make_unique<SignalAfter>(step); };
    LoneWorld alone;
    int code = -1;
    log_ = stderr_of([&] { code = train(options_, {.world = alone}); });
    return code;
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  std::string log_;
};

TEST_F(TrainerTest, a_signal_in_the_last_step_does_not_change_a_complete_run) {
  EXPECT_EQ(stopped_after(4), 0) << log_;
  EXPECT_EQ(latest_checkpoint(options_.run / "checkpoints"), 4);
  EXPECT_EQ(slurp(options_.run / "saved_step.txt"), "4\n");
}

TEST_F(TrainerTest, a_signal_saves_the_step_and_writes_the_trace) {
  options_.trace_steps = 4;
  EXPECT_EQ(stopped_after(2), 75) << log_;
  EXPECT_EQ(latest_checkpoint(options_.run / "checkpoints"), 2);
  EXPECT_TRUE(std::filesystem::exists(options_.run / "trace-rank-00000.json"));
}

}  // namespace lockstep::testing::trainer_test
