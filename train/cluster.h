// Cluster: the machines that a plan is for: so many of such GPUs, what joins them, what a run on
// them costs. Described by a file of configs/clusters/, or measured by `lockstep preflight`
// (cluster.json), whose times of operators and collectives then come before prices.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "train/hardware.h"
#include "train/link_times.h"
#include "train/operator_times.h"

namespace lockstep {

struct Cluster {
  std::string name;
  Device::Kind device = Device::Kind::cuda;
  int nodes = 1;
  int ranks_per_node = 1;  // GPUs; of a machine without, ranks that it is divided among
  int threads = 1;         // of a rank's, without GPUs
  Hardware hardware;       // of a GPU; without one, its rates and memory are of a rank

  // Measured. Where an operator or a collective was not, prices of `hardware` stand for it.
  OperatorTimes operators;
  LinkTimes links;
  double compute_beside = 1, other_beside = 1;  // as of StreamCosts
  double launch_seconds = 0;                    // likewise

  // What a process takes of its device that no arena knows: the context, NCCL, libraries.
  std::int64_t constant_bytes = 0;
  double storage_read_bytes_per_second = 0;  // of a node; 0: not known
  double storage_write_bytes_per_second = 0;

  // Of the run as a whole; 0: not known.
  double watts = 0;               // a GPU, with its share of the node and of cooling
  double price_per_gpu_hour = 0;  // in `currency`
  std::string currency = "USD";
  double gpu_hours_per_interruption = 50'700;  // Llama 3: 419 in 54 days on 16,384 GPUs
  double restart_seconds = 300;

  int ranks() const { return nodes * ranks_per_node; }
};

}  // namespace lockstep
