// Cluster describes the hosts of a plan: number and kind of GPUs, their links, and the cost of a
// run. It comes from a file of configs/clusters/ (launch/plan/cluster_file.h), or from `lockstep
// preflight` (cluster.json, docs/formats.md), whose measured times of operators and collectives
// replace estimates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/system/hardware.h"
#include "core/tensor.h"
#include "launch/plan/link_times.h"
#include "launch/plan/operator_times.h"
#include "launch/plan/time_model.h"

namespace lockstep {

struct Cluster {
  std::string name;
  bool is_measured = false;  // written by `lockstep preflight`; not a key of the file
  Device::Kind device = Device::Kind::cuda;
  int nodes = 1;
  int ranks_per_node = 1;  // GPUs per node; on CPUs, ranks that share a node
  int threads = 1;         // threads of a rank on CPUs
  // Rates of a GPU. Without GPUs, rates of a rank: flops (times `sustained`), hbm (its memory),
  // nvlink (to ranks of its host) and nic (to ranks of other hosts).
  Hardware hardware;
  // Latency of a collective between CPU ranks, within a host and between hosts.
  double inside_latency_seconds = 20e-6, across_latency_seconds = 100e-6;

  // Measured times. ClusterTimes replaces those that were not measured.
  OperatorTimes operators;
  LinkTimes links;
  double compute_beside = 0, other_beside = 1;  // see StreamCosts; 0: not measured
  double wait_share = 0;                        // see StreamCosts
  double launch_seconds = 0;                    // see StreamCosts

  // Memory of a GPU, or of a CPU rank, that arenas cannot use: the context, NCCL, libraries, and a
  // reserve. 0: not measured.
  std::int64_t constant_bytes = 0;
  // Memory of a host with GPUs; 0: unknown. A CPU rank has hardware.hbm_bytes.
  std::int64_t host_memory_bytes = 0;
  double storage_read_bytes_per_second = 0;  // per node; 0: unknown
  double storage_write_bytes_per_second = 0;

  // Costs of a run; 0: unknown.
  double watts = 0;               // per GPU, with its share of the node
  double price_per_gpu_hour = 0;  // in `currency`
  std::string currency = "USD";
  double gpu_hours_per_interruption = 50'700;  // Llama 3: 419 in 54 days on 16,384 GPUs
  double restart_seconds = 300;

  int ranks() const { return nodes * ranks_per_node; }
};

// A GPU as part of a host with this number of ranks. An NVLink domain of up to 8 GPUs ends at the
// host; larger domains are racks, whose switches connect hosts.
Hardware in_machines_of(int ranks_per_node, Hardware gpu);
// Copies the costs of a run, which nothing measures.
void take_run_costs(Cluster& cluster, const Cluster& from);
// A cluster of hosts with these GPUs, and defaults for all else.
Cluster cluster_of_gpus(const Hardware& gpu, int ranks_per_node, int nodes = 1);

// The keys of a cluster file, without measured times: "nodes", "hardware.hbm_bytes".
std::vector<std::string> cluster_keys();
// Sets one of these keys. Throws DataError "expected ..., found ...".
void set_key(Cluster& cluster, std::string_view key, const Json& value);
// Throws DataError with the key if values conflict.
void check(const Cluster& cluster);

// cluster.json. Each throws DataError.
Json to_json(const Cluster& cluster);
Cluster parse_cluster(const Json& json);
// True if the cluster was measured on CPU ranks with another number of threads.
bool is_of_other_threads(const Cluster& cluster, int threads);
bool is_cluster(const Json& json);  // checks the format name, for any version

// ClusterTimes estimates calls that were not measured. On GPUs it uses launch/plan/time_model.h. On
// CPU ranks a call takes the longer of its FLOPs and its bytes at the rates of `hardware`; a
// collective takes latency plus bytes.
class ClusterTimes {
 public:
  explicit ClusterTimes(const Cluster& cluster);
  // Time of a call alone. For a collective, `place` is that of the group op.group.
  double seconds(const Op& op, const GroupPlace& place) const;
  Formula explain(const Op& op, const GroupPlace& place) const;  // the formula of the estimate

 private:
  double on_processors(const Op& op, const GroupPlace& place) const;
  double flops_per_second(const Op& op) const;  // of a CPU rank

  bool on_gpus_;
  double inside_latency_seconds_, across_latency_seconds_;
  TimeModel time_model_;
};

}  // namespace lockstep
