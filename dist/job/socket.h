// Socket: one connection, or a listener: TCP, or a Unix socket between processes of one host. Calls
// return at their deadline at the latest. A Socket never raises SIGPIPE, and child programs do not
// inherit it. Each failure is a TransientError that names the other end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"

namespace lockstep {

class ReadFile;

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Deadline = Clock::time_point;  // Deadline::max(): no deadline

// Text of a time: "5.2 s".
std::string seconds_text(Milliseconds time);

class Socket {
 public:
  Socket() = default;
  // Owns `descriptor`. `peer`: name of the other end in messages, such as "10.0.0.7:4711".
  Socket(int descriptor, std::string peer);
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const { return descriptor_; }
  const std::string& peer() const { return peer_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  // Transfer all of `bytes` or `out`. Throw at the deadline, or if the connection breaks.
  void send_all(std::span<const std::byte> bytes, Deadline deadline);
  void receive_all(std::span<std::byte> out, Deadline deadline);
  // Waits for the first byte and returns the number of bytes. 0: the other end closed.
  std::size_t receive_some(std::span<std::byte> out, Deadline deadline);

  // Sends bytes of a file, which are not copied to this process. Throws DataError if it is too
  // short.
  void send_all(const ReadFile& file, std::int64_t offset, std::size_t bytes, Deadline deadline);

  // Transfer without waiting and return the number of bytes, which may be 0. try_receive returns
  // nullopt if the other end closed.
  std::size_t try_send(std::span<const std::byte> bytes);
  std::size_t try_send(std::span<iovec> pieces);
  std::optional<std::size_t> try_receive(std::span<std::byte> out);

  void finish_sending();       // the other end reads all sent bytes, then the end of the stream
  void shut();                 // wakes the threads that wait for this socket
  std::uint16_t port() const;  // port at this end

 private:
  int descriptor_ = -1;
  std::string peer_;
};

// Wake: a descriptor that becomes readable after up(), to wake a thread that polls it.
class Wake {
 public:
  Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  ~Wake();
  int descriptor() const { return descriptor_; }
  void up() const;
  void down() const;  // not readable until the next up()

 private:
  int descriptor_;
};

// Waits until `socket` can be read, or written; returns false at the deadline.
bool wait_for(const Socket& socket, bool writing, Deadline deadline);

// Listens. address "": every address of this host; "unix:NAME": a Unix socket with that name, which
// processes in the same network namespace reach. port 0: any free port. `remedy`: end of the error
// if the port is taken.
Socket listen_at(const std::string& address, std::uint16_t port,
                 const char* remedy = "choose another port with MASTER_PORT");
std::optional<Socket> accept_from(const Socket& listener);  // nullopt: no client waits
Socket connect_to(const std::string& address, std::uint16_t port, Deadline deadline);

// Passes an open file to the other end of a Unix socket, in a message of one byte.
void send_descriptor(const Socket& socket, const Descriptor& sent);
Descriptor receive_descriptor(const Socket& socket, Deadline deadline);

}  // namespace lockstep
