// Socket: one TCP connection, or a place that listens for them. Never blocks longer than it is
// told, never raises SIGPIPE, is closed in programs that this one starts. Each failure is a
// TransientError that names the other end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Deadline = Clock::time_point;  // Deadline::max(): without end

// "5.2 s"
std::string seconds_text(Milliseconds time);

class Socket {
 public:
  Socket() = default;
  // Owns `descriptor`. `peer`: what messages call the other end, as "10.0.0.7:4711".
  Socket(int descriptor, std::string peer);
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const { return descriptor_; }
  const std::string& peer() const { return peer_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  // All of `bytes`, or throws: at the deadline, or when the connection is broken.
  void send_all(std::span<const std::byte> bytes, Deadline deadline);
  void receive_all(std::span<std::byte> out, Deadline deadline);
  // Waits for the first byte; how many came. 0: the other end closed it.
  std::size_t receive_some(std::span<std::byte> out, Deadline deadline);

  // What can be done at once: 0 when that is nothing. try_receive: nullopt when the other end
  // closed it.
  std::size_t try_send(std::span<const std::byte> bytes);
  std::optional<std::size_t> try_receive(std::span<std::byte> out);

  void finish_sending();       // the other end reads all that was sent, then the end
  void shut();                 // wakes who waits for it, in any thread
  std::uint16_t port() const;  // at this end

 private:
  int descriptor_ = -1;
  std::string peer_;
};

// Wakes a thread that polls it, for good.
class Wake {
 public:
  Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  ~Wake();
  int descriptor() const { return descriptor_; }
  void up() const;

 private:
  int descriptor_;
};

// Waits until `socket` can be read (or written); false at the deadline.
bool wait_for(const Socket& socket, bool writing, Deadline deadline);

// address "": every address of this machine. port 0: any that is free. `remedy`: where the port is
// taken.
Socket listen_at(const std::string& address, std::uint16_t port,
                 const char* remedy = "choose another port by MASTER_PORT");
std::optional<Socket> accept_from(const Socket& listener);  // nullopt: nobody waits
Socket connect_to(const std::string& address, std::uint16_t port, Deadline deadline);

}  // namespace lockstep
