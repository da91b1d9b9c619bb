#include "launch/plan/cluster.h"

#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::cluster_test {

// A cluster whose members all differ from their defaults.
Cluster measured() {
  Cluster c;
  c.name = "two racks";
  c.device = Device::Kind::cpu;
  c.nodes = 3;
  c.ranks_per_node = 2;
  c.threads = 5;
  c.hardware = {.name = "processor",
                .architecture = GpuArchitecture::blackwell,
                .bf16_flops = 2e12,
                .fp8_flops = 3e12,
                .fp32_flops = 1e12,
                .multiprocessors = 7,
                .hbm_bytes_per_second = 4e9,
                .hbm_bytes = 12'345'678,
                .nvlink_bytes_per_second = 5e9,
                .nic_bytes_per_second = 6e9,
                .host_bytes_per_second = 7e9,
                .domain_ranks = 2,
                .sustained = 0.5,
                .power = 0.25,
                .slowdown = 0.125};
  c.inside_latency_seconds = 3e-6;
  c.across_latency_seconds = 7e-5;
  c.operators = OperatorTimes::parse(Json::parse(
      R"([{"operator": "gelu", "type": "bf16", "bytes": 8, "calls": 3, "seconds": 0.25},)"
      R"({"operator": "matmul", "type": "fp32", "bytes": 16, "calls": 1, "seconds": 0.5,)"
      R"("sizes": [2, 3, 4, 0], "flops": 48}])",
      "operators"));
  c.links = LinkTimes({{.kind = Collective::all_to_all,
                        .ranks = 6,
                        .domains = 3,
                        .beside = true,
                        .times = {{1000, 0.25}, {2000, 0.5}},
                        .latency_seconds = 0.125,
                        .bytes_per_second = 1e9,
                        .worst_error = 0.0625}});
  c.compute_beside = 1.5;
  c.other_beside = 1.25;
  c.wait_share = 0.375;
  c.launch_seconds = 2e-6;
  c.constant_bytes = 54321;
  c.storage_read_bytes_per_second = 8e9;
  c.storage_write_bytes_per_second = 9e9;
  c.watts = 700;
  c.price_per_gpu_hour = 2.5;
  c.currency = "EUR";
  c.gpu_hours_per_interruption = 1000;
  c.restart_seconds = 60;
  return c;
}

const Json& json() {
  static const Json written = to_json(measured());
  return written;
}

// The reader rejects `changed` with the message `name`.
void refused(const std::string& name, const Json& changed,
             std::initializer_list<std::string> pins) {
  expect_refusal<DataError>("launch/cluster", name, pins,
                            [&] { parse_cluster(Json::parse(changed.dump(), "cluster.json")); });
}

Json with(Json object, const std::string& key, const Json& value) {
  object.set(key, value);
  return object;
}

Json without(const Json& object, const std::string& key) {
  Json::Object kept;
  for (const auto& [name, value] : object.as_object())
    if (name != key) kept.emplace_back(name, value);
  return kept;
}

TEST(Cluster, a_cluster_reads_back_as_written) {
  const Json& written = json();
  const Cluster again = parse_cluster(Json::parse(to_json(measured()).dump(1), "cluster.json"));
  EXPECT_EQ(to_json(again).dump(), written.dump());
  EXPECT_EQ(again.hardware.name, "processor");
  EXPECT_EQ(again.hardware.architecture, GpuArchitecture::blackwell);
  EXPECT_EQ(again.hardware.hbm_bytes, 12'345'678);
  EXPECT_EQ(again.hardware.slowdown, 0.125);
  EXPECT_EQ(again.device, Device::Kind::cpu);
  EXPECT_EQ(again.links.links().front().worst_error, 0.0625);
  EXPECT_EQ(again.operators.times().size(), 2u);
  EXPECT_EQ(again.ranks(), 6);
  // No member is left out: each member of measured() differs from its default.
  const Json defaults = to_json(Cluster());
  for (const auto& [key, value] : written.as_object()) {
    if (key == "format" || key == "hardware" || key == "host_memory_bytes") continue;
    EXPECT_NE(value.dump(), defaults.at(key).dump()) << key;
  }
  for (const auto& [key, value] : written.at("hardware").as_object())
    EXPECT_NE(value.dump(), defaults.at("hardware").at(key).dump()) << key;
}

TEST(Cluster, only_clusters_of_gpus_have_separate_host_memory) {
  Cluster c = measured();
  c.host_memory_bytes = 98765432;
  expect_refusal<DataError>("launch/cluster", "host memory without GPUs",
                            {"host_memory_bytes", "hardware.hbm_bytes", "98765432"},
                            [&] { check(c); });
  c.device = Device::Kind::cuda;
  EXPECT_EQ(parse_cluster(to_json(c)).host_memory_bytes, 98765432);
}

TEST(Cluster, an_nvlink_domain_is_inside_a_host_except_in_a_rack) {
  const auto domain = [](const char* gpu, int ranks_per_node) {
    return cluster_of_gpus(*find_hardware(gpu), ranks_per_node).hardware.domain_ranks;
  };
  EXPECT_EQ(domain("NVIDIA H100", 8), 8);
  EXPECT_EQ(domain("NVIDIA H100", 2), 2);
  EXPECT_EQ(domain("NVIDIA H100", 16), 8);
  EXPECT_EQ(domain("NVIDIA H100 PCIe", 8), 2);
  EXPECT_EQ(domain("NVIDIA GB200", 4), 72);
  EXPECT_EQ(cluster_of_gpus(*find_hardware("NVIDIA H100"), 4, 3).ranks(), 12);
}

TEST(Cluster, each_member_is_written_under_its_name) {
  EXPECT_EQ(without(without(json(), "links"), "operators").dump(),
            R"({"format":"lockstep cluster 1","name":"two racks","device":"cpu","nodes":3,)"
            R"("ranks_per_node":2,"threads":5,"inside_latency_seconds":3e-06,)"
            R"("across_latency_seconds":7e-05,"compute_beside":1.5,"other_beside":1.25,)"
            R"("wait_share":0.375,"launch_seconds":2e-06,"constant_bytes":54321,)"
            R"("host_memory_bytes":0,)"
            R"("storage_read_bytes_per_second":8e+09,)"
            R"("storage_write_bytes_per_second":9e+09,"watts":700.0,)"
            R"("price_per_gpu_hour":2.5,"currency":"EUR","gpu_hours_per_interruption":1000.0,)"
            R"("restart_seconds":60.0,"hardware":{"name":"processor","architecture":"blackwell",)"
            R"("bf16_flops":2e+12,"fp8_flops":3e+12,)"
            R"("fp32_flops":1e+12,"multiprocessors":7,)"
            R"("hbm_bytes_per_second":4e+09,"hbm_bytes":12345678,)"
            R"("nvlink_bytes_per_second":5e+09,"nic_bytes_per_second":6e+09,)"
            R"("host_bytes_per_second":7e+09,"domain_ranks":2,"sustained":0.5,)"
            R"("power":0.25,"slowdown":0.125}})");
}

TEST(Cluster, missing_and_unknown_members_are_rejected_by_name) {
  const Json& hardware = json().at("hardware");
  for (const auto& [key, value] : json().as_object())
    refused("no " + key, without(json(), key), {str('"', key, '"')});
  for (const auto& [key, value] : hardware.as_object())
    refused("no hardware." + key, with(json(), "hardware", without(hardware, key)),
            {"hardware." + key});
  refused("an unknown key", with(json(), "colour", "red"), {"colour"});
  refused("an unknown key of hardware", with(json(), "hardware", with(hardware, "nodes", 3)),
          {"hardware.nodes"});
}

TEST(Cluster, invalid_values_are_rejected_by_name) {
  struct Lie {
    const char* key;
    Json value;
    const char* pin = "";
  };
  for (const auto& [key, value, pin] : std::vector<Lie>{
           {"format", "lockstep cluster 2", "\"lockstep cluster 1\""},
           {"nodes", 0, "1048576"},
           {"nodes", 1.5},
           {"name", ""},
           {"device", "tpu", "\"cpu\", \"cuda\""},
           {"watts", "hot"},
           {"watts", -1},
           {"compute_beside", 0.5},
           {"threads", 1.5},
           {"storage_read_bytes_per_second", {}, "null"},
           {"storage_write_bytes_per_second", 5, "1e4 to 1e18"},
           {"storage_write_bytes_per_second", 1e19, "1e4 to 1e18"},
           {"host_memory_bytes", 1e300},
           {"links", Json::Array{Json::Object{{"collective", "gossip"}}}, "[0]: \"gossip\""},
           {"operators", Json::Array{Json::Object{{"operator", "gelu"}}}, "[0]: "}})
    refused(str(key, " = ", value.dump()), with(json(), key, value), {key, pin});
}

TEST(Cluster, a_rate_of_0_is_rejected_if_ranks_need_it) {
  const auto lacking = [](const char* key, auto change) {
    Cluster c = measured();
    change(c);
    expect_refusal<DataError>("launch/cluster", str(key, " = 0"), {key}, [&] { check(c); });
  };
  check(measured());
  lacking("hardware.bf16_flops", [](Cluster& c) { c.hardware.bf16_flops = 0; });
  lacking("hardware.nic_bytes_per_second", [](auto& c) { c.hardware.nic_bytes_per_second = 0; });
  lacking("hardware.nvlink_bytes_per_second",
          [](Cluster& c) { c.hardware.nvlink_bytes_per_second = 0; });
  lacking("hardware.multiprocessors", [](Cluster& c) {
    c.device = Device::Kind::cuda;
    c.hardware.multiprocessors = 0;
  });
  // A single host needs no NIC, and a single rank no link.
  Cluster alone = measured();
  alone.nodes = 1;
  alone.hardware.nic_bytes_per_second = 0;
  check(alone);
  alone.ranks_per_node = 1;
  alone.hardware.nvlink_bytes_per_second = 0;
  check(alone);
}

Op op_of(Op::Kind kind, DType dtype, double flops, std::int64_t bytes) {
  Op op;
  op.name = "all_gather";
  op.kind = kind;
  op.dtype = dtype;
  op.flops = flops;
  op.bytes = bytes;
  return op;
}

// Computed by hand for measured(): 0.5 of 2e12 FLOP/s in bf16, 4e9 B/s of memory, 5e9 and 6e9 B/s
// of links.
TEST(ClusterTimes, on_cpus_follow_the_rates_of_the_file) {
  const ClusterTimes time_model(measured());
  const auto product = op_of(Op::Kind::product, DType::bf16, 1e12, 1000);
  EXPECT_DOUBLE_EQ(time_model.seconds(product, {}), 1.0);
  const auto wide = op_of(Op::Kind::product, DType::fp32, 1e6, 4'000'000'000);
  EXPECT_DOUBLE_EQ(time_model.seconds(wide, {}), 1.0);
  const auto memory = op_of(Op::Kind::memory, DType::bf16, 0, 2'000'000'000);
  EXPECT_DOUBLE_EQ(time_model.seconds(memory, {}), 0.5);
  const auto gather = op_of(Op::Kind::collective, DType::bf16, 0, 1'000'000'000);
  EXPECT_DOUBLE_EQ(time_model.seconds(gather, {.ranks = 1, .domains = 1}), 0);
  EXPECT_DOUBLE_EQ(time_model.seconds(gather, {.ranks = 2, .domains = 1}), 3e-6 + 0.2);
  EXPECT_DOUBLE_EQ(time_model.seconds(gather, {.ranks = 6, .domains = 3}), 7e-5 + 1.0 / 6);
}

TEST(ClusterTimes, on_gpus_equal_the_prices_of_their_hardware) {
  Cluster c;
  c.hardware = *find_hardware("NVIDIA H100");
  const ClusterTimes time_model(c);
  auto op = op_of(Op::Kind::collective, DType::bf16, 0, 1 << 30);
  op.ranks = 64;
  const TimeModel expected(c.hardware);
  EXPECT_DOUBLE_EQ(time_model.seconds(op, {.ranks = 64, .domains = 8}), expected.seconds(op, 8));
  op.kind = Op::Kind::memory;
  EXPECT_DOUBLE_EQ(time_model.seconds(op, {}), expected.seconds(op, 1));
}

}  // namespace lockstep::testing::cluster_test
