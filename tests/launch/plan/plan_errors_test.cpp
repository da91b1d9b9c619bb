#include "launch/plan/plan_errors.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/captured.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::residuals_test {

PlanErrorRun run(const std::string& key, double planned, double measured) {
  PlanErrorRun one{.key = key, .planned = {}, .measured = {}};
  one.planned[Component::products] = planned;
  one.measured[Component::products] = measured;
  one.measured[Component::other] = 0.01;
  return one;
}

TEST(PlanErrors, are_in_a_file_beside_the_cluster) {
  EXPECT_EQ(PlanErrors::file_beside("a/cluster.json"), "a/cluster.residuals.json");
  EXPECT_EQ(PlanErrors::file_beside("b.toml"), "b.toml.residuals.json");
}

TEST(PlanErrors, read_back_as_written) {
  const TemporaryDirectory directory;
  const auto file = directory / "cluster.residuals.json";
  EXPECT_TRUE(PlanErrors::read(file).runs().empty());
  PlanErrors plan_errors;
  plan_errors.add(run("a", 1, 1.1));
  plan_errors.add(run("b", 2, 1.9));
  plan_errors.add(run("a", 1, 1.25));
  plan_errors.write(file);
  const auto read = PlanErrors::read(file);
  ASSERT_EQ(read.runs().size(), 2u) << "a run takes the place of an earlier one of its key";
  EXPECT_EQ(read.runs()[1].key, "a");
  EXPECT_EQ(read.runs()[1].measured.seconds, run("a", 1, 1.25).measured.seconds);
  EXPECT_EQ(read.runs()[0].planned.seconds, run("b", 2, 1.9).planned.seconds);
  EXPECT_EQ(read.to_json().dump(), plan_errors.to_json().dump());
}

TEST(PlanErrors, keep_only_the_newest_runs) {
  PlanErrors plan_errors;
  for (std::size_t i = 0; i < PlanErrors::kMostRuns + 3; ++i)
    plan_errors.add(run(std::to_string(i), 1, 1));
  EXPECT_EQ(plan_errors.runs().size(), PlanErrors::kMostRuns);
  EXPECT_EQ(plan_errors.runs().front().key, "3");
}

TEST(PlanErrors, correct_a_plan_by_its_own_run_or_by_the_median_of_all) {
  PlanErrors plan_errors;
  plan_errors.add(run("a", 1, 1.25));
  plan_errors.add(run("b", 1, 0.5));
  plan_errors.add(run("c", 1, 2));
  StepTime plan;
  plan[Component::products] = 4;
  plan[Component::attention] = 0.5;
  const auto same = plan_errors.corrected("a", plan).value();
  EXPECT_DOUBLE_EQ(same[Component::products], 5);
  EXPECT_DOUBLE_EQ(same[Component::attention], 0.5) << "nothing is known of it";
  EXPECT_DOUBLE_EQ(same[Component::other], 0.01) << "it was planned to take nothing";
  EXPECT_DOUBLE_EQ(plan_errors.corrected("b", plan).value()[Component::products], 2);
  const auto other = plan_errors.corrected("d", plan).value();
  EXPECT_DOUBLE_EQ(other[Component::products], 5) << "the median of all";
  EXPECT_DOUBLE_EQ(other[Component::other], 0);
  plan_errors.add(run("e", 0.9, 90));
  EXPECT_DOUBLE_EQ(plan_errors.corrected("d", plan).value()[Component::products], 5)
      << "what was to take less than a quarter is not like it";
  plan[Component::products] = 4.1;
  EXPECT_FALSE(plan_errors.corrected("d", plan).has_value()) << "none is";
  EXPECT_FALSE(PlanErrors().corrected("a", plan).has_value());
}

TEST(PlanErrors, a_planned_time_near_zero_gives_no_ratio) {
  PlanErrors plan_errors;
  plan_errors.add(run("a", 1e-320, 0.5));
  StepTime plan;
  plan[Component::products] = 4;
  EXPECT_EQ(plan_errors.corrected("a", plan).value()[Component::products], 4.5);
  EXPECT_FALSE(plan_errors.corrected("d", plan).has_value());
}

TEST(PlanErrors, keys_differ_if_a_setting_changes_the_step) {
  const Config config = small_run(8);
  const auto key = plan_error_key(config);
  EXPECT_EQ(plan_error_key(config), key);
  Config seed = config;
  seed.train.seed = 99;
  EXPECT_EQ(plan_error_key(seed), key);
  const auto differs = [&](auto&& change) {
    Config other = config;
    change(other);
    EXPECT_NE(plan_error_key(other), key);
  };
  differs([](Config& c) { c.model.layers = 3; });
  differs([](Config& c) { c.train.micro_batch = 1; });
  differs([](Config& c) { c.train.sequence_length = 16; });
  differs([](Config& c) { c.train.recompute = Recompute::block; });
  differs([](Config& c) { c.precision.compute = DType::bf16; });
  differs([](Config& c) { c.layout.sharding = Sharding::optimizer; });
  differs([](Config& c) { c.layout.tensor = 2; });
  differs([](Config& c) {
    c.layout.tensor = 2;
    c.layout.tensor_chunks = 2;
  });
  differs([](Config& c) { c.layout.keep_gathered = 2; });
  differs([](Config& c) { c.train.batch_tokens *= 2; });
  differs([](Config& c) { c.train.offload_activations = true; });
  differs([](Config& c) { c.train.offload_optimizer = true; });
  differs([](Config& c) { c.precision.fp8 = Fp8Matmuls::tensor; });
  differs([](Config& c) { std::swap(c.layout.shard, c.layout.replicate); });
  differs([](Config& c) { c.model.heads *= 2, c.model.kv_heads *= 2, c.model.head_size /= 2; });
  differs([](Config& c) { c.model.kv_heads /= 2; });
  differs([](Config& c) { c.model.width *= 2; });
  differs([](Config& c) { c.model.mlp_width += 1; });
  differs([](Config& c) { c.model.vocabulary += 1; });
  differs([](Config& c) { c.train.threads += 3; });
  differs([](Config& c) { c.data.document_mask = !c.data.document_mask; });
  differs([](Config& c) { c.train.attention = Config::Attention::own; });
  differs([](Config& c) { c.precision.moments = DType::bf16; });
  Config masters = config;
  masters.precision.compute = DType::bf16;
  const auto with = plan_error_key(masters);
  masters.precision.master_weights = false;
  EXPECT_NE(plan_error_key(masters), with);
}

TEST(PlanErrors, a_damaged_file_is_renamed_and_overwrites_no_other) {
  const TemporaryDirectory directory;
  const auto file = directory / "r.json";
  write_text(file, "damaged");
  PlanErrors plan_errors;
  const auto said = stderr_of([&] { plan_errors = PlanErrors::read_or_set_aside(file); });
  expect_contains(said, "r.json.damaged");
  expect_wording("launch/plan_errors", "set aside", said.substr(said.rfind("; ")));
  plan_errors.add(run("a", 1, 2));
  plan_errors.write(file);
  EXPECT_EQ(slurp(directory / "r.json.damaged"), "damaged");
  EXPECT_EQ(PlanErrors::read_or_set_aside(file).runs().size(), 1u);
  write_text(file, "damaged again");
  expect_contains(message_of<DataError>([&] { PlanErrors::read_or_set_aside(file); }),
                  "r.json: at byte 0");
  EXPECT_EQ(slurp(file), "damaged again");
  EXPECT_EQ(slurp(directory / "r.json.damaged"), "damaged");
}

TEST(PlanErrors, a_damaged_file_is_rejected_by_file_and_member) {
  const TemporaryDirectory directory;
  const auto file = directory / "r.json";
  const std::string head = R"({"format":"lockstep residuals 1","runs":[)";
  const auto one = [&](const std::string& components) {
    return head + R"({"key":"a","components":[)" + components + "]}]}";
  };
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"[]", ""},
           {R"({"format":"lockstep residuals 2","runs":[]})", "lockstep residuals 1"},
           {R"({"format":"lockstep residuals 1"})", "runs"},
           {head + "3]}", ""},
           {head + R"({"components":[]}]})", "key"},
           {head + R"({"key":"","components":[]}]})", "key"},
           {head + R"({"key":"a"}]})", "components"},
           {one(R"({"name":"gemm","planned_seconds":1,"measured_seconds":1})"), "gemm"},
           {one(R"({"name":"products","planned_seconds":-1,"measured_seconds":1})"),
            "planned_seconds"},
           {one(R"({"name":"products","planned_seconds":1,"measured_seconds":1e99})"),
            "measured_seconds"},
           {one(R"({"name":"products","planned_seconds":1})"), "measured_seconds"},
           {one(R"({"name":"products","planned_seconds":1,"measured_seconds":1},)"
                R"({"name":"products","planned_seconds":1,"measured_seconds":1})"),
            "products"}}) {
    write_text(file, text);
    expect_refusal<DataError>("launch/plan_errors", text, {"r.json", part},
                              [&] { PlanErrors::read(file); });
  }
}

}  // namespace lockstep::testing::residuals_test
