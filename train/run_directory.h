// RunDirectory: where a run keeps what it makes. One process at a time may train in it.
//
//   config.toml      the resolved configuration of the last start
//   metrics.jsonl    one object a step            events.out.tfevents.*  the same for TensorBoard
//   numerics.json    what a GPU computes with     checkpoints/           step-00001000/, ...
//   lock             held while training
#pragma once

#include <filesystem>

namespace lockstep {

class RunDirectory {
 public:
  // Creates the directory and takes its lock. Throws TransientError when another process holds it,
  // DataError when it cannot be written.
  explicit RunDirectory(std::filesystem::path path);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path numerics() const { return path_ / "numerics.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lockstep
