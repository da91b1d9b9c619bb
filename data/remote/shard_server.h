// ShardServer: the first rank of a machine opens shards for the others, which ask for them by path
// over a Unix socket and are handed descriptors (SCM_RIGHTS), so that each shard is opened, and
// fetched, once a machine. The socket has a random name in the abstract namespace: nothing is left
// of it when the process ends, however it does. Both ends check that the other is of the same user.
//
// A message is one packet: to the server a path; back 'f' with a descriptor, 'e' (a DataError),
// 'x' (an AccessError), 's' (a StorageError), 'r' (a RefusedError) or 'u' (an UnreachableError) and
// its text. In front of that 'w' may come, some times: the wait goes on, and bytes came meanwhile.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "data/remote/node_files.h"
#include "data/shard_files.h"

namespace lockstep {

class ShardServer {
 public:
  // `files` outlives it, and is stopped when it ends. Throws Error where there are no sockets,
  // TransientError where no thread can be started.
  explicit ShardServer(NodeFiles& files);
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;
  ~ShardServer();

  const std::string& name() const { return name_; }  // for ShardClient, in the same machine

 private:
  struct Peer {
    Descriptor socket;
    std::mutex sending;       // of what it is sent
    bool is_waiting = false;  // under `sending`: for an answer that was not begun
    bool is_gone = false;     // under the server's lock
    std::thread thread;
  };
  void accept_peers();
  void add_peer(Descriptor socket);
  void serve(Peer& peer);
  void answer(Peer& peer, std::string_view request);
  void say_of_progress();
  static void send(Peer& peer, std::string_view text, int descriptor = -1);

  NodeFiles& files_;
  std::string name_;
  Descriptor listening_, wake_;  // wake_: ends the thread that listens
  std::mutex mutex_;             // of peers_; nobody waits for a peer while he has it
  std::list<Peer> peers_;
  std::int64_t said_bytes_ = 0;
  std::thread thread_;
};

class ShardClient final : public ShardFiles {
 public:
  // Throws UnreachableError where nobody of this name answers, AccessError where it is of another
  // user.
  explicit ShardClient(const std::string& name);

  // Of any thread, each on a connection of its own: who waits for a shard to be fetched is in
  // nobody's way. Throws what the server met, and UnreachableError at once where it has ended.
  ReadFile open(const std::string& path) override;

  void stop() override;

 private:
  struct Connection {
    Descriptor socket;
    bool is_busy = false;
  };
  Connection& take();
  void give_back(Connection& connection, bool is_broken = false);

  std::string name_;
  std::mutex mutex_;
  std::list<Connection> connections_;
  bool is_stopped_ = false;
};

}  // namespace lockstep
