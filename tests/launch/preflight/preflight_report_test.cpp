// Messages and files of `lockstep preflight` if something is faulty.
#include <filesystem>
#include <gtest/gtest.h>

#include "core/system/machine.h"
#include "launch/plan/plan_errors.h"
#include "launch/preflight/report.h"
#include "launch/preflight_verb.h"
#include "tests/captured.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::preflight_report_test {

namespace fs = std::filesystem;

constexpr const char* kClusterOfLastTime = R"({"format": "lockstep cluster 1"})";

// LastTime holds the two files of an earlier preflight, in which one thread on `host` had a memory
// rate of `memory`.
struct LastTime {
  explicit LastTime(const std::string& memory = "1", const std::string& host = host_name()) {
    spit(cluster, kClusterOfLastTime);
    spit(baseline, str(R"({"format": "lockstep preflight 2", "checks": {"memory, read and )",
                       R"(written": {")", host, R"(/0": {"1 rank on the host, 1 thread each": )",
                       memory, "}}}}"));
  }

  int preflight(const fs::path& scratch) const {
    PreflightVerbOptions options;
    options.cluster_out = cluster.string();
    options.scratch = scratch.string();
    options.device = "cpu";
    options.threads = 1;
    return run_preflight(options);
  }
  // Returns the exit code of preflight() and stores its output in `out`.
  int finish(const fs::path& scratch) {
    int code = -1;
    out = stdout_of([&] { code = preflight(scratch); });
    return code;
  }

  // Output and log of a report of one rank on host n1.
  std::string said(const std::function<void(PreflightReport&)>& use) const {
    LoneWorld alone;
    Topology topology;
    topology.places.resize(1);
    topology.places.front().host = "n1";
    std::string printed;
    const auto logged = stderr_of([&] {
      printed = stdout_of([&] {
        PreflightReport report(alone, topology, {cluster, baseline});
        use(report);
      });
    });
    return printed + logged;
  }
  // preflight() is rejected before it measures, with the message `name`, which holds each of
  // `pins`.
  template <class E = ConfigError>
  void refused(const std::string& name, const fs::path& scratch,
               std::initializer_list<std::string> pins) const {
    auto message = message_of<E>([&] { preflight(scratch); });
    for (const auto& pin : pins)
      expect_contains(message, pin);
    const auto host = "host " + host_name();
    if (const auto at = message.find(host); at != message.npos)
      message.replace(at, host.size(), "host HOST");
    expect_wording("launch/preflight", name, message);
  }

  TemporaryDirectory folder;
  fs::path cluster = folder / "cluster.json", baseline = folder / "preflight.json";
  std::string out;
};

TEST(Preflight, a_fault_leaves_both_files_unchanged) {
  LastTime slower("1e18");
  const auto before = slurp(slower.baseline);
  EXPECT_EQ(slower.finish(slower.folder.path()), 75);
  for (const auto& pin : {host_name(), std::string("rank 0: memory, read and written: "),
                          std::string("1000000 TB/s")})
    expect_contains(slower.out, pin);
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
  EXPECT_EQ(slurp(slower.baseline), before);
  // No other file is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(slower.folder.path()), {}), 2);
}

TEST(Preflight, unusable_files_are_rejected_before_measuring) {
  LastTime last("0", "n1");
  const auto& folder = last.folder.path();
  last.refused<DataError>("a rate of 0", folder,
                          {last.baseline.string(), "memory, read and written: "});
  last.cluster = last.folder / "nowhere/cluster.json";
  last.refused("no folder", folder, {last.cluster.string()});
  last.cluster = last.baseline;
  last.refused("one file", folder, {"--cluster-out", "--baseline", last.baseline.string()});
  LastTime wrong;
  wrong.refused("--scratch where none may write", "/proc", {"--scratch /proc"});
  wrong.refused("no --scratch", wrong.folder / "nowhere", {"--scratch", "/nowhere"});
  fs::remove(wrong.baseline);
  fs::create_directory(wrong.baseline);
  wrong.refused("a folder", wrong.folder.path(), {"preflight.json"});
  EXPECT_EQ(std::distance(fs::directory_iterator(wrong.folder.path()), {}), 2);
}

TEST(Preflight, only_empty_and_earlier_cluster_files_are_replaced) {
  LastTime last;
  last.cluster = last.folder / "h100.toml";
  for (const char* text :
       {"name = 'of a person'", "{\"format\": \"lockstep plan 1\"}", "[]", "{", "3"}) {
    spit(last.cluster, text);
    last.refused("another file", last.folder.path(),
                 {str("--cluster-out ", last.cluster.string()), "/h100-measured.json"});
    EXPECT_EQ(slurp(last.cluster), text);
  }
  for (const char* text : {"", kClusterOfLastTime, "{\"format\": \"lockstep cluster 0\"}"}) {
    spit(last.cluster, text);
    last.said([](auto&) {});
  }
}

TEST(Preflight, findings_are_printed_if_preflight_ends_with_an_error) {
  const LastTime slower("1e18", "n1");
  const auto said = [&](const std::vector<std::vector<Finding>>& by_rank) {
    return slower.said([&](auto& report) { report.hear(by_rank); });
  };
  Finding memory{.check = "memory, read and written",
                 .unit = Finding::Unit::bytes_per_second,
                 .value = 1e9,
                 .tolerance = 0.4,
                 .of = "1 rank on the host, 1 thread each"};
  const auto wrong = said({{memory}});
  expect_contains(wrong, "host n1, rank 0: memory, read and written: 1.00 GB/s");
  expect_wording("launch/preflight", "what was found", wrong);
  memory.of = "1 rank on the host, 2 threads each";
  expect_wording("launch/preflight", "another configuration", said({{memory}}));
  EXPECT_TRUE(said({}).starts_with("warning: ")) << "of the cluster's file; nothing is printed";
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
}

TEST(Preflight, a_busy_host_is_reported_with_the_remedy_and_the_kept_files) {
  const LastTime last;
  const auto conclude = [&](const Finding& share) {
    return last.said([&](auto& report) {
      report.hear({{share}});
      EXPECT_EQ(report.conclude({}, nullptr), 75);
    });
  };
  Finding share{
      .check = "share of its CPU time", .unit = Finding::Unit::share, .value = 0.49, .limit = 0.9};
  const auto both = conclude(share);
  for (const auto& pin :
       {std::string("host n1, rank 0: share of its CPU time: 49 %"), std::string("`top`"),
        std::string("--threads"), last.cluster.string(), last.baseline.string()})
    expect_contains(both, pin);
  expect_wording("launch/preflight", "a busy machine", both);
  fs::remove(last.cluster);
  expect_wording("launch/preflight", "a busy machine, one file", conclude(share));
  fs::remove(last.baseline);
  share.value = Finding::kNone;
  share.failure = "no schedstat";
  const auto unknown = conclude(share);
  EXPECT_EQ(unknown.find("top"), unknown.npos) << unknown;
  expect_wording("launch/preflight", "not known whether it is busy, no file", unknown);
}

TEST(Preflight, values_that_preflight_does_not_measure_are_kept) {
  const LastTime last;
  Cluster measured = processors(1);
  measured.hardware.name = "processors";
  const auto conclude = [&](const Cluster* named) {
    return last.said([&](auto& report) {
      report.hear({{{.check = "a", .value = 0, .limit = 0}}});
      EXPECT_EQ(report.conclude(measured, named), 0);
    });
  };
  const auto written = [&] { return parse_cluster(Json::parse(slurp(last.cluster), "it")); };
  expect_wording("launch/preflight", "no cluster", conclude(nullptr));
  EXPECT_EQ(written().watts, 0);

  Cluster costly = measured;
  costly.watts = 700;
  costly.price_per_gpu_hour = 2.5;
  costly.currency = "EUR";
  costly.gpu_hours_per_interruption = 1000;
  costly.restart_seconds = 60;
  costly.launch_seconds = 0.5;  // measured
  spit(last.cluster, to_json(costly).dump());
  spit(PlanErrors::file_beside(last.cluster), "of the old one");
  expect_wording("launch/preflight", "residuals", conclude(nullptr));
  EXPECT_EQ(slurp(last.folder / "cluster.residuals.json.before"), "of the old one");
  EXPECT_FALSE(fs::exists(PlanErrors::file_beside(last.cluster)));
  Cluster expected = costly;
  expected.launch_seconds = 0;
  EXPECT_EQ(to_json(written()).dump(), to_json(expected).dump());

  Cluster named = costly;
  named.watts = 1275;
  conclude(&named);
  EXPECT_EQ(written().watts, 1275);
}

}  // namespace lockstep::testing::preflight_report_test
