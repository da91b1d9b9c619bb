// Hub: rank 0's server. Every rank connects to it twice: for messages (dist/job/control.h), which
// it passes on, and for heartbeats (dist/job/heartbeat.h), of which it makes the verdict
// (dist/job/watch.h) that ends the job. One thread, one port, no blocking call.
//
// Before a peer has proved that it knows the secret it may hold a few hundred bytes and one
// descriptor, for a few seconds; when too many are at that, the oldest is closed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "dist/job/watch.h"

namespace lockstep {

struct HubOptions {
  int ranks = 1;
  Secret secret;
  std::string address{};       // "": every address of this machine
  std::uint16_t port = 0;      // 0: any that is free
  Milliseconds start{60'000};  // for all ranks to come; then those that came are told who did not
  Milliseconds handshake{5'000};  // for one peer to prove itself
  Timing timing{};
};

class Hub {
 public:
  explicit Hub(const HubOptions& options);  // throws TransientError where it cannot listen
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  // Closes all connections; ranks that have not left take it as rank 0's death.
  ~Hub();

  std::uint16_t port() const { return port_; }

  // Waits until no rank is connected any more; false at the deadline. Rank 0 does so before it
  // ends.
  bool wait_until_all_left(Milliseconds timeout);

 private:
  class Server;
  std::uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace lockstep
