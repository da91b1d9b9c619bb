#include "train/observe/plan_file.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/wording.h"

namespace lockstep::testing::plan_file_test {

PlanFile plan() {
  return {.step = {.seconds = 0.4123456789012345,
                   .tokens_per_second = 158'900.5,
                   .mfu = 0.483,
                   .components = {{"products", 0.3}, {"communication_shard", 1e-9}}},
          .band = {.low = 0.9, .high = 1.1},
          .corrected = PlanFile::Step{.seconds = 0.43,
                                      .tokens_per_second = 152'000,
                                      .mfu = 0.46,
                                      .mfu_square = 0.5,
                                      .components = {{"products", 0.32}}},
          .memory = {{"weights", 9'007'199'254'740'993}, {"a \"b\"\n", 0}},  // no double holds it
          .capacity_bytes = 85'899'345'920,
          .checkpoint_bytes = 12,
          .cluster = "8 GPUs </script>",
          .key = "llama3"};
}

void expect_same(const PlanFile::Step& read, const PlanFile::Step& step) {
  EXPECT_EQ(read.seconds, step.seconds);
  EXPECT_EQ(read.tokens_per_second, step.tokens_per_second);
  EXPECT_EQ(read.mfu, step.mfu);
  EXPECT_EQ(read.components, step.components);
}

TEST(PlanFile, a_plan_reads_back_as_written) {
  const TemporaryDirectory directory;
  const auto path = directory / "plan.json";
  EXPECT_FALSE(read_plan_file(path).has_value());
  write_plan_file(path, plan());
  const auto read = read_plan_file(path).value();
  expect_same(read.step, plan().step);
  EXPECT_TRUE(std::isnan(read.step.mfu_square));
  EXPECT_EQ(read.band, plan().band);
  ASSERT_TRUE(read.corrected.has_value());
  expect_same(*read.corrected, *plan().corrected);
  EXPECT_EQ(read.corrected->mfu_square, 0.5);
  EXPECT_EQ(read.memory, plan().memory);
  EXPECT_EQ(read.capacity_bytes, plan().capacity_bytes);
  EXPECT_EQ(read.checkpoint_bytes, 12);
  EXPECT_EQ(read.cluster, plan().cluster);
  EXPECT_EQ(read.key, "llama3");
  auto raw = plan();
  raw.corrected.reset();
  raw.band = {};
  write_plan_file(path, raw);
  EXPECT_FALSE(read_plan_file(path)->corrected.has_value());
  EXPECT_FALSE(read_plan_file(path)->band.is_known());
  EXPECT_EQ(std::ranges::distance(std::filesystem::directory_iterator(directory.path())), 1);
}

TEST(PlanFile, the_step_of_a_run_excludes_checkpoints) {
  PlanFile::Step step{.seconds = 0.5, .tokens_per_second = 1000, .mfu = 0.4, .mfu_square = 0.48};
  step.components = {{"products", 0.4}, {"checkpoint", 0.1}};
  const auto alone = step.without_checkpoints();
  EXPECT_DOUBLE_EQ(alone.seconds, 0.4);
  EXPECT_DOUBLE_EQ(alone.tokens_per_second, 1250);
  EXPECT_DOUBLE_EQ(alone.mfu, 0.5);
  EXPECT_DOUBLE_EQ(alone.mfu_square, 0.6);
  EXPECT_EQ(alone.components, step.components);
  expect_same(plan().step.without_checkpoints(), plan().step);  // it has no checkpoints
  step.components[1].seconds = 0.5;                             // an impossible file
  EXPECT_EQ(step.without_checkpoints().seconds, 0.5);
}

// The reader rejects a plan that `damage` changed, with the message `name`.
template <class Damage>
void refused(const std::string& name, std::initializer_list<std::string> pins, Damage&& damage) {
  const TemporaryDirectory directory;
  const auto path = directory / "plan.json";
  write_plan_file(path, plan());
  Json json = Json::parse(slurp(path), "plan");
  damage(json);
  spit(path, json.dump());
  expect_contains(message_of<DataError>([&] { read_plan_file(path); }), path.string());
  expect_refusal<DataError>("train/plan_file", name, pins, [&] { read_plan_file(path); });
}

TEST(PlanFile, each_missing_member_is_named) {
  for (const std::string member :
       {"format", "step_seconds", "tokens_per_second", "mfu", "mfu_square", "components", "memory",
        "capacity_bytes", "checkpoint_bytes", "cluster"})
    refused("no " + member, {member}, [&](Json& json) {
      Json::Object rest = json.as_object();
      std::erase_if(rest, [&](const auto& pair) { return pair.first == member; });
      json = rest;
    });
}

TEST(PlanFile, each_impossible_value_is_an_error_that_names_it) {
  const auto part = [](const char* name, const char* unit, const Json& value) {
    return Json::Object{{"name", name}, {unit, value}};
  };
  struct Lie {
    const char* member;
    Json value;
    const char* pin = "";
  };
  for (const auto& [member, value, pin] : std::vector<Lie>{
           {"format", "lockstep plan 2", "lockstep plan 1"},
           {"step_seconds", "soon"},
           {"step_seconds", {}, "null"},
           {"tokens_per_second", -1, "-1"},
           {"mfu", -0.5, "-0.5"},
           {"mfu_square", true},
           {"components", "none"},
           {"components", Json::Array{part("products", "seconds", -1)}, "-1"},
           {"components", Json::Array{part("a", "seconds", 1), part("a", "seconds", 1)}, " a"},
           {"components", Json::Array{part("a", "bytes", 1)}, "seconds"},
           {"components", Json::Array(65, part("a", "seconds", 1)), "64"},
           {"memory", Json::Array{part("weights", "bytes", 1.5)}, "\"bytes\" is 1.5"},
           {"memory", Json::Array{part("weights", "bytes", -1)}, "\"bytes\" is -1"},
           {"capacity_bytes", -1},
           {"checkpoint_bytes", 0.5},
           {"cluster", 8, "8"},
           {"band", Json::Object{{"low", 1.1}, {"high", 0.9}}, "1.1"},
           {"band", Json::Object{{"low", 0}, {"high", 0.9}}, "0"},
           {"band", Json::Object{{"low", 0.9}}, "high"},
           {"corrected", Json::Object{{"step_seconds", 1}}},
           {"corrected", 0.5}}) {
    const auto text = value.dump();
    refused(str(member, " = ", text.size() < 100 ? text : str(text.size(), " bytes")),
            {member, pin}, [&](Json& json) { json.set(member, value); });
  }
}

TEST(PlanFile, a_truncated_file_is_an_error_at_every_length) {
  const TemporaryDirectory directory;
  const auto path = directory / "plan.json";
  write_plan_file(path, plan());
  const auto whole = slurp(path);
  for (std::size_t length = 0; length + 2 < whole.size(); length += 7) {
    spit(path, whole.substr(0, length));
    expect_contains(message_of<DataError>([&] { read_plan_file(path); }), path.string());
  }
  spit(path, whole + std::string(2 << 20, ' '));
  expect_contains(message_of<DataError>([&] { read_plan_file(path); }), "plan.json");
}

}  // namespace lockstep::testing::plan_file_test
