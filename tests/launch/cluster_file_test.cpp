#include "launch/cluster_file.h"

#include <gtest/gtest.h>
#include <sstream>
#include <utility>

#include "core/file.h"
#include "tests/files.h"

namespace lockstep::testing::cluster_file_test {

const std::filesystem::path kClusters =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs" / "clusters";

// As docs/formats.md describes one.
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
std::string refusal(std::string_view text) {
  return message_of<ConfigError>([&] { read(text); });
}
std::string without(const std::string& line_begin) {
  std::string text = kUnknownGpu;
  const auto at = text.find(str("\n", line_begin)) + 1;
  return text.erase(at, text.find('\n', at) + 1 - at);
}

TEST(ClusterFile, a_known_gpu_is_named_and_keys_override_it) {
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
  // The order of keys says nothing.
  EXPECT_EQ(to_json(read("hardware.nic_bytes_per_second = 23e9\nwatts = 1300\nnodes = 2\n"
                         "name = 'ours'\ngpu = 'H100'\nranks_per_node = 8\n"))
                .dump(),
            to_json(c).dump());
}

TEST(ClusterFile, nvlink_of_one_machine_ends_there_and_that_of_a_rack_does_not) {
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 4\ngpu = 'H100'\n").hardware.domain_ranks, 4);
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 4\ngpu = 'GB200'\n").hardware.domain_ranks, 72);
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 4\ngpu = 'H100'\nhardware.domain_ranks = 8\n")
                .hardware.domain_ranks,
            8);
}

TEST(ClusterFile, an_unknown_gpu_is_described_and_nothing_of_it_is_guessed) {
  const Cluster c = read(kUnknownGpu);
  EXPECT_EQ(c.hardware.name, "B300");
  EXPECT_EQ(c.hardware.multiprocessors, 160);
  EXPECT_EQ(c.hardware.hbm_bytes, 309'237'645'312);
  EXPECT_LT(c.hardware.sustained, 1);
  for (const char* key :
       {"name", "bf16_flops", "fp32_flops", "multiprocessors", "hbm_bytes_per_second", "hbm_bytes",
        "nvlink_bytes_per_second", "nic_bytes_per_second", "host_bytes_per_second", "domain_ranks"})
    expect_contains(refusal(without(str(key, " = "))), str("hardware.", key, " is not set"));
  EXPECT_EQ(refusal(without("ranks_per_node")), "a.toml: ranks_per_node is not set");
  EXPECT_EQ(
      refusal("name = 'a'\nranks_per_node = 8\nhardware.name = 'b'\nhardware.fp32_flops = 1e12\n"
              "hardware.hbm_bytes = 8e9\nhardware.domain_ranks = 8\n"),
      "a.toml: hardware.bf16_flops, hardware.hbm_bytes_per_second, hardware.multiprocessors, "
      "hardware.nvlink_bytes_per_second, hardware.nic_bytes_per_second, "
      "hardware.host_bytes_per_second are not set; name a known GPU (gpu = \"H100\") or describe "
      "one, see docs/formats.md");
  EXPECT_EQ(
      refusal("name = 'a'\nranks_per_node = 2\ndevice = 'cpu'\n[hardware]\nname = 'b'\n"
              "fp32_flops = 1e12\nhbm_bytes = 8e9\n"),
      "a.toml: hardware.bf16_flops, hardware.hbm_bytes_per_second are not set; what a rank has "
      "is described in docs/formats.md");
}

TEST(ClusterFile, without_nvlink_it_is_said_what_to_write) {
  std::string text = kUnknownGpu;
  const std::string_view rate = "740e9";
  text.replace(text.find(rate), rate.size(), "0");
  EXPECT_EQ(
      refusal(text),
      "a.toml: hardware.nvlink_bytes_per_second: expected more than 0, as a domain of several "
      "GPUs has it, found 0; without NVLink write what PCIe carries between two GPUs in one "
      "direction (of 4.0 x 16 about 25e9), or hardware.domain_ranks = 1");
  const std::string_view domain = "domain_ranks = 4";
  text.replace(text.find(domain), domain.size(), "domain_ranks = 1");
  EXPECT_EQ(read(text).hardware.domain_ranks, 1);
}

// Every indented block of docs/formats.md, "Clusters", is a file.
TEST(ClusterFile, examples_of_the_page_read) {
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

TEST(ClusterFile, what_is_wrong_is_named_with_its_line_and_the_nearest_key) {
  const std::string begin = "name = 'a'\nranks_per_node = 8\ngpu = 'H100'\n";
  EXPECT_EQ(refusal(str(begin, "nods = 4\n")), "a.toml:4: unknown key nods; did you mean nodes?");
  EXPECT_EQ(refusal(str(begin, "[hardware]\nnic_bytes = 4\n")),
            "a.toml:5: unknown key hardware.nic_bytes; did you mean hardware.hbm_bytes?");
  EXPECT_EQ(refusal(str(begin, "[hardwares]\n")),
            "a.toml:4: unknown table hardwares; did you mean hardware?");
  EXPECT_EQ(refusal(str(begin, "nodes = 0\n")),
            "a.toml:4: nodes: expected an integer, at least 1 and at most 1048576, found 0");
  EXPECT_EQ(refusal(str(begin, "nodes = [1]\n")),
            "a.toml:4: nodes: expected one value, found an array of more than strings");
  EXPECT_EQ(refusal(str(begin, "watts = true\n")),
            "a.toml:4: watts: expected a number, at least 0 and at most 1000000, found true");
  expect_contains(refusal("name = 'a'\ngpu = 'H1000'\n"),
                  "a.toml:2: \"H1000\" is no GPU that is known; did you mean H100? (A100");
  EXPECT_EQ(read("name = 'a'\nranks_per_node = 8\ngpu = 'h100 pcie'\n").hardware.name,
            "NVIDIA H100 PCIe");
  EXPECT_EQ(read(str(begin, "hardware.hbm_bytes = 80e9\n")).hardware.hbm_bytes, 80'000'000'000);
  expect_contains(refusal(str(begin, "hardware.hbm_bytes = 80\n")), "at least 1048576 and at most");
  expect_contains(refusal(str(begin, "host_memory_bytes = 2048\n")),
                  "host_memory_bytes: expected bytes (not GB), 0 or at least 1048576, found 2048");
  EXPECT_EQ(refusal("name = 'a'\ngpu = 5\n"),
            "a.toml:2: gpu: expected a string, found the integer 5");
  expect_contains(refusal("name = \n"), "a.toml:1: not TOML");
  expect_contains(refusal(str(begin, "device = 'cpu'\n")), "a.toml:3: gpu is H100, but device is");
  expect_contains(refusal(str(begin, "hardware.nic_bytes_per_second = 0\nnodes = 2\n")),
                  "a.toml: hardware.nic_bytes_per_second: expected more than 0");
  expect_contains(message_of<ConfigError>([] { load_cluster("/nowhere/c.toml"); }),
                  "/nowhere/c.toml");
}

TEST(ClusterFile, json_is_known_by_its_content) {
  const Cluster c = read(kUnknownGpu);
  const auto again = cluster_of(str("\n ", to_json(c).dump(1)), "c.json");
  EXPECT_EQ(to_json(again).dump(), to_json(c).dump());
  expect_contains(message_of<DataError>([] { cluster_of("{\"format\": \"x\"}", "c.json"); }),
                  "c.json: \"format\" is \"x\"");
  expect_contains(message_of<DataError>([] { cluster_of("{", "c.json"); }), "c.json: at byte");
}

TEST(ClusterFile, those_of_this_repository_read) {
  int files = 0;
  for (const auto& file : directory_entries(kClusters)) {
    const Cluster c = load_cluster(file);
    EXPECT_GT(c.ranks(), 1) << file;
    // As parse_cluster reads them again.
    EXPECT_EQ(to_json(parse_cluster(to_json(c))).dump(), to_json(c).dump()) << file;
    ++files;
  }
  EXPECT_EQ(files, 7);
  EXPECT_EQ(load_cluster(kClusters / "gb200_nvl72.toml").hardware.domain_ranks, 72);
  EXPECT_EQ(load_cluster(kClusters / "cpu.toml").device, Device::Kind::cpu);
}

}  // namespace lockstep::testing::cluster_file_test
