// Branches: the steps that rollbacks of a run abandoned, in the data of its page.
#include <gtest/gtest.h>

#include "core/json.h"
#include "launch/report/page.h"
#include "tests/wording.h"
#include "train/observe/metrics_log.h"
#include "train/run/amendments.h"

namespace lockstep::testing::branches_test {

std::string lines_of(std::int64_t first, std::int64_t last, double loss) {
  std::string text;
  for (auto step = first; step <= last; ++step) {
    StepReport r;
    r.step = step;
    r.loss = loss + 1.0 / static_cast<double>(step);
    if (step % 10 == 0) r.validation_loss = loss;
    text += to_json_line(r, 1.7e9 + static_cast<double>(step));
  }
  return text;
}

struct Branches : ::testing::Test {
  TemporaryDirectory directory;
  std::filesystem::path run = directory / "run";

  Json data(std::size_t most = 4096) const {
    const auto text = report_data({read_run(run, most)}, "lockstep 1.2.3", 0);
    return Json::parse(text, "data", 16).at("runs").as_array()[0];
  }
  void append(const std::string& text) const {
    std::ofstream(run / "metrics.jsonl", std::ios::app) << text;
  }
  // Goes back to `step`, as `lockstep train --from-step`.
  void go_back(std::int64_t step) const {
    RunDirectory opened(run);
    opened.keep();
    abandon_metrics_after(opened, step);
  }
};

std::vector<std::int64_t> steps_of(const Json& points) {
  std::vector<std::int64_t> steps;
  for (const Json& step : points.at("step").as_array())
    steps.push_back(step.as_integer());
  return steps;
}

TEST_F(Branches, are_the_steps_that_rollbacks_abandoned) {
  std::filesystem::create_directories(run);
  append(lines_of(1, 40, 3));
  go_back(20);
  append(lines_of(21, 21, 2));
  go_back(20);
  append(lines_of(21, 30, 1));
  const auto one = data();
  EXPECT_EQ(one.at("figures").at("last_step").as_integer(), 30);
  EXPECT_EQ(one.at("points").at("loss").as_array().back().as_double(), 1.03333);
  const auto& branches = one.at("branches").as_array();
  ASSERT_EQ(branches.size(), 2u);
  std::vector<std::int64_t> abandoned;
  for (std::int64_t step = 21; step <= 40; ++step)
    abandoned.push_back(step);
  EXPECT_EQ(steps_of(branches[0].at("points")), abandoned);
  EXPECT_EQ(branches[0].at("rollback").as_integer(), 1);
  EXPECT_EQ(branches[0].at("first_step").as_integer(), 21);
  EXPECT_EQ(branches[0].at("last_step").as_integer(), 40);
  EXPECT_EQ(branches[0].at("points").at("loss").as_array()[4].as_double(), 3.04);
  EXPECT_EQ(branches[0].at("points").at("seconds").as_array()[4].as_double(), 24);
  EXPECT_EQ(steps_of(branches[0].at("evaluations")), (std::vector<std::int64_t>{30, 40}));
  EXPECT_EQ(steps_of(branches[1].at("points")), std::vector<std::int64_t>{21});
  EXPECT_TRUE(one.at("notes").as_array().empty());
}

TEST_F(Branches, damaged_and_empty_files_become_notes) {
  std::filesystem::create_directories(run);
  append(lines_of(1, 5, 3));
  spit(run / "metrics.before-1.jsonl", "");
  spit(run / "metrics.before-2.jsonl", "junk\n");
  spit(run / "metrics.before-3.jsonl", lines_of(3, 4, 3) + "junk\n" + lines_of(5, 6, 3) + "{");
  std::filesystem::create_directory(run / "metrics.before-4.jsonl");
  for (const char* other : {"metrics.before-x.jsonl", "metrics.before-05.jsonl",
                            "metrics.before-6.jsonl.old", "metrics.before-.jsonl"})
    spit(run / other, lines_of(1, 2, 3));
  const auto one = data();
  ASSERT_EQ(one.at("branches").as_array().size(), 1u);
  EXPECT_EQ(steps_of(one.at("branches").as_array()[0].at("points")),
            (std::vector<std::int64_t>{3, 4, 5, 6}));
  std::string notes;
  for (const auto& note : one.at("notes").as_array())
    notes += note.as_string() + "\n";
  for (const char* pin : {"before-1.jsonl", "before-2.jsonl: no steps; line 1",
                          "before-3.jsonl: 1 of 5", "1 bytes", "before-4.jsonl"})
    expect_contains(notes, pin);
  expect_wording("launch/report", "damaged branches", notes);
}

TEST_F(Branches, together_have_at_most_as_many_points_as_the_run) {
  std::filesystem::create_directories(run);
  append(lines_of(1, 300, 3));
  for (int rollback = 1; rollback <= 10; ++rollback)
    spit(run / str("metrics.before-", rollback, ".jsonl"), lines_of(101, 300, 3));
  const auto one = data(64);
  const auto& branches = one.at("branches").as_array();
  ASSERT_EQ(branches.size(), 8u);
  EXPECT_EQ(branches[0].at("rollback").as_integer(), 3);
  EXPECT_EQ(branches[7].at("rollback").as_integer(), 10);
  for (const Json& branch : branches) {
    EXPECT_EQ(branch.at("points").at("lines_each").as_integer(), 32);
    EXPECT_EQ(branch.at("points").at("step").as_array().size(), 7u);
    EXPECT_EQ(branch.at("last_step").as_integer(), 300);
  }
  expect_wording("launch/report", "10 rollbacks", one.at("notes").as_array()[0].as_string());
}

TEST_F(Branches, rollbacks_skipped_ranges_and_extensions_are_facts_of_the_newest_checkpoint) {
  std::filesystem::create_directories(run / "checkpoints" / "step-00000002");
  append(lines_of(1, 5, 3));
  const auto facts = [&](const Amendments& amendments) {
    const Json manifest =
        Json::Object{{"about", Json::Object{{"amendments", to_json(amendments)}}}};
    spit(run / "checkpoints" / "step-00000002" / "manifest.json", manifest.dump());
    std::vector<std::string> all;
    const auto one = data();
    for (const Json& fact : one.at("environment").as_array())
      all.push_back(fact.as_array()[0].as_string() + " " + fact.as_array()[1].as_string());
    return all;
  };
  EXPECT_EQ(facts({}), std::vector<std::string>{});
  EXPECT_EQ(facts({rollback_to({20}), skip_of({23, 27}), rollback_to({10}),
                   extension_at(40, 1e-3, 1e-3, 40)}),
            (std::vector<std::string>{"rollbacks 2: to step 20, to step 10",
                                      "skipped ranges 1: steps 23 to 27",
                                      "extensions 1: after step 40"}));
}

}  // namespace lockstep::testing::branches_test
