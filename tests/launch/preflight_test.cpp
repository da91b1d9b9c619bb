// What `lockstep preflight` leaves behind where something is wrong.
#include <filesystem>
#include <gtest/gtest.h>

#include "core/machine.h"
#include "launch/preflight_verb.h"
#include "tests/files.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

// Two files of the last time; memory was as fast then as `memory` says.
struct LastTime {
  explicit LastTime(const std::string& memory = "1") {
    spit(cluster, "the cluster of the last time");
    spit(baseline, str(R"({"format": "lockstep preflight 1", "checks": {"memory, read and )",
                       R"(written": {")", host_name(), R"(/0": )", memory, "}}}"));
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
  expect_contains(slower.out, " less than the 1000000 TB/s of the last time");
  EXPECT_EQ(slurp(slower.cluster), "the cluster of the last time");
  EXPECT_EQ(slurp(slower.baseline), before);
  LastTime wrong;
  EXPECT_EQ(wrong.finish(wrong.folder / "nowhere"), 78);
  expect_contains(wrong.out, "storage, written: could not be measured: --scratch ");
  EXPECT_EQ(slurp(wrong.cluster), "the cluster of the last time");
  for (const auto& one : {&slower, &wrong})  // and nothing else is left
    EXPECT_EQ(std::distance(fs::directory_iterator(one->folder.path()), {}), 2);
}

TEST(Preflight, files_that_it_could_not_use_are_refused_before_it_measures) {
  LastTime last("[]");
  const auto message = message_of<DataError>([&] { last.preflight(last.folder.path()); });
  expect_contains(message, last.baseline.string());
  expect_contains(message, "memory, read and written: ");
  expect_contains(message, "expected a number");
  last.cluster = last.folder / "nowhere/cluster.json";
  expect_contains(message_of<ConfigError>([&] { last.preflight(last.folder.path()); }),
                  "nowhere/cluster.json: no folder ");
}

}  // namespace
}  // namespace lockstep::testing
