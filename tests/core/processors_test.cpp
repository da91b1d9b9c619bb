#include "core/processors.h"

#include <climits>
#include <gtest/gtest.h>
#include <thread>

#include "tests/files.h"

namespace lockstep::testing {
namespace {

TEST(Processors, affinity_is_what_it_was_set_to) {
  const auto all = affinity();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    EXPECT_EQ(affinity(), all);
    set_affinity({&all.back(), 1});
    EXPECT_EQ(affinity(), std::vector<int>{all.back()});
    set_affinity(all);
    EXPECT_EQ(affinity(), all);
  }).join();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(Processors, the_least_quota_of_a_group_and_those_above_it_counts) {
  const TemporaryDirectory root;
  const auto granted = [&](const char* membership) {
    return processors_granted(membership, root.path());
  };
  EXPECT_EQ(granted("0::/a/b\n"), INT_MAX);
  write_file(root / "a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(granted("0::/a/b\n"), INT_MAX);
  write_file(root / "a/cpu.max", "350000 100000\n");
  EXPECT_EQ(granted("0::/a/b\n"), 4);
  write_file(root / "a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(granted("0::/a/b\n"), 1);
  EXPECT_EQ(granted("0::/a\n"), 4);
  EXPECT_EQ(granted("0::/\n"), INT_MAX);
  EXPECT_EQ(granted(""), INT_MAX);
}

TEST(Processors, quotas_of_version_1_and_of_a_container_that_sees_its_own_group_count) {
  const TemporaryDirectory root;
  const char* membership = "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:cpuset:/docker/x\n";
  write_file(root / "cpu/cpu.cfs_quota_us", "-1\n");
  write_file(root / "cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors_granted(membership, root.path()), INT_MAX);
  write_file(root / "cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(processors_granted(membership, root.path()), 2);
}

}  // namespace
}  // namespace lockstep::testing
