#include "core/control_groups.h"

#include <climits>
#include <gtest/gtest.h>
#include <limits>

#include "tests/files.h"

namespace lockstep::testing::control_groups_test {

constexpr auto kUnlimited = std::numeric_limits<std::int64_t>::max();

class ControlGroupsTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int processors(const char* membership) const {
    return processors_granted({membership, root_.path()});
  }
  MemoryGranted memory(const char* membership) const {
    return memory_granted({membership, root_.path()});
  }

 private:
  TemporaryDirectory root_;
};

TEST_F(ControlGroupsTest, the_smallest_quota_of_a_group_and_its_parents_counts) {
  EXPECT_EQ(processors("0::/a/b\n"), INT_MAX);
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(processors("0::/a/b\n"), INT_MAX);
  write("a/cpu.max", "350000 100000\n");
  EXPECT_EQ(processors("0::/a/b\n"), 4);
  write("a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(processors("0::/a/b\n"), 1);
  EXPECT_EQ(processors("0::/a\n"), 4);
  EXPECT_EQ(processors("0::/\n"), INT_MAX);
  EXPECT_EQ(processors(""), INT_MAX);
}

TEST_F(ControlGroupsTest, quotas_of_version_1_and_of_a_container_with_its_own_root_count) {
  const char* membership = "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:cpuset:/docker/x\n";
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(membership), INT_MAX);
  write("cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(processors(membership), 2);
}

TEST_F(ControlGroupsTest, memory_is_the_smallest_limit_minus_memory_that_cannot_be_dropped) {
  EXPECT_EQ(memory("0::/job/step\n").limit, kUnlimited);
  write("job/memory.max", "1000000\n");
  write("job/memory.current", "700000\n");
  write("job/memory.stat", "anon 500000\ninactive_file 100000\nactive_file 100000\n");
  write("job/step/memory.max", "max\n");
  EXPECT_EQ(memory("0::/job/step\n").limit, 1000000);
  EXPECT_EQ(memory("0::/job/step\n").left, 500000);
  write("job/step/memory.max", "300000\n");
  EXPECT_EQ(memory("0::/job/step\n").limit, 300000);
  EXPECT_EQ(memory("0::/job/step\n").left, 300000);
  write("job/step/memory.current", "300001\n");
  EXPECT_EQ(memory("0::/job/step\n").left, 0);
}

TEST_F(ControlGroupsTest, memory_of_version_1_counts_too) {
  const char* membership = "4:memory:/slurm/job\n1:cpu:/\n0::/\n";
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");  // means no limit
  EXPECT_EQ(memory(membership).left, kUnlimited);
  write("memory/memory.stat", "total_inactive_file 8192\n");  // and no file has the used memory
  EXPECT_EQ(memory(membership).left, kUnlimited);
  write("memory/slurm/job/memory.limit_in_bytes", "1000000\n");
  write("memory/slurm/job/memory.usage_in_bytes", "900000\n");
  write("memory/slurm/job/memory.stat", "inactive_file 7\ntotal_inactive_file 50000\n");
  EXPECT_EQ(memory(membership).limit, 1000000);
  EXPECT_EQ(memory(membership).left, 150000);
}

}  // namespace lockstep::testing::control_groups_test
