// SocketWorld: collectives of ranks on CPUs without MPI, on top of a world that carries texts. The
// ranks of a host share memory, others use TCP. Sums have the order of those of MpiWorld, so a run
// has the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/comms.h"
#include "dist/job/secret.h"
#include "dist/job/socket.h"

namespace lockstep {

struct SocketOptions {
  Secret secret;               // with which ranks authenticate each other
  std::string interfaces{};    // network interfaces for connections to this rank; empty: any
  bool shares_memory = true;   // false: TCP also between ranks of a host
  Milliseconds start{60'000};  // time for the ranks of a group to connect
};

class SocketWorld final : public WorldOver {
 public:
  // `under` outlives it. It makes no connection until connect().
  SocketWorld(World& under, SocketOptions options);

  // Throws TransientError if a rank of the group cannot be reached, and ConfigError if it has
  // another secret. A collective of the group throws TransientError, which names the rank, if a
  // connection ends.
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override;
  std::vector<std::string> addresses() const override;

 private:
  SocketOptions options_;
};

}  // namespace lockstep
