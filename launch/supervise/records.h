// SuperviseRecords: the files by which agents of a run find each other, in RUN/supervise.
//
//   secret               64 hexadecimal digits, readable for the owner only
//   term-00000001.json   who leads; only one process can create a number
//   alive                term and a counter, which the leader changes twice a second; after the end
//                        of the run: term, "over" and the exit code
//   exit_code            of the run, after its end    bad_hosts   those that were excluded then
//   status.json          state of the leader and the hosts, written after events and every 5 s
//   log.jsonl            what happened: hosts that joined, starts, causes, exclusions
//
// All calls may hang if the file system does.
#pragma once

#include <filesystem>
#include <string>

#include "dist/job/secret.h"
#include "dist/job/supervise/agent.h"

namespace lockstep {

class SuperviseRecords {
 public:
  explicit SuperviseRecords(std::filesystem::path run) : run_(std::move(run)) {}

  const std::filesystem::path& run() const { return run_; }
  std::filesystem::path path() const { return run_ / "supervise"; }
  std::filesystem::path log() const { return path() / "log.jsonl"; }

  // The secret of the run's agents: LOCKSTEP_SECRET if it is set, else the file, which the first
  // agent creates.
  Secret secret() const;
  Records read() const;
  // Creates the term's file; returns false if another process has done that before.
  bool claim(const Term& term) const;
  void set_alive(const std::string& text) const;
  void set_over(int exit_code, const std::vector<std::string>& bad_hosts) const;
  void set_status(const Json& status) const;
  // The lines of log.jsonl after the last `over`, without those that cannot be read.
  std::vector<Json> events() const;
  void append(const std::vector<Json>& lines) const;  // to log.jsonl

  struct Progress {
    std::int64_t saved_step, last_step;
    int end_code = -1;  // of rank 0, if it ended within the last minute; -1: unknown
  };
  Progress progress() const;

 private:
  std::filesystem::path term(std::int64_t number) const;
  std::filesystem::path run_;
};

}  // namespace lockstep
