#include "launch/plan/cluster_file.h"

#include <gtest/gtest.h>
#include <sstream>
#include <utility>

#include "core/file.h"
#include "tests/wording.h"

namespace lockstep::testing::cluster_file_test {

const std::filesystem::path kClusters =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs" / "clusters";

// A file as docs/formats.md describes it.
constexpr const char* kUnknownGpu = R"(name = "ours"
ranks_per_node = 4
[hardware]
name = "B300"
bf16_flops = 2500e12
fp32_flops = 80e12
multiprocessors = 160
hbm_bytes_per_second = 8e12
hbm_bytes = 309_237_645_312
nvlink_bytes_per_second = 740e9
nic_bytes_per_second = 92e9
host_bytes_per_second = 55e9
domain_ranks = 4
)";

Cluster read(std::string_view text) {
  return cluster_of(text, "a.toml");
}
void refused(const std::string& name, const std::string& text,
             std::initializer_list<std::string> pins) {
  expect_refusal<ConfigError>("launch/cluster_file", name, pins, [&] { read(text); });
}
std::string without(const std::string& line_begin) {
  std::string text = kUnknownGpu;
  const auto at = text.find(str("\n", line_begin)) + 1;
  return text.erase(at, text.find('\n', at) + 1 - at);
}

TEST(ClusterFile, keys_override_the_values_of_a_known_gpu) {
  const Cluster c = read(
      "name = 'ours'\nnodes = 2\nranks_per_node = 8\ngpu = 'H100'\nwatts = 1300\n"
      "[hardware]\nnic_bytes_per_second = 23e9\n");
  const Hardware& known = *find_hardware("NVIDIA H100");
  EXPECT_EQ(c.hardware.name, known.name);
  EXPECT_EQ(c.hardware.bf16_flops, known.bf16_flops);
  EXPECT_EQ(c.hardware.nic_bytes_per_second, 23e9);
  EXPECT_EQ(c.hardware.domain_ranks, 8);
  EXPECT_EQ(c.nodes, 2);
  EXPECT_EQ(c.watts, 1300);
  EXPECT_EQ(c.device, Device::Kind::cuda);
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 4\ngpu = 'H100'\nhardware.domain_ranks = 8\n")
                .hardware.domain_ranks,
            8);
  // The order of keys has no effect.
  EXPECT_EQ(to_json(read("hardware.nic_bytes_per_second = 23e9\nwatts = 1300\nnodes = 2\n"
                         "name = 'ours'\ngpu = 'H100'\nranks_per_node = 8\n"))
                .dump(),
            to_json(c).dump());
}

TEST(ClusterFile, an_unknown_gpu_needs_all_its_values) {
  const Cluster c = read(kUnknownGpu);
  EXPECT_EQ(c.hardware.name, "B300");
  EXPECT_EQ(c.hardware.multiprocessors, 160);
  EXPECT_EQ(c.hardware.hbm_bytes, 309'237'645'312);
  EXPECT_LT(c.hardware.sustained, 1);
  for (const char* key :
       {"name", "bf16_flops", "fp32_flops", "multiprocessors", "hbm_bytes_per_second", "hbm_bytes",
        "nvlink_bytes_per_second", "nic_bytes_per_second", "host_bytes_per_second", "domain_ranks"})
    refused(str("no hardware.", key), without(str(key, " = ")), {str("hardware.", key, " ")});
  refused("no ranks_per_node", without("ranks_per_node"), {"a.toml", "ranks_per_node"});
  refused(
      "a GPU in part",
      "name = 'a'\nranks_per_node = 8\nhardware.name = 'b'\nhardware.fp32_flops = 1e12\n"
      "hardware.hbm_bytes = 8e9\nhardware.domain_ranks = 8\n",
      {"a.toml", "hardware.bf16_flops", "hardware.hbm_bytes_per_second", "hardware.multiprocessors",
       "hardware.nvlink_bytes_per_second", "hardware.nic_bytes_per_second"});
  refused("a processor in part",
          "name = 'a'\nranks_per_node = 2\ndevice = 'cpu'\n[hardware]\nname = 'b'\n"
          "fp32_flops = 1e12\nhbm_bytes = 8e9\n",
          {"a.toml", "hardware.bf16_flops", "hardware.hbm_bytes_per_second", "docs/formats.md"});
}

TEST(ClusterFile, an_nvlink_rate_of_0_is_an_error_with_the_values_to_write) {
  std::string text = kUnknownGpu;
  const std::string_view rate = "740e9";
  text.replace(text.find(rate), rate.size(), "0");
  refused("no NVLink", text,
          {"a.toml", "hardware.nvlink_bytes_per_second", "0", "4.0", "16", "25e9"});
  const std::string_view domain = "domain_ranks = 4";
  text.replace(text.find(domain), domain.size(), "domain_ranks = 1");
  EXPECT_EQ(read(text).hardware.domain_ranks, 1);
}

// Every indented block of docs/formats.md, "Clusters", is a file.
TEST(ClusterFile, examples_of_the_documentation_are_valid) {
  const auto file = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "docs" / "formats.md";
  const auto page = read_text(file, 1 << 20);
  const auto begin = page.find("\n## Clusters\n");
  std::istringstream lines(page.substr(begin, page.find("\n### cluster.json\n") - begin));
  std::vector<std::string> examples;
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const bool was_inside = std::exchange(is_inside, line.starts_with("    "));
    if (is_inside && !was_inside) examples.emplace_back();
    if (is_inside) examples.back() += line + "\n";
  }
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(read(examples[0]).hardware.name, "NVIDIA H100");
  EXPECT_EQ(read(examples[1]).hardware.nvlink_bytes_per_second, 25e9);
}

TEST(ClusterFile, errors_name_the_line_and_the_nearest_key) {
  const std::string begin = "name = 'a'\nranks_per_node = 8\ngpu = 'H100'\n";
  const auto line = [&](const std::string& text, std::initializer_list<std::string> pins) {
    refused(text, str(begin, text, "\n"), pins);
  };
  line("nods = 4", {"a.toml:4", "nods", "nodes?"});
  line("[hardware]\nnic_bytes = 4", {"a.toml:5", "hardware.nic_bytes", "hardware.hbm_bytes?"});
  line("[hardwares]", {"a.toml:4", "hardwares", "hardware?"});
  line("nodes = 0", {"a.toml:4: nodes", "1048576"});
  line("nodes = [1]", {"a.toml:4: nodes"});
  line("watts = true", {"a.toml:4: watts", "1000000", "true"});
  refused("an unknown GPU", "name = 'a'\ngpu = 'H1000'\n",
          {"a.toml:2", "\"H1000\"", "H100?", "A100"});
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 8\ngpu = 'h100 pcie'\n").hardware.name,
            "NVIDIA H100 PCIe");
  EXPECT_EQ(read(str(begin, "hardware.hbm_bytes = 80e9\n")).hardware.hbm_bytes, 80'000'000'000);
  line("hardware.hbm_bytes = 80", {"hardware.hbm_bytes", "1048576"});
  line("host_memory_bytes = 2048", {"host_memory_bytes", "0", "1048576", "2048"});
  refused("gpu = 5", "name = 'a'\ngpu = 5\n", {"a.toml:2", "gpu", "5"});
  expect_contains(message_of<ConfigError>([] { read("name = \n"); }), "a.toml:1: ");
  line("device = 'cpu'", {"a.toml:3", "gpu", "H100", "device"});
  line("hardware.nic_bytes_per_second = 0\nnodes = 2",
       {"a.toml", "hardware.nic_bytes_per_second", "0"});
  const TemporaryDirectory directory;
  const auto nowhere = directory / "c.toml";
  expect_refusal<ConfigError>("launch/cluster_file", "no file", {nowhere.string()},
                              [&] { load_cluster(nowhere); });
}

TEST(ClusterFile, json_is_detected_by_its_content) {
  const Cluster c = read(kUnknownGpu);
  const auto again = cluster_of(str("\n ", to_json(c).dump(1)), "c.json");
  EXPECT_EQ(to_json(again).dump(), to_json(c).dump());
  expect_refusal<DataError>("launch/cluster_file", "another format", {"c.json: ", "\"x\""},
                            [] { cluster_of(R"({"format": "x"})", "c.json"); });
  expect_contains(message_of<DataError>([] { cluster_of("{", "c.json"); }), "c.json: at byte 1");
}

TEST(ClusterFile, files_of_this_repository_are_valid) {
  int files = 0;
  for (const auto& file : directory_entries(kClusters)) {
    const Cluster c = load_cluster(file);
    EXPECT_GT(c.ranks(), 1) << file;
    // parse_cluster() reads the same cluster back.
    EXPECT_EQ(to_json(parse_cluster(to_json(c))).dump(), to_json(c).dump()) << file;
    ++files;
  }
  EXPECT_EQ(files, 7);
  EXPECT_EQ(load_cluster(kClusters / "gb200_nvl72.toml").hardware.domain_ranks, 72);
  EXPECT_EQ(load_cluster(kClusters / "cpu.toml").device, Device::Kind::cpu);
}

}  // namespace lockstep::testing::cluster_file_test
