#include "launch/plan/cluster_file.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/file.h"
#include "core/nearest.h"
#include "core/toml.h"

namespace lockstep {
namespace {

// Typical OperatorTimes take some hundred KB.
constexpr std::int64_t kMostClusterBytes = 64 << 20;
constexpr std::string_view kVendor = "NVIDIA ";

// Required keys of a GPU without a known name, or of a rank on CPUs.
constexpr std::array kOfAny{"hardware.name", "hardware.bf16_flops", "hardware.fp32_flops",
                            "hardware.hbm_bytes_per_second", "hardware.hbm_bytes"};
constexpr std::array kOfGpus{"hardware.multiprocessors", "hardware.nvlink_bytes_per_second",
                             "hardware.nic_bytes_per_second", "hardware.host_bytes_per_second",
                             "hardware.domain_ranks"};

struct ClusterValueToJson {
  Json operator()(const std::vector<std::string>&) const { return Json::Array{}; }
  Json operator()(const TomlTables&) const { return Json::Array{}; }
  Json operator()(const TomlOther&) const { return Json::Array{}; }
  template <class Value>
  Json operator()(const Value& value) const {
    return value;
  }
};

// Compares without case: "h100".
bool is_alike(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file)
      : file_(file), document_(parse_toml(text, file)) {}

  Cluster read() {
    check_keys();
    if (const auto* device = find("device")) set(*device);
    start_hardware();
    for (const TomlEntry& entry : document_.entries)
      if (entry.key != "gpu") set(entry);
    require("name");
    require("ranks_per_node");
    require_hardware();
    try {
      check(cluster_);
    } catch (const DataError& error) {
      throw ConfigError(str(file_, ": ", error.what()));
    }
    return std::move(cluster_);
  }

 private:
  void check_keys() const {
    auto known = cluster_keys();
    known.emplace_back("gpu");
    const std::vector<std::string> tables{"hardware"};
    for (const auto& table : document_.tables)
      if (table.name != tables.front()) refuse(table.line, "table", table.name, tables);
    for (const TomlEntry& entry : document_.entries)
      if (std::ranges::find(known, entry.key) == known.end())
        refuse(entry.line, "key", entry.key, known);
  }

  [[noreturn]] void refuse(int line, const char* what, const std::string& key,
                           const std::vector<std::string>& known) const {
    const auto near = nearest(key, known);
    throw ConfigError(str(file_, ":", line, ": unknown ", what, " ", key,
                          near.empty() ? "; docs/formats.md lists the keys of a cluster file"
                                       : str("; did you mean ", near, "?")));
  }

  const TomlEntry* find(std::string_view key) const {
    const auto at = std::ranges::find(document_.entries, key, &TomlEntry::key);
    return at == document_.entries.end() ? nullptr : &*at;
  }

  // Sets the values that the keys of [hardware] override.
  void start_hardware() {
    const bool on_gpus = cluster_.device == Device::Kind::cuda;
    const TomlEntry* gpu = find("gpu");
    if (gpu == nullptr) {
      if (!on_gpus) return;
      const Hardware& similar = *find_hardware("NVIDIA H100");
      cluster_.hardware.sustained = similar.sustained;
      cluster_.hardware.slowdown = similar.slowdown;
      return;
    }
    const auto origin = str(file_, ":", gpu->line);
    const auto* name = std::get_if<std::string>(&gpu->value);
    if (name == nullptr)
      throw ConfigError(str(origin, ": gpu: expected a string, found ", describe(gpu->value)));
    if (!on_gpus) throw ConfigError(str(origin, ": gpu is ", *name, ", but device is \"cpu\""));
    const TomlEntry* ranks = find("ranks_per_node");
    if (ranks != nullptr) set(*ranks);
    cluster_.hardware = in_machines_of(cluster_.ranks_per_node, hardware_of(*name, origin));
  }

  void set(const TomlEntry& entry) {
    const Json value = std::visit(ClusterValueToJson{}, entry.value);
    try {
      if (value.is_array())
        throw DataError(str("expected one value, found ", describe(entry.value)));
      set_key(cluster_, entry.key, value);
    } catch (const DataError& error) {
      throw ConfigError(str(file_, ":", entry.line, ": ", entry.key, ": ", error.what()));
    }
  }

  void require_hardware() const {
    if (find("gpu") != nullptr) return;
    const bool on_gpus = cluster_.device == Device::Kind::cuda;
    std::vector<const char*> keys(kOfAny.begin(), kOfAny.end());
    if (on_gpus) keys.insert(keys.end(), kOfGpus.begin(), kOfGpus.end());
    std::erase_if(keys, [&](const char* key) { return find(key) != nullptr; });
    if (keys.empty()) return;
    std::string list;
    for (const char* key : keys)
      list += str(list.empty() ? "" : ", ", key);
    throw ConfigError(str(file_, ": ", list, keys.size() == 1 ? " is" : " are", " not set; ",
                          on_gpus ? "name a known GPU (gpu = \"H100\") or describe one"
                                  : "describe the CPU cores and memory of a rank",
                          ", see docs/formats.md"));
  }

  void require(const char* key) const {
    if (find(key) == nullptr) throw ConfigError(str(file_, ": ", key, " is not set"));
  }

  const std::string& file_;
  TomlDocument document_;
  Cluster cluster_;
};

}  // namespace

std::string known_gpus() {
  std::string list;
  for (const Hardware& one : known_hardware())
    list += str(list.empty() ? "" : ", ", one.name.substr(kVendor.size()));
  return list;
}

const Hardware& hardware_of(const std::string& gpu, const std::string& origin) {
  std::vector<std::string> names;
  for (const Hardware& one : known_hardware()) {
    if (is_alike(one.name, gpu) || is_alike(one.name, str(kVendor, gpu))) return one;
    names.push_back(one.name.substr(kVendor.size()));
  }
  const auto near = nearest(gpu, names);
  throw ConfigError(str(origin, ": unknown GPU ", toml_quoted(gpu),
                        near.empty() ? "" : str("; did you mean ", near, "?"), " (known: ",
                        known_gpus(), "); describe others in [hardware], see docs/formats.md"));
}

Cluster cluster_of(std::string_view text, const std::string& file) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != text.npos && text[first] == '{';
  if (is_json) {
    const Json json = Json::parse(text, file);
    return in_context([&] { return parse_cluster(json); }, file);
  }
  return Reader(text, file).read();
}

Cluster load_cluster(const std::filesystem::path& file) {
  std::string text;
  try {
    text = read_text(file, kMostClusterBytes);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  return cluster_of(text, file.string());
}

}  // namespace lockstep
