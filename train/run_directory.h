// RunDirectory: where a run keeps what it makes. One run at a time may train in it.
//
//   config.toml      the resolved configuration of the last start
//   metrics.jsonl    one object a step            events.out.tfevents.*  the same for TensorBoard
//   data.json        what the last start reads    checkpoints/           step-00001000/, ...
//   numerics.json    what a GPU computes with      plan.json              what a step should cost
//   ledger.jsonl     what the wall time went to    metrics.prom           for Prometheus
//   lock             held while training          trace-rank-00000.json, ...   of --trace
//   saved_step.txt   the newest saved step, for scripts that restart a run
//   tokenizer/       kTokenizerFiles, where the tokens, or the model it starts from, have such
//   ended/           rank-00000.txt, ...: what ranks did when others ended them
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "core/descriptor.h"
#include "dist/job/agreement.h"

namespace lockstep {

// The name of the directory, which labels and pages call a run by.
std::string run_name(const std::filesystem::path& run);

class RunDirectory {
 public:
  // Creates the directory and takes its lock. Throws TransientError when another process holds it,
  // DataError when it cannot be written. Of several ranks one does, and the others find it there.
  // One that it made, and that is empty at the end, goes again, unless keep() was called.
  explicit RunDirectory(std::filesystem::path path, bool takes_lock = true);
  RunDirectory(RunDirectory&& other) noexcept
      : path_(std::move(other.path_)),
        lock_(std::move(other.lock_)),
        is_new_(std::exchange(other.is_new_, false)) {}
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  // Compares the lock with its name; any thread. Throws DataError where the directory was removed,
  // moved or replaced since, TransientError where another process trains in what stands there now.
  void check() const;

  void keep() { is_new_ = false; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path data() const { return path_ / "data.json"; }
  std::filesystem::path numerics() const { return path_ / "numerics.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path ledger() const { return path_ / "ledger.jsonl"; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path saved_step() const { return path_ / "saved_step.txt"; }
  std::filesystem::path tokenizer() const { return path_ / "tokenizer"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path trace(int rank) const {
    return path_ / ("trace-" + rank_file(rank, ".json"));
  }

 private:
  void say_who_holds_it() const;
  std::filesystem::path lock_path() const { return path_ / "lock"; }

  std::filesystem::path path_;
  Descriptor lock_;  // the open file: locked by the rank that takes it
  bool is_new_ = false;
};

}  // namespace lockstep
