// Any text is rejected as a cluster file, or survives a round trip through cluster.json.
#include "launch/plan/cluster_file.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::cluster_file_fuzz {

Seeds seeds() {
  const std::string toml =
      "name = 'a'\nranks_per_node = 4\nnodes = 2\ngpu = 'H100'\nwatts = 1e3\n"
      "[hardware]\nnic_bytes_per_second = 23e9\n";
  Cluster cluster = cluster_of(toml, "seed");
  cluster.links =
      LinkTimes({{.times = {{9, 1}}, .latency_seconds = 1e-5, .bytes_per_second = 1e9}});
  cluster.operators = OperatorTimes::parse(
      Json::parse(R"([{"operator": "m", "type": "fp32", "bytes": 16, "calls": 1, "seconds": 0.5,)"
                  R"("sizes": [2, 3, 4, 0], "flops": 48}])",
                  "seed"));
  return {toml, to_json(cluster).dump(),
          "name = 'b'\ndevice = 'cpu'\nranks_per_node = 2\n[hardware]\nname = 'c'\n"
          "fp32_flops = 1e9\nbf16_flops = 1e9\nhbm_bytes_per_second = 1e9\nhbm_bytes = 9\n"
          "nvlink_bytes_per_second = 1e9\n"};
}

void check(std::string_view text) {
  try {
    check_reads_back(to_json(cluster_of(text, "input")).dump(), [](const std::string& written) {
      return to_json(parse_cluster(Json::parse(written, "written"))).dump();
    });
  } catch (const ConfigError&) {
  }
}

const Target target("cluster_file", seeds, check);

}  // namespace lockstep::fuzz::cluster_file_fuzz
