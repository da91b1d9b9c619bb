// RunDirectory: the directory of a run's files. One run at a time may train in it.
//
//   config.toml      resolved configuration of the last start
//   metrics.jsonl    metrics, one object a step    events.out.tfevents.*  metrics for TensorBoard
//   metrics.before-K.jsonl   metrics of the steps that rollback K abandoned
//   amendments.json  changes of the run by flags, such as --from-step
//   data.json        data that the last start reads
//   checkpoints/     step-00001000/, ..., epochs/ (checkpoint/epochs.h)
//   numerics.json    algorithms of the GPU         plan.json              planned cost of a step
//   ledger.jsonl     use of the wall time          metrics.prom           metrics for Prometheus
//   control/         requests of `lockstep ctl` and the audit trail (train/run/requests.h)
//   lock             held while training           trace-rank-00000.json, ...   written by --trace
//   saved_step.txt   the newest saved step, for scripts that restart a run
//   tokenizer/       kTokenizerFiles, if the data or the initial model have them
//   ended/           rank-00000.txt, ...: last collectives of ranks that were aborted
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/epochs.h"
#include "core/descriptor.h"
#include "dist/job/rank_consistency.h"

namespace lockstep {

// The name of the directory. Labels and pages show it as the run's name.
std::string run_name(const std::filesystem::path& run);

// The process that trains in the directory, "pid 123 on host a"; nothing if none holds the lock.
std::optional<std::string> trainer_of(const std::filesystem::path& run);

class RunDirectory {
 public:
  // Creates the directory and takes its lock. Throws TransientError if another process holds the
  // lock for longer than a look at it takes, and DataError if the directory cannot be written. One
  // rank takes the lock; the others (takes_lock = false) open the existing directory. The
  // destructor removes a directory that it created and that holds no checkpoint, unless keep() was
  // called.
  explicit RunDirectory(std::filesystem::path path, bool takes_lock = true);
  RunDirectory(RunDirectory&& other) noexcept
      : path_(std::move(other.path_)),
        lock_(std::move(other.lock_)),
        epoch_(std::exchange(other.epoch_, std::nullopt)),
        is_new_(std::exchange(other.is_new_, false)) {}
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  // The rank that holds the lock claims an epoch, and the others join it.
  void claim_epoch() { epoch_ = Epoch::claim(checkpoints()); }
  void join_epoch(std::int64_t number) { epoch_.emplace(checkpoints(), number); }

  // Checks that the path still leads to the opened lock. Any thread may call it. Throws DataError
  // if the directory was removed, moved or replaced. Throws TransientError if another process
  // trains in the directory that replaced it, or if another start has taken over the run.
  void check() const;
  void check_epoch() const {  // only the last of these
    if (epoch_) epoch_->check();
  }

  const std::optional<Epoch>& epoch() const { return epoch_; }
  void keep() { is_new_ = false; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path amendments() const { return path_ / "amendments.json"; }
  std::filesystem::path data() const { return path_ / "data.json"; }
  std::filesystem::path numerics() const { return path_ / "numerics.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path metrics_before(int rollback) const {
    return path_ / str("metrics.before-", rollback, ".jsonl");
  }
  std::filesystem::path ledger() const { return path_ / "ledger.jsonl"; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path saved_step() const { return path_ / "saved_step.txt"; }
  std::filesystem::path tokenizer() const { return path_ / "tokenizer"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  // For writers. This object must outlive the result.
  CheckpointDirectory owned_checkpoints() const {
    return {checkpoints(), epoch_ ? &*epoch_ : nullptr};
  }
  std::filesystem::path trace(int rank) const {
    return path_ / ("trace-" + rank_file(rank, ".json"));
  }

 private:
  void say_who_holds_it() const;
  void remove_unused() const;
  std::filesystem::path lock_path() const { return path_ / "lock"; }

  std::filesystem::path path_;
  Descriptor lock_;  // the open file; one rank holds its lock
  std::optional<Epoch> epoch_;
  bool is_new_ = false;
};

}  // namespace lockstep
