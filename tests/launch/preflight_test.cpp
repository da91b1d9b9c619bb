// What `lockstep preflight` leaves behind where something is wrong.
#include <filesystem>
#include <gtest/gtest.h>

#include "core/machine.h"
#include "launch/preflight_report.h"
#include "launch/preflight_verb.h"
#include "tests/files.h"
#include "tests/train/plan/cluster_rig.h"
#include "train/plan/residuals.h"

namespace lockstep::testing::preflight_test {

namespace fs = std::filesystem;

constexpr const char* kClusterOfLastTime = R"({"format": "lockstep cluster 1"})";

// Two files of the last time; memory was as fast then as `memory` says, of one thread.
struct LastTime {
  explicit LastTime(const std::string& memory = "1") {
    spit(cluster, kClusterOfLastTime);
    spit(baseline, str(R"({"format": "lockstep preflight 2", "checks": {"memory, read and )",
                       R"(written": {")", host_name(),
                       R"(/0": {"1 rank on the host, 1 thread each": )", memory, "}}}}"));
  }

  int preflight(const fs::path& scratch) const {
    PreflightVerbOptions options;
    options.cluster_out = cluster.string();
    options.scratch = scratch.string();
    options.device = "cpu";
    options.threads = 1;
    return run_preflight(options);
  }
  // Its exit code; what it prints is in `out`.
  int finish(const fs::path& scratch) {
    ::testing::internal::CaptureStdout();
    const int code = preflight(scratch);
    out = ::testing::internal::GetCapturedStdout();
    return code;
  }

  TemporaryDirectory folder;
  fs::path cluster = folder / "cluster.json", baseline = folder / "preflight.json";
  std::string out;
};

TEST(Preflight, both_files_stay_as_they_were_where_something_is_wrong) {
  LastTime slower("1e18");
  const auto before = slurp(slower.baseline);
  EXPECT_EQ(slower.finish(slower.folder.path()), 75);
  expect_contains(slower.out, str("host ", host_name(), ", rank 0: memory, read and written: "));
  expect_contains(slower.out, " less than the 1000000 TB/s of its best so far");
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
  EXPECT_EQ(slurp(slower.baseline), before);
  // And nothing else is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(slower.folder.path()), {}), 2);
}

TEST(Preflight, files_that_it_could_not_use_are_refused_before_it_measures) {
  LastTime last("0");
  const auto message = message_of<DataError>([&] { last.preflight(last.folder.path()); });
  expect_contains(message, last.baseline.string());
  expect_contains(message, "memory, read and written: ");
  expect_contains(message, "expected a number above 0");
  last.cluster = last.folder / "nowhere/cluster.json";
  expect_contains(message_of<ConfigError>([&] { last.preflight(last.folder.path()); }),
                  "nowhere/cluster.json: no folder ");
  last.cluster = last.baseline;
  expect_contains(message_of<ConfigError>([&] { last.preflight(last.folder.path()); }),
                  str("--cluster-out ", last.baseline.string(), " and --baseline ",
                      last.baseline.string(), " are one file"));
  LastTime wrong;
  expect_contains(message_of<ConfigError>([&] { wrong.preflight("/proc"); }),
                  str("--scratch /proc: no file can be written there on host ", host_name()));
  expect_contains(message_of<ConfigError>([&] { wrong.preflight(wrong.folder / "nowhere"); }),
                  str("/nowhere: no such folder on host ", host_name()));
  fs::remove(wrong.baseline);
  fs::create_directory(wrong.baseline);
  expect_contains(message_of<ConfigError>([&] { wrong.preflight(wrong.folder.path()); }),
                  "preflight.json: is a folder");
  EXPECT_EQ(std::distance(fs::directory_iterator(wrong.folder.path()), {}), 2);
}

TEST(Preflight, no_file_but_a_cluster_of_before_is_replaced) {
  LastTime last;
  const auto refused = [&] {
    return message_of<ConfigError>([&] { last.preflight(last.folder.path()); });
  };
  last.cluster = last.folder / "h100.toml";
  for (const char* text :
       {"name = 'of a person'", "{\"format\": \"lockstep plan 1\"}", "[]", "{", "3"}) {
    spit(last.cluster, text);
    EXPECT_EQ(refused(),
              str("--cluster-out ", last.cluster.string(),
                  ": expected no file, or a cluster.json that `lockstep preflight` wrote, "
                  "found another; name another file, such as --cluster-out ",
                  last.folder.path().string(), "/h100-measured.json"));
    EXPECT_EQ(slurp(last.cluster), text);
  }
  LoneWorld alone;
  Topology topology;
  topology.places.resize(1);
  for (const char* text : {"", kClusterOfLastTime, "{\"format\": \"lockstep cluster 0\"}"}) {
    spit(last.cluster, text);
    const PreflightReport report(alone, topology, {last.cluster, last.baseline});
  }
}

TEST(Preflight, what_was_found_is_said_where_it_ends_with_an_error) {
  const LastTime slower("1e18");
  const auto said = [&](const std::vector<std::vector<Finding>>& by_rank) {
    LoneWorld alone;
    Topology topology;
    topology.places.resize(1);
    topology.places.front().host = host_name();
    ::testing::internal::CaptureStdout();
    {
      PreflightReport report(alone, topology, {slower.cluster, slower.baseline});
      report.hear(by_rank);
    }
    return ::testing::internal::GetCapturedStdout();
  };
  Finding memory{.check = "memory, read and written",
                 .unit = Finding::Unit::bytes_per_second,
                 .value = 1e9,
                 .tolerance = 0.4,
                 .of = "1 rank on the host, 1 thread each"};
  expect_contains(said({{memory}}), str("host ", host_name(), ", rank 0: memory, read and "));
  memory.of = "1 rank on the host, 2 threads each";
  const auto other = said({{memory}});
  expect_contains(other, "(other): what is known from before is of another configuration");
  expect_contains(other, "nothing was wrong up to there");
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(slurp(slower.cluster), kClusterOfLastTime);
}

TEST(Preflight, a_busy_machine_is_told_what_to_do_and_what_becomes_of_the_files) {
  const LastTime last;
  const auto conclude = [&](const Finding& share) {
    LoneWorld alone;
    Topology topology;
    topology.places.resize(1);
    topology.places.front().host = "n1";
    PreflightReport report(alone, topology, {last.cluster, last.baseline});
    report.hear({{share}});
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(report.conclude({}, nullptr), 75);
    return ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  };
  const auto cluster = last.cluster.string(), baseline = last.baseline.string();
  Finding share{.check = "share of its processors' time",
                .unit = Finding::Unit::share,
                .value = 0.49,
                .limit = 0.9};
  const auto both = conclude(share);
  expect_contains(both,
                  "\nhost n1, rank 0: share of its processors' time: 49 %, expected at least 90 %\n"
                  "other programs run there (`top` shows them): end them, or measure with fewer "
                  "--threads\n");
  expect_contains(both, str(cluster, " and ", baseline, " stay as they were\n"));
  fs::remove(last.cluster);
  expect_contains(conclude(share),
                  str(baseline, " stays as it was, ", cluster, " is not written\n"));
  fs::remove(last.baseline);
  share.value = Finding::kNone;
  share.failure = "no schedstat";
  const auto unknown = conclude(share);
  EXPECT_EQ(unknown.find("top"), unknown.npos) << unknown;
  expect_contains(unknown, str(cluster, " and ", baseline, " are not written\n"));
}

TEST(Preflight, what_nobody_measures_is_kept) {
  const LastTime last;
  Cluster measured = processors(1);
  measured.hardware.name = "processors";
  const auto conclude = [&](const Cluster* named) {
    LoneWorld alone;
    Topology topology;
    topology.places.resize(1);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    PreflightReport report(alone, topology, {last.cluster, last.baseline});
    report.hear({{{.check = "a", .value = 0, .limit = 0}}});
    EXPECT_EQ(report.conclude(measured, named), 0);
    ::testing::internal::GetCapturedStdout();
    return ::testing::internal::GetCapturedStderr();
  };
  const auto written = [&] { return parse_cluster(Json::parse(slurp(last.cluster), "it")); };
  expect_contains(conclude(nullptr),
                  "if it says what a GPU costs or how often runs are interrupted");
  EXPECT_EQ(written().watts, 0);

  Cluster costly = measured;
  costly.watts = 700;
  costly.price_per_gpu_hour = 2.5;
  costly.currency = "EUR";
  costly.gpu_hours_per_interruption = 1000;
  costly.restart_seconds = 60;
  costly.launch_seconds = 0.5;  // measured
  write_cluster(last.cluster, costly);
  spit(Residuals::file_beside(last.cluster), "of the old one");
  expect_contains(conclude(nullptr), "cluster.residuals.json was of the machines as they were ");
  EXPECT_EQ(slurp(last.folder / "cluster.residuals.json.before"), "of the old one");
  EXPECT_FALSE(fs::exists(Residuals::file_beside(last.cluster)));
  Cluster expected = costly;
  expected.launch_seconds = 0;
  EXPECT_EQ(to_json(written()).dump(), to_json(expected).dump());

  Cluster named = costly;
  named.watts = 1275;
  conclude(&named);
  EXPECT_EQ(written().watts, 1275);
}

}  // namespace lockstep::testing::preflight_test
