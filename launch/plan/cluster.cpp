#include "launch/plan/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <variant>

#include "core/file.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep cluster 1";
constexpr std::string_view kFormats = "lockstep cluster ";  // common start of the formats
constexpr double kMost = 1e30;
constexpr std::array<std::string_view, 2> kDevices{"cpu", "cuda"};
constexpr std::array<std::string_view, 3> kArchitectures{"ampere", "hopper", "blackwell"};

struct Choice {
  std::uint8_t* value;
  std::span<const std::string_view> names;
};
struct Field {
  std::string_view key;
  std::variant<int*, std::int64_t*, double*, std::string*, Choice> value;
  double least = 0, most = kMost;  // range of a number
  bool is_rate = false;            // a rate: 0, or at least kLeastRate
};

// Range of rates in bytes or FLOPs per second. A rate in GB or TFLOPs would be below it.
constexpr double kLeastRate = 1e4, kMostRate = 1e18;
constexpr double kLeastMemory = 1 << 20;  // bytes; an amount in GB would be below it

constexpr std::string_view kHardware = "hardware.";

std::vector<Field> fields(Cluster& c) {
  Hardware& h = c.hardware;
  constexpr double kCount = 1 << 20, kBytes = 1LL << 50;
  const auto rate = [](std::string_view key, double* value) {
    return Field{key, value, 0, kMostRate, true};
  };
  return {
      {"name", &c.name},
      {"device", Choice{reinterpret_cast<std::uint8_t*>(&c.device), kDevices}},
      {"nodes", &c.nodes, 1, kCount},
      {"ranks_per_node", &c.ranks_per_node, 1, 1024},
      {"threads", &c.threads, 1, 4096},
      {"hardware.name", &h.name},
      {"hardware.architecture",
       Choice{reinterpret_cast<std::uint8_t*>(&h.architecture), kArchitectures}},
      rate("hardware.bf16_flops", &h.bf16_flops),
      rate("hardware.fp8_flops", &h.fp8_flops),
      rate("hardware.fp32_flops", &h.fp32_flops),
      {"hardware.multiprocessors", &h.multiprocessors, 0, kCount},
      rate("hardware.hbm_bytes_per_second", &h.hbm_bytes_per_second),
      {"hardware.hbm_bytes", &h.hbm_bytes, kLeastMemory, kBytes},
      rate("hardware.nvlink_bytes_per_second", &h.nvlink_bytes_per_second),
      rate("hardware.nic_bytes_per_second", &h.nic_bytes_per_second),
      rate("hardware.host_bytes_per_second", &h.host_bytes_per_second),
      {"hardware.domain_ranks", &h.domain_ranks, 1, kCount},
      {"hardware.sustained", &h.sustained, 0.01, 1},
      {"hardware.power", &h.power, 0.01, 1},
      {"hardware.slowdown", &h.slowdown, 0, 1},
      {"inside_latency_seconds", &c.inside_latency_seconds, 0, 1},
      {"across_latency_seconds", &c.across_latency_seconds, 0, 1},
      {"compute_beside", &c.compute_beside, 0, 1000},
      {"other_beside", &c.other_beside, 1, 1000},
      {"wait_share", &c.wait_share, 0, 1000},
      {"launch_seconds", &c.launch_seconds, 0, 1},
      {"constant_bytes", &c.constant_bytes, 0, kBytes},
      {"host_memory_bytes", &c.host_memory_bytes, 0, kBytes},
      rate("storage_read_bytes_per_second", &c.storage_read_bytes_per_second),
      rate("storage_write_bytes_per_second", &c.storage_write_bytes_per_second),
      {"watts", &c.watts, 0, 1e6},
      {"price_per_gpu_hour", &c.price_per_gpu_hour, 0, 1e9},
      {"currency", &c.currency},
      {"gpu_hours_per_interruption", &c.gpu_hours_per_interruption, 1e-6, 1e15},
      {"restart_seconds", &c.restart_seconds, 0, 1e9},
  };
}

std::string number_text(double value) {
  return value < 1e15 && value == std::floor(value) ? str(static_cast<std::int64_t>(value))
                                                    : str(value);
}

std::string range_text(double least, double most) {
  return str(", at least ", number_text(least),
             most < kMost ? str(" and at most ", number_text(most)) : std::string());
}

struct Set {
  const Field& field;
  const Json& json;

  bool is_within(double value) const {
    if (field.is_rate && value != 0 && value < kLeastRate) return false;
    return value >= field.least && value <= field.most;
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    throw DataError(str("expected ", expected, ", found ", json.dump()));
  }
  void operator()(std::string* member) const {
    if (!json.is_string() || json.as_string().empty()) refuse("a non-empty string");
    *member = json.as_string();
  }
  void operator()(const Choice& choice) const {
    const auto at =
        json.is_string() ? std::ranges::find(choice.names, json.as_string()) : choice.names.end();
    if (at != choice.names.end()) {
      *choice.value = static_cast<std::uint8_t>(at - choice.names.begin());
      return;
    }
    std::string list;
    for (const auto name : choice.names)
      list += str(list.empty() ? "\"" : ", \"", name, "\"");
    refuse(str("one of ", list));
  }
  void operator()(double* member) const {
    if (!json.is_number() || !is_within(json.as_double()))
      refuse(field.is_rate ? "bytes or FLOPs per second (not GB or TFLOPs), 0 or 1e4 to 1e18"
                           : str("a number", range_text(field.least, field.most)));
    *member = json.as_double();
  }
  template <class Integer>
  void operator()(Integer* member) const {
    const double value = json.is_number() ? json.as_double() : std::nan("");
    if (value != std::floor(value) || !is_within(value))  // accepts 80e9
      refuse(str("an integer", range_text(field.least, field.most)));
    *member =
        json.is_integer() ? static_cast<Integer>(json.as_integer()) : static_cast<Integer>(value);
  }
};

struct Get {
  Json operator()(const Choice& choice) const { return std::string(choice.names[*choice.value]); }
  template <class Value>
  Json operator()(const Value* member) const {
    return *member;
  }
};

[[noreturn]] void refuse_key(std::string_view key, const std::string& why) {
  throw DataError(str(key, ": ", why));
}

void require_positive(double value, std::string_view key, const char* whose,
                      const char* what_to_do = "") {
  if (value > 0) return;
  refuse_key(key, str("expected more than 0 for ", whose, ", found ", value, what_to_do));
}

}  // namespace

Hardware in_machines_of(int ranks_per_node, Hardware gpu) {
  constexpr int kMostOfMachine = 8;
  if (gpu.domain_ranks <= kMostOfMachine)
    gpu.domain_ranks = std::min(gpu.domain_ranks, ranks_per_node);
  return gpu;
}

Cluster cluster_of_gpus(const Hardware& gpu, int ranks_per_node, int nodes) {
  Cluster cluster;
  cluster.name = gpu.name;
  cluster.nodes = nodes;
  cluster.ranks_per_node = ranks_per_node;
  cluster.hardware = in_machines_of(ranks_per_node, gpu);
  return cluster;
}

void take_run_costs(Cluster& cluster, const Cluster& from) {
  cluster.watts = from.watts;
  cluster.price_per_gpu_hour = from.price_per_gpu_hour;
  cluster.currency = from.currency;
  cluster.gpu_hours_per_interruption = from.gpu_hours_per_interruption;
  cluster.restart_seconds = from.restart_seconds;
}

std::vector<std::string> cluster_keys() {
  Cluster any;
  std::vector<std::string> keys;
  for (const Field& field : fields(any))
    keys.emplace_back(field.key);
  return keys;
}

void set_key(Cluster& cluster, std::string_view key, const Json& value) {
  const auto all = fields(cluster);
  const auto field = std::ranges::find(all, key, &Field::key);
  LOCKSTEP_CHECK(field != all.end(), "unknown key '", key, "' of a cluster");
  std::visit(Set{*field, value}, field->value);
}

void check(const Cluster& c) {
  const Hardware& h = c.hardware;
  const bool on_gpus = c.device == Device::Kind::cuda;
  const char* whose = on_gpus ? "a GPU" : "a rank on CPUs";
  require_positive(h.bf16_flops, "hardware.bf16_flops", whose);
  require_positive(h.fp32_flops, "hardware.fp32_flops", whose);
  require_positive(h.hbm_bytes_per_second, "hardware.hbm_bytes_per_second", whose);
  if (on_gpus) {
    require_positive(h.multiprocessors, "hardware.multiprocessors", whose);
    require_positive(h.host_bytes_per_second, "hardware.host_bytes_per_second", whose);
  }
  if (c.compute_beside > 0 && c.compute_beside < 1)
    refuse_key("compute_beside", str("expected 0 or at least 1, found ", c.compute_beside));
  if (!on_gpus && c.host_memory_bytes > 0)
    refuse_key("host_memory_bytes", str("expected 0 without GPUs, found ", c.host_memory_bytes,
                                        "; set hardware.hbm_bytes to the memory of a rank"));
  if (c.host_memory_bytes > 0 && static_cast<double>(c.host_memory_bytes) < kLeastMemory)
    refuse_key("host_memory_bytes",
               str("expected bytes (not GB), 0 or at least ", number_text(kLeastMemory), ", found ",
                   c.host_memory_bytes));
  const bool is_linked = on_gpus ? h.domain_ranks > 1 : c.ranks_per_node > 1;
  if (is_linked)
    require_positive(h.nvlink_bytes_per_second, "hardware.nvlink_bytes_per_second",
                     on_gpus ? "an NVLink domain of several GPUs" : "a host with several ranks",
                     on_gpus ? "; without NVLink set the PCIe bandwidth between two GPUs in one "
                               "direction (4.0 x16: about 25e9), or hardware.domain_ranks = 1"
                             : "");
  if (c.ranks() > (on_gpus ? h.domain_ranks : c.ranks_per_node))
    require_positive(
        h.nic_bytes_per_second, "hardware.nic_bytes_per_second",
        on_gpus ? "a cluster of several NVLink domains" : "a cluster of several hosts");
}

Json to_json(const Cluster& cluster) {
  Cluster copy = cluster;
  Json json = Json::Object{{"format", kFormat}};
  Json hardware;
  for (const Field& field : fields(copy)) {
    const bool is_hardware = field.key.starts_with(kHardware);
    const auto key = is_hardware ? field.key.substr(kHardware.size()) : field.key;
    if (is_hardware) hardware.set(std::string(key), std::visit(Get{}, field.value));
    if (!is_hardware) json.set(std::string(key), std::visit(Get{}, field.value));
  }
  json.set("hardware", hardware);
  json.set("links", cluster.links.to_json());
  json.set("operators", cluster.operators.to_json());
  return json;
}

bool is_of_other_threads(const Cluster& cluster, int threads) {
  return cluster.device == Device::Kind::cpu && !cluster.operators.times().empty() &&
         cluster.threads != threads;
}

bool is_cluster(const Json& json) {
  const Json* format = json.is_object() ? json.find("format") : nullptr;
  return format != nullptr && format->is_string() && format->as_string().starts_with(kFormats);
}

Cluster parse_cluster(const Json& json) {
  if (const auto& format = text_at(json, "format"); format != kFormat)
    throw DataError(str("format: expected \"", kFormat, "\", found \"", format, "\""));
  Cluster cluster;
  std::vector<std::string> found{"format", "hardware", "links", "operators"};
  const Json& hardware = json.at("hardware");
  for (const Field& field : fields(cluster)) {
    const bool is_hardware = field.key.starts_with(kHardware);
    const auto key = is_hardware ? field.key.substr(kHardware.size()) : field.key;
    const Json& object = is_hardware ? hardware : json;
    in_context([&] { std::visit(Set{field, object.at(key)}, field.value); }, field.key);
    found.emplace_back(field.key);
  }
  const auto refuse_unknown = [&](const Json& object, std::string_view prefix) {
    for (const auto& [key, value] : object.as_object())
      if (std::ranges::find(found, str(prefix, key)) == found.end())
        refuse_key(str(prefix, key), "unknown key");
  };
  refuse_unknown(json, "");
  refuse_unknown(hardware, kHardware);
  cluster.is_measured = true;
  cluster.links = in_context([&] { return LinkTimes::parse(json.at("links")); }, "links");
  cluster.operators =
      in_context([&] { return OperatorTimes::parse(json.at("operators")); }, "operators");
  check(cluster);
  return cluster;
}

ClusterTimes::ClusterTimes(const Cluster& cluster)
    : on_gpus_(cluster.device == Device::Kind::cuda),
      inside_latency_seconds_(cluster.inside_latency_seconds),
      across_latency_seconds_(cluster.across_latency_seconds),
      time_model_(cluster.hardware) {}

double ClusterTimes::seconds(const Op& op, const GroupPlace& place) const {
  return on_gpus_ ? time_model_.seconds(op, place.inside()) : on_processors(op, place);
}

double ClusterTimes::flops_per_second(const Op& op) const {
  const Hardware& hardware = time_model_.hardware();
  const double peak = hardware.peak_flops(op.dtype);
  return (peak > 0 ? peak : hardware.fp32_flops) * hardware.sustained;
}

double ClusterTimes::on_processors(const Op& op, const GroupPlace& place) const {
  const Hardware& hardware = time_model_.hardware();
  const auto bytes = static_cast<double>(op.bytes);
  if (op.kind == Op::Kind::collective) {
    if (place.ranks <= 1) return 0;
    if (place.domains <= 1)
      return inside_latency_seconds_ + bytes / hardware.nvlink_bytes_per_second;
    return across_latency_seconds_ + bytes / hardware.nic_bytes_per_second;
  }
  return std::max(op.flops / flops_per_second(op), bytes / hardware.hbm_bytes_per_second);
}

Formula ClusterTimes::explain(const Op& op, const GroupPlace& place) const {
  if (on_gpus_) return time_model_.explain(op, place.inside());
  const Hardware& hardware = time_model_.hardware();
  const Formula::Input bytes{"bytes", static_cast<double>(op.bytes)};
  if (op.kind != Op::Kind::collective)
    return {.name = str(op.name, "_seconds"),
            .text = "max(flops / flops_per_second, bytes / memory_per_second)",
            .inputs = {{"flops", op.flops},
                       {"flops_per_second", flops_per_second(op)},
                       bytes,
                       {"memory_per_second", hardware.hbm_bytes_per_second}},
            .value = seconds(op, place),
            .unit = "s"};
  const bool is_across = place.domains > 1;
  return {
      .name = str(op.name, "_seconds"),
      .text = "latency_seconds + bytes / received_per_second",
      .inputs = {{"latency_seconds", is_across ? across_latency_seconds_ : inside_latency_seconds_},
                 bytes,
                 {"received_per_second",
                  is_across ? hardware.nic_bytes_per_second : hardware.nvlink_bytes_per_second}},
      .value = seconds(op, place),
      .unit = "s"};
}

}  // namespace lockstep
