// Training simulates the starts of one run. Each rank is a process that executes the real code of
// checkpoints and epochs as a fiber, over simulated files, with steps of one second. The state at a
// step is a hash of the state and the samples before it, so equal hashes are equal states.
#pragma once

#include <deque>
#include <optional>
#include <set>

#include "checkpoint/checkpoint_copier.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/host_restore.h"
#include "tests/sim/files.h"

namespace lockstep::sim {

struct TrainingOptions {
  int hosts = 3;
  int save_every = 3;  // steps
  int keep_last = 2;
  std::int64_t goal = 24;  // the last step
  bool has_local = false;  // saves to the hosts' own disks, with copies on partners
  std::function<std::size_t(std::size_t host, std::size_t hosts)> partner = partner_of;
};

class Training {
 public:
  Training(Kernel& kernel, TrainingOptions options);
  ~Training();

  static inline const std::filesystem::path kCheckpoints =
      std::filesystem::path(Files::kShared) / "run/checkpoints";
  static std::filesystem::path local_of(int host) { return Files::disk_of(host) + "/checkpoints"; }

  // Starts the ranks, one on each host that is up. A start that ends before the goal is followed by
  // another one.
  void start();

  // Faults. Rank 0's process of the newest start is the usual victim.
  Process* rank_0();
  void kill(Process& process);
  void pause(Process& process, Micros time);
  void power_off(int host, Micros time, bool loses_disk);
  void lose_shared_power();  // and all processes

  bool is_done() const { return done_; }
  std::int64_t last_step() const { return last_step_; }
  std::int64_t announced() const { return announced_; }
  std::size_t ranks() const;  // of the newest start
  int starts() const { return static_cast<int>(attempts_.size()); }

  Kernel& kernel;
  Fibers fibers;
  Files disk;
  bool storage_is_faulty = false;  // then saves may fail, and more work may be lost
  // A host and its partner lost their disks. The next start must use the newest checkpoint of the
  // shared directory.
  bool loses_copies = false;

 private:
  struct Attempt;
  class SimWorld;
  void run_rank(Attempt& attempt, int rank, Process& process);
  void train(Attempt& attempt, int rank, Process& process, World& world);
  Json restore(const Attempt& attempt, World& world, const HostRestore::Found& found,
               const std::vector<StateSlice>& state,
               FunctionRef<void(const Json& about)> accept) const;
  void copy_to_partner(const std::vector<int>& hosts, World& world, std::int64_t step,
                       const std::filesystem::path& local) const;
  void announce(std::int64_t step, const Epoch& epoch);
  void check_rename(Process& process, const Files::Operation& operation);
  void fail_attempt(Attempt& attempt, Micros after);
  void end(Attempt& attempt);
  std::uint64_t chain(std::int64_t step);

  TrainingOptions options_;
  std::deque<std::unique_ptr<Attempt>> attempts_;
  std::vector<bool> up_;
  std::vector<std::uint64_t> chain_ = {1};  // by step
  std::int64_t last_step_ = 0, announced_ = 0;
  std::int64_t newest_epoch_ = 0;
  Micros claimed_at_ = 0;
  bool done_ = false, waits_ = false;
};

}  // namespace lockstep::sim
