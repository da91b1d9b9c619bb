// Run: the parts of a run on this rank. Each is made by all ranks at once, by train() in
// train/run/trainer.cpp, which says what they do together there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/layout.h"
#include "train/observe/gpu_watch.h"
#include "train/observe/meter.h"
#include "train/observe/run_log.h"
#include "train/run/machine_files.h"
#include "train/run/memory_budget.h"
#include "train/run/resume.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_config.h"
#include "train/run/run_tokenizer.h"
#include "train/run/signals.h"
#include "train/run/trainer.h"
#include "train/run_directory.h"
#include "train/step/host_state.h"
#include "train/step/numerics.h"
#include "train/step/training.h"

namespace lockstep {

// Where a run is: its ranks, its directory and log, and what this rank computes on.
struct RunHost {
  RunHost(const TrainOptions& options, const RunRanks& ranks);  // both outlive it

  bool is_first() const { return world.rank() == 0; }
  std::vector<std::string> hosts() const;  // of the ranks, each once
  std::string device_name() const;         // of a GPU, or "cpu"
  int agreed_stop();  // the largest exit code of a signal that a rank was sent; 0: none was

  const TrainOptions& options;
  World& world;
  const Topology* topology;  // may be absent
  const StopSignals signals;
  RunDirectory directory;
  RunLog log;                   // says early that the run is there
  std::optional<GpuWatch> gpu;  // before the stream, which takes memory of the GPU
  Stream stream;
};

// The data of a run, opened once.
struct RunSources {
  // `files` outlive it. Throws ConfigError where the machine's cache has no room for what is read
  // at a time.
  RunSources(const Config& config, MachineFiles& files);

  Sources training;
  std::optional<Sources> held_out;  // of data.validation
};

// What reads them, and the tokenizer of their tokens.
struct RunData {
  RunData(const RunConfig& config, RunSources sources, const RunBytes& bytes, RunHost& host,
          MachineFiles& files);
  ~RunData() { files.stop(); }  // before loaders end
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  MachineFiles& files;
  Arena pinned;  // of the loaders
  Loader loader;
  std::optional<Loader> validation;
  const RunTokenizer tokenizer;
  const std::vector<std::int32_t> prompt;  // of samples
};

// What is trained, on this rank.
struct RunCompute {
  RunCompute(const RunConfig& config, const RunBytes& bytes, RunHost& host);
  ~RunCompute() { training.hold_update(std::nullopt); }  // which is of a stream that goes first
  RunCompute(const RunCompute&) = delete;
  RunCompute& operator=(const RunCompute&) = delete;

  Arenas arenas;
  Training training;
  HostState state;
  const bool shares_state;  // of any rank
  Meter meter;
  std::optional<NumericsRecord> numerics;  // of a GPU
};

// How far a run is.
struct RunPosition {
  RunProgress progress;
  int stop = 0;                    // with which all ranks agreed to stop; 0: they go on
  std::int64_t saved_step = -1;    // of the newest checkpoint that is whole
  std::int64_t applied_step = -1;  // the last one of this process whose update was not skipped

  // A step that is applied had a finite loss: the weights before it are good, and with them the
  // newest checkpoint, which may be whole only when that step is done.
  void judge_checkpoint() {
    if (saved_step < applied_step) progress.good_step = saved_step;
  }
};

// All of them.
struct Run {
  RunHost& host;
  const RunConfig& config;
  RunData& data;
  RunCompute& compute;
  RunPosition& position;
  RunCheckpoints& checkpoints;

  std::int64_t step() const { return position.progress.step; }
  std::int64_t steps() const { return config.train.steps; }
  std::int64_t end_sample() const;  // after the last step
  RunFacts facts() const;
  // Of the weights after `step`, which the device was asked for. Throws TransientError where ranks
  // that hold the same weights, and compute the same, have other bits.
  std::uint64_t read_weight_hash(std::int64_t step);
};

}  // namespace lockstep
