// Ranks as threads of one process whose collectives use real sockets or shared memory.
#pragma once

#include <fstream>
#include <string>

#include "dist/job/socket_world.h"
#include "tests/support/thread_world.h"

namespace lockstep::testing {

// Runs body(world) on `ranks` ranks. Throws the first error.
template <class Body>
void run_socket_ranks(int ranks, bool share_memory, Body&& body) {
  const auto secret = Secret::draw();
  run_thread_ranks(ranks, [&](World& world) {
    SocketWorld sockets(world, {.secret = secret, .shares_memory = share_memory});
    body(sockets);
  });
}

// Whether this process has mapped memory of SharedRings.
inline bool has_rings() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:lockstep rings") != std::string::npos) return true;
  return false;
}

}  // namespace lockstep::testing
