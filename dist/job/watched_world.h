// WatchedWorld: a world of which no rank is left waiting for another that does not come. Beside
// its collectives it has rank 0's hub, Control, by which all know that all have come, and a
// heartbeat. A rank that dies, fails or stalls ends all: within seconds, and with a sentence
// that names it.
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
#include "dist/job/heartbeat.h"
#include "dist/job/hub.h"

namespace lockstep {

struct WatchOptions {
  Timing timing{};
  // A rank that the others end leaves there, in ended/rank-00003.txt, why, and its last
  // collectives; empty: nowhere. It may be made later. If another one takes its name then, nothing
  // is left in that one.
  std::filesystem::path directory{};
  std::string interfaces{};  // by which others reach this rank; "": any
};

class WatchedWorld final : public WorldOver {
 public:
  // Of `world`, which outlives it; every rank of it at once. Throws TransientError where rank 0
  // cannot be reached.
  WatchedWorld(World& world, const WatchOptions& options);
  WatchedWorld(const WatchedWorld&) = delete;
  WatchedWorld& operator=(const WatchedWorld&) = delete;
  ~WatchedWorld() override;  // says goodbye; rank 0 goes last

  std::vector<std::string> exchange(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override;
  std::string broadcast(const std::string& tag, const std::string& text) override;
  std::vector<std::string> addresses() const override;
  void set_last_act(const LastAct& act) override;
  // The others hear of it, and end with the same code.
  void abort(const std::string& why, int exit_code) noexcept override;
  CollectiveRing* ring() override { return &ring_; }

 private:
  Membership meet(const WatchOptions& options);
  int open_directory();
  void end(const Verdict& verdict);
  void leave_words(const std::string& why);
  void look();

  CollectiveRing ring_;
  std::optional<Hub> hub_;  // of rank 0
  std::unique_ptr<Control> control_;
  Milliseconds interval_;
  std::string interfaces_;
  std::filesystem::path path_;  // WatchOptions::directory
  std::mutex looking_;          // of the next three
  Descriptor directory_;        // open since it was there
  Activity activity_{};
  bool leaving_ = false;
  std::condition_variable wakes_;
  std::mutex ending_;  // of the next one
  LastAct last_act_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::thread looker_;
  std::mutex aborting_;
  bool aborted_ = false;
};

}  // namespace lockstep
