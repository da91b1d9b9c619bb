// ThreadWorld runs ranks as threads of one process. They read each other's memory; sums are in the
// order of ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dist/comms.h"

namespace lockstep {

// ThreadRanks is the state that the ranks of one process share.
class ThreadRanks {
 public:
  explicit ThreadRanks(int size) : size_(size) {}
  int size() const { return size_; }

  class Meeting;  // of a group

 private:
  friend class ThreadWorld;
  std::shared_ptr<Meeting> meeting(const std::string& name, const std::vector<int>& ranks);
  void abort(const std::string& why);

  int size_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Meeting>> meetings_;
  std::string aborted_;  // the reason; empty: not aborted
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return ranks_.size(); }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override;
  std::vector<std::string> exchange(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override;
  std::string broadcast(const std::string& tag, const std::string& text) override;
  // Ranks that wait for this rank, now or later, get an Error with the reason.
  void abort(const std::string& why, int exit_code) noexcept override;

 private:
  std::vector<std::string> tell(const std::string& what, const std::string& mine);

  ThreadRanks& ranks_;
  int rank_;
};

// Runs body(world) on `size` ranks, each a thread. If one throws, the others do not wait for it.
// Throws the first error.
void run_thread_ranks(int size, const std::function<void(World&)>& body);

}  // namespace lockstep
