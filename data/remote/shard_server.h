// ShardServer runs in the first rank of a host and opens shards for the other ranks. They request a
// path over a Unix socket and get a descriptor (SCM_RIGHTS), so each shard is opened and fetched
// once per host. The socket has a random name in the abstract namespace, so nothing remains when
// the process ends. Both ends check that the other has the same user.
//
// A message is one packet. A request is a path. A reply is 'f' with a descriptor, or one of these
// with the text of the error: 'e' (DataError), 'x' (AccessError), 's' (StorageError), 'r'
// (RefusedError), 'u' (UnreachableError). Packets 'w' may precede the reply: the wait continues,
// and bytes arrived in the meantime.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "data/remote/host_shards.h"
#include "data/shard_files.h"

namespace lockstep {

class ShardServer {
 public:
  // `files` must outlive the server, whose destructor stops it. Throws Error if there are no
  // sockets, TransientError if no thread can be started.
  explicit ShardServer(HostShards& files);
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;
  ~ShardServer();

  const std::string& name() const { return name_; }  // for ShardClient, on the same host

 private:
  struct Peer {
    Descriptor socket;
    std::mutex sending;       // held while sending to it
    bool is_waiting = false;  // protected by `sending`; true until its reply starts
    bool is_gone = false;     // protected by mutex_ of the server
    std::thread thread;
  };
  void accept_peers();
  void add_peer(Descriptor socket);
  void serve(Peer& peer);
  void answer(Peer& peer, std::string_view request);
  void say_of_progress();
  static void send(Peer& peer, std::string_view text, int descriptor = -1);

  HostShards& files_;
  std::string name_;
  Descriptor listening_, wake_;  // wake_: stops the listening thread
  std::mutex mutex_;             // protects peers_; never held while waiting for a peer
  std::list<Peer> peers_;
  std::int64_t said_bytes_ = 0;
  std::thread thread_;
};

class ShardClient final : public ShardFiles {
 public:
  // Throws UnreachableError if no server has this name, AccessError if it belongs to another user.
  explicit ShardClient(const std::string& name);

  // Opens a file, from any thread. Each thread uses its own connection, so that waiting for one
  // shard does not block others. Throws the error of the server, and UnreachableError at once if
  // the server has ended.
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
