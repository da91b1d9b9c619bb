// ControlProtocol decides what rank 0's control server does: whom it accepts, where messages go,
// when the job is aborted. It has no socket, thread or clock: callers pass bytes and times, and
// carry out its actions (ControlActions). ControlServer runs it on sockets, tests/sim on a
// simulated network.
#pragma once

#include <deque>
#include <list>
#include <memory>

#include "dist/job/failure_detector.h"

namespace lockstep {

struct ControlServerOptions {
  int ranks = 1;
  Secret secret;
  std::string address{};          // to listen at; empty: every address of this host
  std::uint16_t port = 0;         // 0: any free port
  Milliseconds start{60'000};     // time for all ranks to connect; then missing ones are reported
  Milliseconds handshake{5'000};  // time for one client to authenticate
  Timing timing{};
};

// ControlActions carries out what a ControlProtocol decides. `id` is a number that opened()
// returned. A call must not call the protocol.
class ControlActions {
 public:
  virtual ~ControlActions() = default;
  // Sends some of `bytes` without waiting, and returns their number. Throws TransientError if the
  // connection is broken.
  virtual std::size_t send(int id, std::span<const std::byte> bytes) = 0;
  // Reports arrived bytes only if `reading`, and calls ready() as soon as more can be sent only if
  // `writing`. A new connection reads and does not write.
  virtual void watch(int id, bool reading, bool writing) = 0;
  virtual void close(int id) = 0;         // `id` may be used for another connection afterwards
  virtual void connected(int ranks) = 0;  // number of ranks that are connected
  virtual void aborted(const Verdict& verdict) = 0;  // once, before any rank receives it
};

class ControlProtocol {
 public:
  // `actions` must outlive this object.
  ControlProtocol(const ControlServerOptions& options, ControlActions& actions, Deadline now);
  ControlProtocol(const ControlProtocol&) = delete;
  ControlProtocol& operator=(const ControlProtocol&) = delete;
  ~ControlProtocol();

  // A client connected, from `peer`. `random`: fit for keys. Returns its number, which is small.
  int opened(const std::string& peer, const Bytes32& random, Deadline now);
  // Bytes arrived. An error ends one connection, not the server.
  void bytes(int id, std::span<const std::byte> arrived, Deadline now);
  void closed(int id);  // the other end closed, or the connection is broken
  void ready(int id);   // more can be sent
  void reject(int id, const std::string& why, Deadline now);  // closes a client that just connected

  // Sends the queued bytes. Call it after each turn of events, and at due().
  void time(Deadline now);
  Deadline due() const;

  // While too many clients are unauthenticated, new ones wait until accepts_at(), when the oldest
  // of them has had its time. The caller then passes the bytes of oldest_client() that have
  // arrived. make_room() closes that client if there were none.
  Deadline accepts_at() const;
  bool is_crowded() const;
  int oldest_client() const;  // if it is crowded
  void make_room(int id, Deadline now);

  // Bytes of messages to all ranks and of messages that wait. It looks at all connections.
  std::size_t queued_bytes() const;

  static constexpr std::size_t kMostQueuedBytes = std::size_t{64}
                                                  << 20;  // a rank; then senders wait
  static std::size_t most_clients(int ranks);             // that are unauthenticated

 private:
  using SharedBytes = std::shared_ptr<const Bytes>;  // one copy for all receivers
  struct Connection;
  using Connections = std::list<Connection>;

  // Logs closed connections of unauthenticated clients, at most one line every ten seconds.
  class RejectionLog {
   public:
    void add(const std::string& peer, const std::string& why, Deadline now);

   private:
    int count_ = 0;
    Deadline next_ = Deadline::min();
  };

  static SharedBytes encoded(const Frame& frame);
  void read(Connection& from, std::span<const std::byte> arrived, Deadline now);
  void welcome(Connection& peer, Deadline now);
  void greet_control(const Introduction& who);
  Bytes roster(std::size_t ranks) const;
  bool all_came() const { return came_count_ == options_.ranks; }
  void turn_away(Connection& peer, int exit_code, const std::string& why, Deadline now);
  void end(Connection& peer, Deadline now);
  void take(Connection& from, Frame frame, Deadline now);
  void pass_on(Connection& from, Frame frame);
  Connection* full_receiver(int to) const;
  void release_senders(Connection& receiver);
  void judge(Deadline now);
  void too_late(Deadline now);
  void expire(Connections& connections, Deadline now);
  static void move_to(Connections& list, Connection& connection);
  void queue(Connection& to, SharedBytes bytes);
  void queue_all(const std::vector<Connection*>& connections, const SharedBytes& bytes);
  void close(Connection& connection);
  void touch(Connection& connection);
  void flush(Connection& connection);
  void announce_gone(Deadline now);
  void settle();
  void settle(Connection& connection);
  void forget(const Connection& gone);
  void report_closed(int rank) { must_judge_ |= detector_.closed(rank); }
  void count_connected(int change);

  const ControlServerOptions options_;
  ControlActions& actions_;
  const SharedBytes beat_;

  Connections strangers_;  // in the order in which they were heard
  Connections members_, ending_;
  std::vector<Connection*> by_id_;  // nullptr: no connection has this number
  std::vector<int> free_ids_;
  std::vector<Connection*> touched_;          // by events since the last settle()
  std::vector<Connection*> control_, heart_;  // of each rank
  std::vector<std::optional<Peer>> came_;
  int came_count_ = 0, connected_ = 0;
  std::vector<int> gone_;  // ranks whose departure is not announced yet
  Deadline next_gone_{};   // when it may be
  SharedBytes roster_of_0_;

  FailureDetector detector_;
  bool must_judge_ = false;
  std::optional<Verdict> verdict_;
  SharedBytes verdict_frame_;
  RejectionLog rejected_;
  Deadline start_;
  Deadline next_;  // of the interval
};

}  // namespace lockstep
