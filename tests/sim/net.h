// Net simulates TCP connections between the processes of hosts: latency, order per connection,
// limited buffers, cut links that hold bytes back until they heal, and half-open connections.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "dist/job/frame.h"
#include "tests/sim/kernel.h"

namespace lockstep::sim {

// Endpoint is a process that has connections.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void accepted(int /*connection*/) {}
  virtual void arrived(int connection, std::span<const std::byte> bytes) = 0;
  virtual void closed(int connection) = 0;  // by the other end, or it cannot be reached
  virtual void writable(int /*connection*/) {}
};

class Net {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;  // of one direction

  Net(Kernel& kernel, int hosts)
      : kernel_(kernel), up_(static_cast<std::size_t>(hosts), true), slow_(up_.size()) {}

  // The latency of a link is drawn from [low, high] for each piece, plus `slow` of both hosts.
  void set_latency(Micros low, Micros high) {
    low_ = low;
    high_ = high;
  }
  void set_slow(int host, Micros extra) { slow_.at(index(host)) = extra; }

  void listen(int host, int port, Endpoint* listener) { listeners_[{host, port}] = listener; }
  void stop_listening(int host, int port) { listeners_.erase({host, port}); }
  // The bytes that are sent at once follow the connection.
  int connect(Endpoint* client, int from, int to, int port);
  // Returns the number of bytes that fit in the buffer. If they do not all fit and `wants` is set,
  // writable() follows.
  std::size_t send(int connection, const Endpoint* from, std::span<const std::byte> bytes);
  void set_writing(int connection, const Endpoint* at, bool writing);
  void set_reading(int connection, const Endpoint* at, bool reading);
  void close(int connection, const Endpoint* from);

  // Stops or continues the processes of an endpoint. Stopped ones read nothing until they continue.
  void set_paused(const Endpoint* endpoint, bool paused);
  void kill(const Endpoint* endpoint);  // the kernel of its host closes its connections

  // No byte passes from the hosts `from` to the hosts `to`.
  struct Hosts {
    int begin = 0, end = 0;
    bool has(int host) const { return begin <= host && host < end; }
  };
  void cut(Hosts from, Hosts to) { cuts_.emplace_back(from, to); }
  void heal();  // all cuts
  void power_off(int host);
  void power_on(int host) { up_.at(index(host)) = true; }
  bool is_up(int host) const { return up_.at(index(host)); }

 private:
  struct Piece {
    Micros due = 0;
    Bytes bytes{};
    bool end = false;  // of the stream
  };
  struct End {
    Endpoint* owner = nullptr;
    int host = 0;
    bool open = true, reading = true, writing = false, notified = false;
    std::deque<Piece> way{};    // that this end has sent
    std::size_t way_bytes = 0;  // sent, and not yet read by the other end's process
    Micros last = 0;            // arrival of the last piece
    std::deque<Piece> read{};   // arrived here; the process has not read it
  };
  struct Connection {
    End ends[2];
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool is_cut(int from, int to) const {
    return std::ranges::any_of(
        cuts_, [&](const auto& cut) { return cut.first.has(from) && cut.second.has(to); });
  }
  Micros latency(int from, int to) {
    return kernel_.random.between(low_, high_) + slow_[index(from)] + slow_[index(to)];
  }
  int side_of(const Connection& c, const Endpoint* at) const {
    return c.ends[0].owner == at ? 0 : 1;
  }
  void put(int connection, int side, Piece piece);
  void pump(int connection, int side);     // pieces of `side` arrive
  void deliver(int connection, int side);  // the process at `side` reads

  void notify(int connection, int side, Micros pause);

  Kernel& kernel_;
  Micros low_ = 50, high_ = 500;
  std::vector<bool> up_;
  std::vector<Micros> slow_;
  std::map<std::pair<int, int>, Endpoint*> listeners_;
  std::vector<std::pair<Hosts, Hosts>> cuts_;       // from, to
  std::map<const Endpoint*, std::vector<int>> of_;  // looked up, never iterated
  std::set<const Endpoint*> paused_;                // the same
  std::deque<Connection> connections_;
};

}  // namespace lockstep::sim
