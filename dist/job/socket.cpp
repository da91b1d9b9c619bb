#include "dist/job/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "core/file.h"

namespace lockstep {
namespace {

[[noreturn]] void broken(const std::string& peer, const std::string& what) {
  throw TransientError(str("connection to ", peer, ": ", what));
}

std::string place(const std::string& address, std::uint16_t port) {
  const bool colons = address.find(':') != std::string::npos;
  return colons ? str("[", address, "]:", port) : str(address, ":", port);
}

std::string numeric(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST] = "?";
  getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string place(const sockaddr_storage& address, socklen_t bytes) {
  if (address.ss_family == AF_UNIX) return "a process of this host";
  const auto port = address.ss_family == AF_INET6
                        ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                        : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return place(numeric(reinterpret_cast<const sockaddr*>(&address), bytes), ntohs(port));
}

void set(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);  // failure is harmless
}

// Sends small messages at once. Keepalive detects the death of the peer's host on an idle
// connection.
void tune(int descriptor) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.empty() ? nullptr : address.c_str(),
                                std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw TransientError(str("cannot resolve the address '", address, "': ", gai_strerror(error)));
  return {found, &freeaddrinfo};
}

int open_socket(const addrinfo& at) {
  return socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
}

constexpr std::string_view kUnix = "unix:";

// A name in the abstract namespace begins with a zero byte.
struct UnixAddress {
  explicit UnixAddress(std::string_view text) {
    const auto name = text.substr(kUnix.size());
    LOCKSTEP_CHECK(name.size() + 1 < sizeof address.sun_path, "a long name of a socket: ", name);
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t bytes = 0;
};

Socket open_unix(const std::string& address) {
  return {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), address};
}

Socket listen_at_name(const std::string& address) {
  const UnixAddress at(address);
  Socket socket = open_unix(address);
  if (!socket || bind(socket.descriptor(), at.get(), at.bytes) != 0 ||
      listen(socket.descriptor(), SOMAXCONN) != 0)
    throw TransientError(str("cannot listen at ", address, ": ", reason(errno)));
  return socket;
}

Socket connect_to_name(const std::string& address) {
  const UnixAddress at(address);
  Socket socket = open_unix(address);
  if (!socket || connect(socket.descriptor(), at.get(), at.bytes) != 0)  // it does not wait
    throw TransientError(str("cannot connect to ", address, ": ", reason(errno)));
  return socket;
}

// Timeout for poll: -1 without a deadline; rounded up, so that poll does not spin before one.
int poll_milliseconds(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

}  // namespace

std::string seconds_text(Milliseconds time) {
  return str(std::round(static_cast<double>(time.count()) / 100) / 10, " s");
}

Socket::Socket(int descriptor, std::string peer)
    : descriptor_(descriptor), peer_(std::move(peer)) {}

Socket::Socket(Socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), peer_(std::move(other.peer_)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(peer_, other.peer_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Wake::Wake() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw TransientError(str("cannot open an eventfd: ", reason(errno)));
}

Wake::~Wake() {
  close(descriptor_);
}

void Wake::up() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(descriptor_, &one, sizeof one);
}

void Wake::down() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(descriptor_, &count, sizeof count);
}

bool wait_for(const Socket& socket, bool writing, Deadline deadline) {
  for (;;) {
    pollfd entry{socket.descriptor(), static_cast<short>(writing ? POLLOUT : POLLIN), 0};
    const int ready = poll(&entry, 1, poll_milliseconds(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) broken(socket.peer(), reason(errno));
    if (deadline != Deadline::max() && Clock::now() >= deadline) return false;
  }
}

std::size_t Socket::try_send(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  for (;;) {
    const auto n = sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) broken(peer_, reason(errno));
  }
}

std::size_t Socket::try_send(std::span<const std::byte> bytes) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return try_send({&piece, 1});
}

std::optional<std::size_t> Socket::try_receive(std::span<std::byte> out) {
  for (;;) {
    const auto n = recv(descriptor_, out.data(), out.size(), 0);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return std::nullopt;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) broken(peer_, reason(errno));
  }
}

void Socket::send_all(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto n = try_send(bytes);
    bytes = bytes.subspan(n);
    if (n == 0 && !wait_for(*this, true, deadline)) broken(peer_, "sending timed out");
  }
}

namespace {

// sendfile has no MSG_NOSIGNAL, so this thread takes its SIGPIPE itself.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    const timespec none{};
    sigtimedwait(&pipe_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{}, before_{};
};

}  // namespace

void Socket::send_all(const ReadFile& file, std::int64_t offset, std::size_t bytes,
                      Deadline deadline) {
  const NoPipeSignal no_signal;
  while (bytes > 0) {
    off_t at = offset;
    const auto n = sendfile(descriptor_, file.descriptor(), &at, bytes);
    if (n == 0) file.fail(offset, str("expected ", bytes, " bytes more"));
    if (n > 0) {
      offset += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(*this, true, deadline)) broken(peer_, "sending timed out");
    } else if (errno != EINTR) {
      broken(peer_, reason(errno));
    }
  }
}

std::size_t Socket::receive_some(std::span<std::byte> out, Deadline deadline) {
  for (;;) {
    const auto n = try_receive(out);
    if (!n) return 0;
    if (*n > 0) return *n;
    if (!wait_for(*this, false, deadline)) broken(peer_, "receiving timed out");
  }
}

void Socket::receive_all(std::span<std::byte> out, Deadline deadline) {
  while (!out.empty()) {
    const auto n = receive_some(out, deadline);
    if (n == 0) broken(peer_, "closed by the other end");
    out = out.subspan(n);
  }
}

void Socket::finish_sending() {
  shutdown(descriptor_, SHUT_WR);
}

void Socket::shut() {
  shutdown(descriptor_, SHUT_RDWR);
}

std::uint16_t Socket::port() const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    broken(peer_, reason(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket listen_at(const std::string& address, std::uint16_t port, const char* remedy) {
  if (address.starts_with(kUnix)) return listen_at_name(address);
  const auto found = resolve(address, port, AI_PASSIVE | AI_NUMERICSERV);
  // IPv6 first: without a given address it accepts IPv4 too.
  std::vector<const addrinfo*> order;
  for (const auto* at = found.get(); at != nullptr; at = at->ai_next)
    order.push_back(at);
  std::stable_partition(order.begin(), order.end(),
                        [](const addrinfo* at) { return at->ai_family == AF_INET6; });
  int error = 0;
  for (const auto* at : order) {
    Socket socket(open_socket(*at), place(address.empty() ? "*" : address, port));
    if (!socket) {
      error = errno;
      continue;
    }
    set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (at->ai_family == AF_INET6)
      set(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, address.empty() ? 0 : 1);
    if (bind(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.descriptor(), SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  throw TransientError(str("cannot listen at ", place(address.empty() ? "*" : address, port), ": ",
                           reason(error), error == EADDRINUSE ? str("; ", remedy) : ""));
}

std::optional<Socket> accept_from(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  const int descriptor = accept4(listener.descriptor(), reinterpret_cast<sockaddr*>(&address),
                                 &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return std::nullopt;  // no client, or closed already, or no descriptor left
  tune(descriptor);
  return Socket(descriptor, place(address, bytes));
}

Socket connect_to(const std::string& address, std::uint16_t port, Deadline deadline) {
  if (address.starts_with(kUnix)) return connect_to_name(address);
  const auto found = resolve(address, port, AI_NUMERICSERV);
  std::string text;
  for (const auto* at = found.get(); at != nullptr; at = at->ai_next) {
    Socket socket(open_socket(*at), place(address, port));
    int error = socket ? 0 : errno;
    if (socket && connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS || error == EINTR) {
        socklen_t bytes = sizeof error;
        if (!wait_for(socket, true, deadline))
          error = ETIMEDOUT;
        else if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
          error = errno;
      }
    }
    if (error == 0) {
      tune(socket.descriptor());
      return socket;
    }
    text = reason(error);
  }
  throw TransientError(str("cannot connect to ", place(address, port), ": ", text));
}

namespace {

// A message of one byte that carries one descriptor.
struct Passing {
  Passing() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
};

}  // namespace

void send_descriptor(const Socket& socket, const Descriptor& sent) {
  Passing passing;
  cmsghdr* head = CMSG_FIRSTHDR(&passing.message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = sent.number();
  std::memcpy(CMSG_DATA(head), &number, sizeof number);
  if (sendmsg(socket.descriptor(), &passing.message, MSG_NOSIGNAL) != 1)
    broken(socket.peer(), reason(errno));
}

Descriptor receive_descriptor(const Socket& socket, Deadline deadline) {
  Passing passing;
  if (!wait_for(socket, false, deadline)) broken(socket.peer(), "receiving timed out");
  const auto count = recvmsg(socket.descriptor(), &passing.message, MSG_CMSG_CLOEXEC);
  if (count < 0) broken(socket.peer(), reason(errno));
  const cmsghdr* head = CMSG_FIRSTHDR(&passing.message);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int)))
    broken(socket.peer(), count == 0 ? "closed by the other end" : "it passed no descriptor");
  int number = -1;
  std::memcpy(&number, CMSG_DATA(head), sizeof number);
  return Descriptor(number);
}

}  // namespace lockstep
