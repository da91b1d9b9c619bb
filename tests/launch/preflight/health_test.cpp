#include "launch/preflight/health.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::health_test {

using Unit = Finding::Unit;

std::vector<Who> hosts(int count) {
  std::vector<Who> who;
  for (int i = 1; i <= count; ++i)
    who.push_back({str("host n", i, ", rank ", i - 1), str("n", i, "/0")});
  return who;
}

// Findings of one check, with a value for each rank.
std::vector<std::vector<Finding>> found(const Finding& like, const std::vector<double>& values) {
  std::vector<std::vector<Finding>> by_rank;
  for (const double value : values) {
    by_rank.push_back({like});
    by_rank.back().front().value = value;
  }
  return by_rank;
}

std::string faults(const std::vector<std::vector<Finding>>& by_rank, const Baseline& last = {}) {
  const auto verdict = judge(by_rank, hosts(static_cast<int>(by_rank.size())), last);
  std::string text;
  for (const auto& fault : verdict.faults)
    text += str(fault.whose, ": ", fault.what, "\n");
  EXPECT_EQ(verdict.exit_code() == 0, text.empty());
  return text;
}

// These faults are the message `name`, which holds each of `pins`.
void expect_said(const std::string& name, const std::string& text,
                 std::initializer_list<std::string> pins) {
  SCOPED_TRACE(name);
  for (const auto& pin : pins)
    expect_contains(text, pin);
  expect_wording("launch/health", name, text);
}

const Finding kProduct{.check = "product", .unit = Unit::flops, .tolerance = 0.05};
const Finding kStep{.check = "step", .unit = Unit::seconds, .tolerance = 0.05};

TEST(Health, the_slower_rank_of_two_is_named) {
  EXPECT_EQ(faults(found(kProduct, {100e9, 97e9})), "");
  expect_said("a slower rate", faults(found(kProduct, {100e9, 94e9})),
              {"host n2, rank 1: product: 94.0 GFLOP/s, 6 %", "100 GFLOP/s"});
  EXPECT_EQ(faults(found(kStep, {1.04, 1.0})), "");
  expect_said("a slower time", faults(found(kStep, {1.0, 1.06})),
              {"host n2, rank 1: step: 1.06 s, 6 %", "1.00 s"});
  expect_said("a much slower time", faults(found(kStep, {1.5, 1.0})),
              {"host n1, rank 0: step: 1.50 s, 50 %", "1.00 s"});
  expect_said("no time", faults(found(kStep, {0.0, 1.0})), {"host n2, rank 1: step: 1.00 s"});
}

// preflight.json has "product" as a key, so its older files stay comparable.
TEST(Health, a_product_of_the_file_is_a_matmul_for_readers) {
  Finding product = kProduct;
  product.check = "product 8 x 8 x 8 fp32";
  const auto by_rank = found(product, {100e9, 94e9});
  const auto verdict = judge(by_rank, hosts(2), {});
  EXPECT_EQ(verdict.rows.front().check, "matmul 8 x 8 x 8 fp32");
  EXPECT_EQ(faults(by_rank).find("product"), std::string::npos);
  expect_contains(faults(by_rank), "host n2, rank 1: matmul 8 x 8 x 8 fp32: ");
  EXPECT_NE(baseline_of(by_rank, hosts(2)).find(product.check, "n1/0"), nullptr);
}

TEST(Health, a_fast_rank_does_not_make_others_slow) {
  EXPECT_EQ(faults(found(kProduct, {100, 200, 101, 102})), "");
  expect_contains(faults(found(kProduct, {100, 100, 50, 100})), "host n3, rank 2: product: ");
}

TEST(Health, a_check_without_comparison_is_judged_by_its_limit) {
  Finding share{.check = "share", .unit = Unit::share, .limit = 0.9};
  EXPECT_EQ(faults(found(share, {1.0, 0.95})), "");
  expect_said("a share", faults(found(share, {1.0, 0.52})),
              {"host n2, rank 1: share: 52 %", "90 %"});
  Finding errors{.check = "errors", .limit = 0};
  errors.detail = "eth0 rx_errors +2";
  expect_said("errors", faults(found(errors, {0, 2})),
              {"host n2, rank 1: errors: 2 (eth0 rx_errors +2)", "0"});
}

TEST(Health, a_check_that_could_not_run_is_a_fault) {
  auto by_rank = found(kProduct, {100, Finding::kNone, 100});
  by_rank[1].front().failure = "no such folder";
  expect_said("a check that failed", faults(by_rank),
              {"host n2, rank 1: product: ", "no such folder"});
  const auto who = hosts(3);
  EXPECT_EQ(judge(by_rank, who, {}).exit_code(), 75);
  by_rank[1].front().is_wrong_configuration = true;
  EXPECT_EQ(judge(by_rank, who, {}).exit_code(), 78);
  // A missing measurement is not a fault.
  EXPECT_EQ(faults(found(kProduct, {Finding::kNone, Finding::kNone})), "");
}

TEST(Health, a_check_missing_on_some_ranks_is_a_fault) {
  auto by_rank = found(kProduct, {100, 100, 100});
  by_rank[1].clear();
  expect_said("a check of others", faults(by_rank), {"host n2, rank 1: product: "});
  EXPECT_FALSE(judge(by_rank, hosts(3), {}).rows.front().is_well);
  by_rank[2].clear();
  by_rank[0].front().whose = "hosts n1, n2, n3";  // one rank reports for all
  EXPECT_EQ(faults(by_rank), "");
}

// Another mesh may number the ranks differently.
TEST(Health, a_pair_of_hosts_is_recognized_after_its_ranks_are_renumbered) {
  auto before = found(kProduct, {100e9});
  before[0].front().whose = "host n1, rank 0 (to host n2)";
  before[0].front().key = "n1/0 (to host n2)";
  auto now = found(kProduct, {50e9});
  now[0].front().whose = "host n1, rank 7 (to host n2)";
  now[0].front().key = "n1/0 (to host n2)";
  expect_said("a pair", faults(now, baseline_of(before, hosts(1))),
              {"host n1, rank 7 (to host n2): product: 50.0 GFLOP/s, 50 %", "100 GFLOP/s"});
}

TEST(Health, all_ranks_slower_than_their_best_are_named) {
  const auto last = baseline_of(found(kProduct, {100e9, 100e9}), hosts(2));
  expect_said("slower than its peers and its best", faults(found(kProduct, {80e9, 100e9}), last),
              {"host n1, rank 0: product: 80.0 GFLOP/s, 20 %", "100 GFLOP/s"});
  expect_said("all are slower than their best", faults(found(kProduct, {80e9, 81e9}), last),
              {"host n1, rank 0: product: 80.0 GFLOP/s, 20 %",
               "host n2, rank 1: product: 81.0 GFLOP/s, 19 %", "100 GFLOP/s"});
  EXPECT_EQ(faults(found(kProduct, {96e9, 200e9 / 2}), last), "");
}

// Configurations differ by the model, the number of threads or the disk.
TEST(Health, values_of_another_configuration_are_not_compared) {
  auto two_threads = found(kProduct, {100e9, 100e9});
  for (auto& of_rank : two_threads)
    of_rank.front().of = "1 rank on the host, 2 threads each";
  const auto before = baseline_of(two_threads, hosts(2));
  const auto one_thread = found(kProduct, {50e9, 51e9});
  EXPECT_EQ(faults(one_thread, before), "");
  const auto row = judge(one_thread, hosts(2), before).rows.front();
  EXPECT_TRUE(row.is_new);
  EXPECT_TRUE(std::isnan(row.best));
  // The baseline keeps both.
  const auto both = baseline_of(one_thread, hosts(2), before);
  expect_said("a best of one thread", faults(found(kProduct, {20e9, 20e9}), both),
              {"60 %", "50.0 GFLOP/s"});
  for (auto& of_rank : two_threads)
    of_rank.front().value /= 2;
  expect_said("a best of two threads", faults(two_threads, both), {"50 %", "100 GFLOP/s"});
}

TEST(Health, the_baseline_keeps_best_values_and_other_hosts) {
  auto before = baseline_of(found(kProduct, {100e9, 100e9, 100e9}), hosts(3));
  for (const double now : {97e9, 94.5e9}) {  // slower by less than the tolerance, each time
    EXPECT_EQ(faults(found(kProduct, {now, now}), now > 95e9 ? before : Baseline()), "");
    before = baseline_of(found(kProduct, {now, now}), hosts(2), before);
  }
  EXPECT_EQ(before.find("product", "n1/0")->at(""), 100e9);
  EXPECT_EQ(before.find("product", "n3/0")->at(""), 100e9);
  expect_said("a best that stays", faults(found(kProduct, {94.5e9, 94.5e9}), before), {"94.5"});
  before = baseline_of(found(kStep, {2, 3}), hosts(2), baseline_of(found(kStep, {3, 2}), hosts(2)));
  EXPECT_EQ(before.find("step", "n1/0")->at(""), 2);
  EXPECT_EQ(before.find("step", "n2/0")->at(""), 2);
}

TEST(Health, a_baseline_reads_back_as_written_and_damage_is_rejected) {
  auto by_rank = found(kProduct, {100, 101});
  by_rank[0].front().of = "2 ranks";
  by_rank[0].push_back(kStep);
  by_rank[0].back().value = 3;
  by_rank[0].back().whose = "hosts n1, n2";
  by_rank[0].push_back({.check = "not compared", .value = 1, .limit = 2});
  by_rank[0].push_back(kStep);
  by_rank[0].back().check = "nothing";
  by_rank[0].back().value = 0;
  const auto last = baseline_of(by_rank, hosts(2));
  const auto again = Baseline::parse(Json::parse(last.to_json().dump(), "it"));
  ASSERT_NE(again.find("product", "n1/0"), nullptr);
  EXPECT_EQ(again.find("product", "n1/0")->at("2 ranks"), 100);
  EXPECT_EQ(again.find("product", "n2/0")->at(""), 101);
  EXPECT_EQ(again.find("step", "hosts n1, n2")->at(""), 3);
  EXPECT_EQ(again.find("product", "n3/0"), nullptr);
  EXPECT_EQ(again.find("not compared", "n1/0"), nullptr);
  EXPECT_EQ(again.find("nothing", "n1/0"), nullptr);
  EXPECT_EQ(again.to_json().dump(), last.to_json().dump());
  const auto refused = [](const std::string& text, const char* pin) {
    expect_refusal<DataError>("launch/health", text, {pin},
                              [&] { Baseline::parse(Json::parse(text, "it")); });
  };
  refused(R"({"format": "x"})", "\"format\" is \"x\"");
  for (const char* value : {"\"b\"", "0", "-1", "1e300"})
    refused(
        str(R"({"format": "lockstep preflight 2", "checks": {"a": {"n": {"2": )", value, "}}}}"),
        "a: n: 2: ");
}

TEST(Health, bits_of_a_minority_are_a_fault_and_of_two_ranks_both_are_named) {
  auto by_rank = found(kProduct, {100, 100, 100});
  by_rank[0].front().bits = by_rank[2].front().bits = "same";
  by_rank[1].front().bits = "other";
  expect_said("other bits than most", faults(by_rank), {"host n2, rank 1: product: "});
  by_rank.pop_back();
  expect_said("other bits of two", faults(by_rank),
              {"host n1, rank 0: product: ", "host n2, rank 1: product: "});
  by_rank[1].front().bits = "same";
  EXPECT_EQ(faults(by_rank), "");
}

TEST(Health, the_table_has_the_median_the_worst_value_and_its_best) {
  const auto last = baseline_of(found(kProduct, {98, 99, 97}), hosts(3));
  const auto verdict = judge(found(kProduct, {100, 98, 99}), hosts(3), last);
  ASSERT_EQ(verdict.rows.size(), 1u);
  const auto& row = verdict.rows.front();
  EXPECT_EQ(row.worst, 98);
  EXPECT_EQ(row.median, 99);
  EXPECT_EQ(row.best, 99);
  EXPECT_EQ(row.ranks, 3);
  EXPECT_TRUE(row.is_well);
  EXPECT_FALSE(judge(found(kProduct, {100, 9}), hosts(2), {}).rows.front().is_well);
}

TEST(Health, a_finding_reads_back_as_written) {
  Finding sent{.check = "a", .unit = Unit::share, .value = 0.5, .tolerance = 0.25};
  sent.bits = "b";
  sent.detail = "c";
  sent.of = "f";
  sent.whose = "d";
  sent.key = "k";
  sent.failure = "e";
  sent.is_wrong_configuration = true;
  const auto text = to_json(sent).dump();
  EXPECT_EQ(
      text,
      R"({"check":"a","unit":"share","value":0.5,"limit":null,"tolerance":0.25,"bits":"b",)"
      R"("detail":"c","of":"f","whose":"d","key":"k","failure":"e","is_wrong_configuration":true})");
  const auto came = finding(Json::parse(text, "it"));
  EXPECT_EQ(to_json(came).dump(), text);
  EXPECT_TRUE(std::isnan(came.limit));
  EXPECT_EQ(came.unit, Unit::share);
  EXPECT_EQ(came.whose, "d");
}

TEST(Health, numbers_have_units) {
  EXPECT_EQ(in_words(118.2e9, Unit::flops), "118 GFLOP/s");
  EXPECT_EQ(in_words(12, Unit::flops), "12 FLOP/s");
  EXPECT_EQ(in_words(2.5e9, Unit::bytes_per_second), "2.50 GB/s");
  EXPECT_EQ(in_words(0.963, Unit::share), "96 %");
  EXPECT_EQ(in_words(14e-6, Unit::seconds), "14 us");
  EXPECT_EQ(in_words(0.5, Unit::seconds), "500 ms");
  EXPECT_EQ(in_words(3, Unit::count), "3");
}

}  // namespace lockstep::testing::health_test
