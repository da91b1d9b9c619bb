// Run holds the parts of a run on this rank. train() in train/run/trainer.cpp makes each part on
// all ranks together, and documents the collective steps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/layout.h"
#include "train/observe/gpu_telemetry.h"
#include "train/observe/meter.h"
#include "train/observe/run_log.h"
#include "train/run/memory_budget.h"
#include "train/run/resume.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_config.h"
#include "train/run/run_shards.h"
#include "train/run/run_tokenizer.h"
#include "train/run/signals.h"
#include "train/run/train_options.h"
#include "train/run_directory.h"
#include "train/step/host_staging.h"
#include "train/step/numerics.h"
#include "train/step/training.h"

namespace lockstep {

// The host side of a run: ranks, directory, log, and the device stream of this rank.
struct RunHost {
  RunHost(const TrainOptions& options, const RunRanks& ranks);  // both must outlive this

  bool is_first() const { return world.rank() == 0; }
  std::vector<std::string> hosts() const;  // names of the hosts, each once
  std::string device_name() const;         // a GPU name, or "cpu"
  int agreed(int mine);                    // the largest `mine` of a rank
  int agreed_stop() { return agreed(signals.exit_code().value_or(0)); }  // 0: none

  const TrainOptions& options;
  World& world;
  const Topology* topology;  // may be absent
  const StopSignals signals;
  RunDirectory directory;
  RunLog log;                       // publishes the start of the run
  std::optional<GpuTelemetry> gpu;  // made before the stream, which allocates GPU memory
  Stream stream;
};

// The data of a run, opened once.
struct RunSources {
  // `files` must outlive this. Throws ConfigError if the host's cache is too small for the shards
  // that are read at the same time.
  RunSources(const Config& config, RunShards& files);

  Sources training;
  std::optional<Sources> held_out;  // data.validation
};

// The loaders of a run's data, and the tokenizer of the data.
struct RunData {
  RunData(const RunConfig& config, RunSources sources, const RunBytes& bytes, RunHost& host,
          RunShards& files);
  ~RunData() { files.stop(); }  // before the loaders are destroyed
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  RunShards& files;
  Arena pinned;  // memory of the loaders
  Loader loader;
  std::optional<Loader> validation;
  const RunTokenizer tokenizer;
  const std::vector<std::int32_t> prompt;  // tokens of log.sample_prompt
};

// The training state of this rank.
struct RunCompute {
  RunCompute(const RunConfig& config, const RunBytes& bytes, RunHost& host);
  ~RunCompute() { training.hold_update(std::nullopt); }  // drops its event of `state`
  RunCompute(const RunCompute&) = delete;
  RunCompute& operator=(const RunCompute&) = delete;

  Arenas arenas;
  Training training;
  HostStaging state;
  const bool shares_state;  // true if HostStaging::shares_state() on any rank
  Meter meter;
  std::optional<NumericsRecord> numerics;  // only on a GPU
};

// The position of a run.
struct RunPosition {
  RunProgress progress;
  int stop = 0;              // exit code with which all ranks agreed to stop; 0: continue
  std::int64_t request = 0;  // newest live request that all ranks agreed on, by its number
  std::int64_t taken = 0;    // the last one that was carried out
  std::atomic<std::int64_t> offered = 0;  // at rank 0: the request to carry out; 0: none
  bool save_agreed = false;               // all ranks agreed to save, as rank 0 requested
  // Time at which rank 0 requests the next save of checkpoint.every_seconds.
  std::chrono::steady_clock::time_point next_save = std::chrono::steady_clock::time_point::max();
  std::int64_t saved_step = -1;    // step of the newest complete checkpoint
  std::int64_t applied_step = -1;  // last step of this process whose update was applied

  // The number that this rank gives with a step. Ranks agree on the largest: the exit code of a
  // signal, or else, at rank 0, whether a save is due and the number of a
  // request. A stop of any rank hides both.
  int signal(const StopSignals& signals, bool is_save_due) const {
    const int code = signals.exit_code().value_or(0);
    if (code > 0) return code << kStopShift;
    return (is_save_due ? kSaveBit : 0) | static_cast<int>(offered);
  }
  void agreed(int largest) {
    stop = std::max(stop, largest >> kStopShift);
    if (largest >> kStopShift != 0) return;
    save_agreed = save_agreed || (largest & kSaveBit) != 0;
    request = std::max<std::int64_t>(request, largest & (kSaveBit - 1));
  }
  static constexpr int kSaveBit = 1 << 22;  // above kMostRequests
  static constexpr int kStopShift = 23;     // codes have at most 8 bits

  // An applied step had a finite loss, so the weights before it are good, and so is the newest
  // checkpoint. That checkpoint may become complete only after the step.
  void judge_checkpoint() {
    if (saved_step < applied_step) progress.good_step = saved_step;
  }
};

// All parts of a run.
struct Run {
  RunHost& host;
  const RunConfig& config;
  RunData& data;
  RunCompute& compute;
  RunPosition& position;
  RunCheckpoints& checkpoints;

  std::int64_t step() const { return position.progress.step; }
  std::int64_t steps() const { return config.train.steps; }
  std::int64_t end_step() const;    // last step of this start, unless a signal stops it
  std::int64_t end_sample() const;  // after the last step
  RunFacts facts() const;
  // Reads the enqueued hash of the weights after `step`. Throws TransientError if replicated
  // weights differ between ranks.
  std::uint64_t read_weight_hash(std::int64_t step);
};

}  // namespace lockstep
