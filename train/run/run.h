// Run: the parts of a run, made in this order by every rank, and how far it is. Starting it
// (train/run/start.h), saving it (train/run/saves.h) and its steps (train/run/trainer.cpp) share
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "train/layout.h"
#include "train/observe/gpu_watch.h"
#include "train/observe/meter.h"
#include "train/observe/run_log.h"
#include "train/run/machine_files.h"
#include "train/run/prepare.h"
#include "train/run/resume.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_parts.h"
#include "train/run/signals.h"
#include "train/run/trainer.h"
#include "train/run_directory.h"
#include "train/step/host_state.h"
#include "train/step/numerics.h"
#include "train/step/training.h"

namespace lockstep {

struct Run {
  // `options` outlive it.
  Run(const TrainOptions& options, const RunRanks& ranks);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  std::int64_t step() const { return progress.step; }
  std::int64_t steps() const { return config.train.steps; }
  bool is_first() const { return world.rank() == 0; }
  // Whether what happens every so many steps (0: only at the end) is due after a step.
  bool due(std::int64_t every_steps, std::int64_t after) const {
    return after == steps() || (every_steps > 0 && after % every_steps == 0);
  }
  bool due(std::int64_t every_steps) const { return due(every_steps, step()); }
  std::int64_t end_sample() const;  // behind the last step
  RunFacts facts() const;
  std::vector<std::string> hosts() const;  // of the ranks, each once

  int agreed_stop();  // the largest exit code of a signal that a rank was sent; 0: none was
  // Of the weights behind `step`, which the device was asked for. Throws TransientError where ranks
  // that hold the same weights, and compute the same, have other bits.
  std::uint64_t read_weight_hash(std::int64_t step);

  const TrainOptions& options;
  World& world;
  const Topology* topology;  // may be absent
  const StopSignals signals;
  RunDirectory directory;
  RunLog log;                   // says early that the run is there
  std::optional<GpuWatch> gpu;  // before the streams, which take memory of the GPU
  Stream compute;
  MachineFiles files;
  Config config;
  const Mesh mesh;
  const DataPlace place;
  const RunBytes bytes;
  Arena pinned;  // of the loaders
  Loader loader;
  std::optional<Loader> validation;
  const RunTokenizer tokenizer;
  const std::vector<std::int32_t> prompt;  // of samples
  Arenas arenas;  // behind the data: they are large, and those may not be there
  Training training;
  HostState state;
  const bool shares_state;  // of any rank
  Meter meter;
  std::optional<NumericsRecord> numerics;  // of a GPU

  RunProgress progress;
  int stop = 0;                    // with which all ranks agreed to stop; 0: they go on
  std::int64_t saved_step = -1;    // of the newest checkpoint that is whole
  std::int64_t applied_step = -1;  // the last one of this process whose update was not skipped
  // A step that is applied had a finite loss: the weights before it are good, and with them the
  // newest checkpoint, which may be whole only when that step is done.
  void judge_checkpoint() {
    if (saved_step < applied_step) progress.good_step = saved_step;
  }

  RunCheckpoints checkpoints;  // behind all that its threads use
};

}  // namespace lockstep
