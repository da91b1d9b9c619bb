// Link: the connection of this rank to one other rank of a group, over a socket, or through memory
// that two processes of a host share (SharedRings). With shared memory the socket wakes a sleeping
// rank, and ends if the other one dies.
//
// Each transfer is a head of 16 bytes and its bytes. It belongs to a lane. Transfers of a lane
// arrive in the order in which they were sent; lanes do not wait for each other. One thread at a
// time uses a link.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <poll.h>
#include <span>
#include <vector>

#include "dist/job/shared_rings.h"
#include "dist/job/socket.h"

namespace lockstep {

class Link {
 public:
  // Parts of collectives, and messages.
  enum Lane : std::uint32_t { parts, messages };

  // rings: nullptr: the socket carries the bytes
  explicit Link(Socket socket, std::unique_ptr<SharedRings> rings = nullptr);

  // Start a transfer. Its memory stays valid until the lane is idle.
  void send(Lane lane, std::span<const std::byte> bytes);
  void receive(Lane lane, std::span<std::byte> out);
  bool has_received(Lane lane) const { return receiving_[lane].empty(); }
  bool is_idle(Lane lane) const { return unsent_[lane] == 0 && has_received(lane); }
  bool is_idle() const { return is_idle(parts) && is_idle(messages); }

  // Transfers some bytes without waiting; returns false if none could be. Throws TransientError if
  // the other rank is gone, and DataError if it sends something else than this rank expects.
  bool progress();

  // Before a rank sleeps, it announces it to each link that is not idle, calls progress() once
  // more, and polls for the events. After that it wakes up.
  pollfd announce_sleep();
  void wake_up(const pollfd& polled);

 private:
  static constexpr std::size_t kLanes = 2;
  struct Head {
    std::uint64_t bytes = 0;
    std::uint32_t lane = 0, mark = kMark;
  };
  static constexpr std::uint32_t kMark = 0x4b434f4c;  // "LOCK"
  struct Sending {
    Head head;
    std::span<const std::byte> bytes;
    std::size_t sent = 0;  // of head and bytes
  };

  bool send_some();
  bool receive_some();
  void begin_body();
  void end_body();
  void deliver_early(std::size_t lane);
  std::size_t write(const Sending& out);
  std::size_t read(std::span<std::byte> out);
  void wake_other(std::uint32_t events);

  Socket socket_;
  std::unique_ptr<SharedRings> rings_;
  bool closed_ = false;  // with shared memory: the other end closed the socket

  std::deque<Sending> sending_;
  std::array<std::size_t, kLanes> unsent_{};
  std::array<std::deque<std::span<std::byte>>, kLanes> receiving_;
  std::array<std::deque<std::vector<std::byte>>, kLanes> early_;  // arrived before their receive()
  Head head_;                                                     // of the transfer that arrives
  std::size_t head_bytes_ = 0;                                    // bytes of it that have arrived
  std::span<std::byte> body_;                                     // its bytes that have not arrived
  bool in_body_ = false;
  bool is_early_ = false;  // its bytes go to early_
};

}  // namespace lockstep
