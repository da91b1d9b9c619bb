// MonitoredWorld: a world with failure detection, so that no rank waits forever for a dead one. It
// adds rank 0's control server, Control and a heartbeat to another world. If a rank dies, fails or
// stalls, all ranks end, with an error that names it.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/descriptor.h"
#include "dist/collective_ring.h"
#include "dist/comms.h"
#include "dist/job/control.h"
#include "dist/job/control_server.h"
#include "dist/job/heartbeat.h"

namespace lockstep {

struct MonitorOptions {
  Timing timing{};
  // Directory in which an aborted rank writes ended/rank-00003.txt, with the reason and its last
  // collectives; empty: no file. The directory may be created later. If another directory replaces
  // it, nothing is written there.
  std::filesystem::path directory{};
  std::string interfaces{};  // network interfaces for connections to this rank; empty: any
};

class MonitoredWorld final : public WorldOver {
 public:
  // Wraps `world`, which outlives it. Every rank of it calls this together. Throws TransientError
  // if rank 0 cannot be reached.
  MonitoredWorld(World& world, const MonitorOptions& options);
  MonitoredWorld(const MonitoredWorld&) = delete;
  MonitoredWorld& operator=(const MonitoredWorld&) = delete;
  ~MonitoredWorld() override;  // sends a goodbye; rank 0 leaves last

  std::vector<std::string> exchange(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override;
  std::string broadcast(const std::string& tag, const std::string& text) override;
  std::vector<std::string> addresses() const override;
  void set_exit_handler(const ExitHandler& act) override;
  // Reports the error to the other ranks, which end with the same code.
  void abort(const std::string& why, int exit_code) noexcept override;
  CollectiveRing* ring() override { return &ring_; }

 private:
  Membership meet(const MonitorOptions& options);
  int open_directory();
  void end(const Verdict& verdict);
  void leave_words(const std::string& why);
  void look();

  CollectiveRing ring_;
  std::optional<ControlServer> server_;  // on rank 0
  std::unique_ptr<Control> control_;
  Milliseconds interval_;
  std::string interfaces_;
  std::filesystem::path path_;  // MonitorOptions::directory
  std::mutex looking_;          // guards the next three
  Descriptor directory_;        // opened when it first existed
  Activity activity_{};
  bool leaving_ = false;
  std::condition_variable wakes_;
  std::mutex ending_;  // guards the next one
  ExitHandler exit_handler_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::thread looker_;
  std::mutex aborting_;
  bool aborted_ = false;
};

}  // namespace lockstep
