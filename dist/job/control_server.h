// ControlServer is the server of rank 0. Every rank connects to it twice. It forwards messages
// (dist/job/control.h). From heartbeats (dist/job/heartbeat.h) it derives the verdict that aborts
// the job (dist/job/failure_detector.h). ControlProtocol decides; this class has the sockets. It
// has one thread and one port, and makes no blocking call. A turn of its loop costs what arrived;
// only once an interval, and for a verdict, it looks at all ranks. Messages to all ranks are one
// buffer. It needs three descriptors a rank at most.
//
// An unauthenticated client can hold about 1 KiB and one descriptor, for a few seconds. If there
// are too many of them, the server closes the oldest that has sent nothing for 0.2 s, and accepts a
// new one.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "dist/job/control_protocol.h"

namespace lockstep {

class ControlServer {
 public:
  // Throws TransientError if it cannot listen.
  explicit ControlServer(const ControlServerOptions& options);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  // Closes all connections. Ranks that have not left treat it as rank 0's death.
  ~ControlServer();

  std::uint16_t port() const { return port_; }
  std::vector<int> lost() const;  // of the verdict; empty before it

  // Waits until all ranks have disconnected; returns false at the deadline. Rank 0 calls it before
  // it ends.
  bool wait_until_all_left(Milliseconds timeout);

 private:
  class Server;
  std::uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace lockstep
