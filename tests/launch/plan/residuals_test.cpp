#include "launch/plan/residuals.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/captured.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::residuals_test {

ResidualRun run(const std::string& key, double planned, double measured) {
  ResidualRun one{.key = key, .planned = {}, .measured = {}};
  one.planned[Component::products] = planned;
  one.measured[Component::products] = measured;
  one.measured[Component::other] = 0.01;
  return one;
}

TEST(Residuals, are_in_a_file_beside_the_cluster) {
  EXPECT_EQ(Residuals::file_beside("a/cluster.json"), "a/cluster.residuals.json");
  EXPECT_EQ(Residuals::file_beside("b.toml"), "b.toml.residuals.json");
}

TEST(Residuals, read_back_as_written) {
  const TemporaryDirectory directory;
  const auto file = directory / "cluster.residuals.json";
  EXPECT_TRUE(Residuals::read(file).runs().empty());
  Residuals residuals;
  residuals.add(run("a", 1, 1.1));
  residuals.add(run("b", 2, 1.9));
  residuals.add(run("a", 1, 1.25));
  residuals.write(file);
  const auto read = Residuals::read(file);
  ASSERT_EQ(read.runs().size(), 2u) << "a run takes the place of an earlier one of its key";
  EXPECT_EQ(read.runs()[1].key, "a");
  EXPECT_EQ(read.runs()[1].measured.seconds, run("a", 1, 1.25).measured.seconds);
  EXPECT_EQ(read.runs()[0].planned.seconds, run("b", 2, 1.9).planned.seconds);
  EXPECT_EQ(read.to_json().dump(), residuals.to_json().dump());
}

TEST(Residuals, keep_only_the_newest_runs) {
  Residuals residuals;
  for (std::size_t i = 0; i < Residuals::kMostRuns + 3; ++i)
    residuals.add(run(std::to_string(i), 1, 1));
  EXPECT_EQ(residuals.runs().size(), Residuals::kMostRuns);
  EXPECT_EQ(residuals.runs().front().key, "3");
}

TEST(Residuals, correct_a_plan_by_its_own_run_or_by_the_median_of_all) {
  Residuals residuals;
  residuals.add(run("a", 1, 1.25));
  residuals.add(run("b", 1, 0.5));
  residuals.add(run("c", 1, 2));
  StepTime plan;
  plan[Component::products] = 4;
  plan[Component::attention] = 0.5;
  const auto same = residuals.corrected("a", plan).value();
  EXPECT_DOUBLE_EQ(same[Component::products], 5);
  EXPECT_DOUBLE_EQ(same[Component::attention], 0.5) << "nothing is known of it";
  EXPECT_DOUBLE_EQ(same[Component::other], 0.01) << "it was planned to take nothing";
  EXPECT_DOUBLE_EQ(residuals.corrected("b", plan).value()[Component::products], 2);
  const auto other = residuals.corrected("d", plan).value();
  EXPECT_DOUBLE_EQ(other[Component::products], 5) << "the median of all";
  EXPECT_DOUBLE_EQ(other[Component::other], 0);
  residuals.add(run("e", 0.9, 90));
  EXPECT_DOUBLE_EQ(residuals.corrected("d", plan).value()[Component::products], 5)
      << "what was to take less than a quarter is not like it";
  plan[Component::products] = 4.1;
  EXPECT_FALSE(residuals.corrected("d", plan).has_value()) << "none is";
  EXPECT_FALSE(Residuals().corrected("a", plan).has_value());
}

TEST(Residuals, a_planned_time_near_zero_gives_no_ratio) {
  Residuals residuals;
  residuals.add(run("a", 1e-320, 0.5));
  StepTime plan;
  plan[Component::products] = 4;
  EXPECT_EQ(residuals.corrected("a", plan).value()[Component::products], 4.5);
  EXPECT_FALSE(residuals.corrected("d", plan).has_value());
}

TEST(Residuals, keys_differ_if_a_setting_changes_the_step) {
  const Config config = small_run(8);
  const auto key = residual_key(config);
  EXPECT_EQ(residual_key(config), key);
  Config seed = config;
  seed.train.seed = 99;
  EXPECT_EQ(residual_key(seed), key);
  const auto differs = [&](auto&& change) {
    Config other = config;
    change(other);
    EXPECT_NE(residual_key(other), key);
  };
  differs([](Config& c) { c.model.layers = 3; });
  differs([](Config& c) { c.train.micro_batch = 1; });
  differs([](Config& c) { c.train.sequence_length = 16; });
  differs([](Config& c) { c.train.recompute = Recompute::block; });
  differs([](Config& c) { c.precision.compute = DType::bf16; });
  differs([](Config& c) { c.layout.sharding = Sharding::optimizer; });
  differs([](Config& c) { c.layout.tensor = 2; });
  differs([](Config& c) { c.layout.keep_gathered = 2; });
  differs([](Config& c) { c.train.batch_tokens *= 2; });
  differs([](Config& c) { c.train.offload_activations = true; });
  differs([](Config& c) { c.train.offload_optimizer = true; });
  differs([](Config& c) { c.precision.fp8 = Fp8Products::tensor; });
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
  const auto with = residual_key(masters);
  masters.precision.master_weights = false;
  EXPECT_NE(residual_key(masters), with);
}

TEST(Residuals, a_damaged_file_is_renamed_and_overwrites_no_other) {
  const TemporaryDirectory directory;
  const auto file = directory / "r.json";
  write_text(file, "damaged");
  Residuals residuals;
  const auto said = stderr_of([&] { residuals = Residuals::read_or_set_aside(file); });
  expect_contains(said, "r.json.damaged");
  expect_wording("launch/residuals", "set aside", said.substr(said.rfind("; ")));
  residuals.add(run("a", 1, 2));
  residuals.write(file);
  EXPECT_EQ(slurp(directory / "r.json.damaged"), "damaged");
  EXPECT_EQ(Residuals::read_or_set_aside(file).runs().size(), 1u);
  write_text(file, "damaged again");
  expect_contains(message_of<DataError>([&] { Residuals::read_or_set_aside(file); }),
                  "r.json: at byte 0");
  EXPECT_EQ(slurp(file), "damaged again");
  EXPECT_EQ(slurp(directory / "r.json.damaged"), "damaged");
}

TEST(Residuals, a_damaged_file_is_rejected_by_file_and_member) {
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
    expect_refusal<DataError>("launch/residuals", text, {"r.json", part},
                              [&] { Residuals::read(file); });
  }
}

}  // namespace lockstep::testing::residuals_test
