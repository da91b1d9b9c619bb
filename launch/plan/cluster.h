// Cluster: the machines that a plan is for: so many of such GPUs, what joins them, what a run on
// them costs. Described by a file of configs/clusters/ (launch/plan/cluster_file.h), or measured by
// `lockstep preflight` (cluster.json, docs/formats.md), whose times of operators and collectives
// then come before prices.
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
#include "launch/plan/prices.h"

namespace lockstep {

struct Cluster {
  std::string name;
  bool is_measured = false;  // by `lockstep preflight`, which wrote the file; no key of it
  Device::Kind device = Device::Kind::cuda;
  int nodes = 1;
  int ranks_per_node = 1;  // GPUs; of a machine without, ranks that it is divided among
  int threads = 1;         // of a rank's, without GPUs
  // Of a GPU. Without: of a rank, as far as its rates say: flops, hbm (its memory), nvlink (to
  // ranks of its machine) and nic (to others), of which `sustained` counts for flops.
  Hardware hardware;
  // Of a collective between ranks without GPUs beside its bytes: on one machine, and on several.
  double inside_latency_seconds = 20e-6, across_latency_seconds = 100e-6;

  // Measured. Where an operator or a collective was not, ClusterPrices stand for it.
  OperatorTimes operators;
  LinkTimes links;
  double compute_beside = 0, other_beside = 1;  // as of StreamCosts; 0: not measured
  double wait_share = 0;                        // likewise
  double launch_seconds = 0;                    // likewise

  // Of a GPU or a rank without, what its process cannot give to arenas: the context, NCCL,
  // libraries, and what is left free for them. 0: not measured.
  std::int64_t constant_bytes = 0;
  // Of a machine with GPUs, all of it; 0: not known. A rank without has hardware.hbm_bytes.
  std::int64_t host_memory_bytes = 0;
  double storage_read_bytes_per_second = 0;  // of a node; 0: not known
  double storage_write_bytes_per_second = 0;

  // Of the run as a whole; 0: not known.
  double watts = 0;               // a GPU, with its share of the node
  double price_per_gpu_hour = 0;  // in `currency`
  std::string currency = "USD";
  double gpu_hours_per_interruption = 50'700;  // Llama 3: 419 in 54 days on 16,384 GPUs
  double restart_seconds = 300;

  int ranks() const { return nodes * ranks_per_node; }
};

// A GPU as it is in machines of so many. An NVLink domain of up to eight GPUs ends with the
// machine; those of more are of racks, where switches join machines.
Hardware in_machines_of(int ranks_per_node, Hardware gpu);
// What a run as a whole costs there, which nothing measures, as `from` has it.
void take_run_costs(Cluster& cluster, const Cluster& from);
// Machines of which nothing else is known.
Cluster cluster_of_gpus(const Hardware& gpu, int ranks_per_node, int nodes = 1);

// What may be written of a cluster, but for what was measured: "nodes", "hardware.hbm_bytes".
std::vector<std::string> cluster_keys();
// Throws DataError "expected ..., found ...". The key is one of them.
void set_key(Cluster& cluster, std::string_view key, const Json& value);
// Throws DataError, with the key, where values are not possible together.
void check(const Cluster& cluster);

// cluster.json. Each throws DataError.
Json to_json(const Cluster& cluster);
Cluster parse_cluster(const Json& json);
// Whether it was measured, without GPUs, of ranks that have another number of threads.
bool is_of_other_threads(const Cluster& cluster, int threads);
bool is_cluster(const Json& json);  // by its format, of whatever version
void write_cluster(const std::filesystem::path& file, const Cluster& cluster);

// Prices of calls that were not measured: of a GPU those of launch/plan/prices.h; of a rank without
// one the longer of its FLOPs and of its bytes at the rates of `hardware`, of a collective its
// latency and bytes.
class ClusterPrices {
 public:
  explicit ClusterPrices(const Cluster& cluster);
  // Of a call alone. place: of the group op.group, where it is a collective.
  double seconds(const Op& op, const GroupPlace& place) const;
  Formula explain(const Op& op, const GroupPlace& place) const;  // what it comes from

 private:
  double on_processors(const Op& op, const GroupPlace& place) const;
  double flops_per_second(const Op& op) const;  // of processors

  bool on_gpus_;
  double inside_latency_seconds_, across_latency_seconds_;
  Prices prices_;
};

}  // namespace lockstep
