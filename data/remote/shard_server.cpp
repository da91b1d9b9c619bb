#include "data/remote/shard_server.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <random>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostMessageBytes = 64 << 10;  // limit of a message
constexpr int kProgressMilliseconds = 1000;

std::string random_name() {
  std::random_device random;
  std::string name = "lockstep-shards-";
  for (int i = 0; i < 4; ++i) {
    const auto word = random();
    for (int shift = 0; shift < 32; shift += 4)
      name += "0123456789abcdef"[word >> shift & 15];
  }
  return name;
}

// An address in the abstract namespace starts with a zero byte.
struct Address {
  explicit Address(const std::string& name) {
    LOCKSTEP_CHECK(name.size() < sizeof to.sun_path, "a socket named \"", name, '"');
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&to); }
  sockaddr_un to{};
  socklen_t bytes = 0;
};

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         peer.uid == geteuid();
}

// A packet and its descriptor. Empty: the other end has closed.
struct Packet {
  std::string text;
  Descriptor descriptor;
};
Packet receive(const Descriptor& socket) {
  Packet packet;
  packet.text.resize(kMostMessageBytes);
  iovec part{packet.text.data(), packet.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  ssize_t n = 0;
  do {
    n = recvmsg(socket.number(), &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  const auto* header = n <= 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    packet.descriptor = Descriptor(number);
  }
  packet.text.resize(n <= 0 || (message.msg_flags & MSG_TRUNC) != 0 ? 0
                                                                    : static_cast<std::size_t>(n));
  return packet;
}

// Returns false if the other end has closed.
bool send_packet(const Descriptor& socket, std::string_view text, int descriptor, int flags = 0) {
  std::string bytes(text);
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t n = 0;
  do {
    n = sendmsg(socket.number(), &message, MSG_NOSIGNAL | flags);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes.size());
}

}  // namespace

ShardServer::ShardServer(HostShards& files)
    : files_(files),
      name_(random_name()),
      listening_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  const Address address(name_);
  if (!listening_ || !wake_ || bind(listening_.number(), address.get(), address.bytes) != 0 ||
      listen(listening_.number(), SOMAXCONN) != 0)
    throw Error(str("cannot create a socket for the ranks of this host: ", reason(errno)));
  thread_ = start_thread([this] { accept_peers(); });
}

ShardServer::~ShardServer() {
  files_.stop();
  eventfd_write(wake_.number(), 1);
  thread_.join();
  {
    const std::scoped_lock lock(mutex_);
    for (auto& peer : peers_)
      shutdown(peer.socket.number(), SHUT_RDWR);
  }
  for (auto& peer : peers_)
    peer.thread.join();
}

void ShardServer::accept_peers() {
  for (;;) {
    std::array<pollfd, 2> waits{{{listening_.number(), POLLIN, 0}, {wake_.number(), POLLIN, 0}}};
    const int ready = poll(waits.data(), waits.size(), kProgressMilliseconds);
    if (waits[1].revents != 0) return;
    say_of_progress();
    if (ready <= 0 || (waits[0].revents & POLLIN) == 0) continue;
    Descriptor socket(accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket && is_of_this_user(socket)) add_peer(std::move(socket));
  }
}

void ShardServer::add_peer(Descriptor socket) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(peers_, [](Peer& peer) {
    if (peer.is_gone) peer.thread.join();
    return peer.is_gone;
  });
  auto& peer = peers_.emplace_back();
  peer.socket = std::move(socket);
  try {
    peer.thread = start_thread([this, &peer] { serve(peer); });
  } catch (const TransientError& error) {
    log_own_warning("cannot serve a rank of this host: ", error.what());
    peers_.pop_back();  // the client gets no reply
  }
}

// Reports progress to the waiting peers. Skips peers whose reply is being sent, or that do not
// read.
void ShardServer::say_of_progress() {
  const auto bytes = files_.counts().fetched_bytes;
  const std::scoped_lock lock(mutex_);
  if (bytes == said_bytes_) return;
  said_bytes_ = bytes;
  for (auto& peer : peers_) {
    const std::unique_lock sending(peer.sending, std::try_to_lock);
    if (sending && peer.is_waiting) send_packet(peer.socket, "w", -1, MSG_DONTWAIT);
  }
}

void ShardServer::serve(Peer& peer) {
  for (;;) {
    const auto request = receive(peer.socket);
    if (request.text.empty()) break;
    answer(peer, request.text);
  }
  const std::scoped_lock lock(mutex_);
  peer.is_gone = true;
}

// Called by the thread of the peer, which may block until the peer reads.
void ShardServer::send(Peer& peer, std::string_view text, int descriptor) {
  const std::scoped_lock lock(peer.sending);
  peer.is_waiting = false;
  send_packet(peer.socket, text.substr(0, kMostMessageBytes),
              descriptor);  // a rank that has ended sends no more requests
}

void ShardServer::answer(Peer& peer, std::string_view request) {
  try {
    {
      const std::scoped_lock lock(peer.sending);
      peer.is_waiting = true;
    }
    const auto file = files_.open_descriptor(std::string(request));
    send(peer, "f", file.number());
  } catch (const UnreachableError& error) {
    send(peer, str('u', error.what()));
  } catch (const RefusedError& error) {
    send(peer, str('r', error.what()));
  } catch (const StorageError& error) {
    send(peer, str('s', error.what()));
  } catch (const AccessError& error) {
    send(peer, str('x', error.what()));
  } catch (const std::exception& error) {
    send(peer, str('e', error.what()));
  }
}

ShardClient::ShardClient(const std::string& name) : name_(name) {
  give_back(take());
}

ShardClient::Connection& ShardClient::take() {
  const std::scoped_lock lock(mutex_);
  if (is_stopped_) throw AccessError("reading of shards was stopped");
  for (auto& connection : connections_)
    if (!std::exchange(connection.is_busy, true)) return connection;
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address(name_);
  if (!made || connect(made.number(), address.get(), address.bytes) != 0)
    throw UnreachableError(
        str("cannot reach the first rank of this host, which opens shards for the others: ",
            reason(errno)));
  if (!is_of_this_user(made))
    throw AccessError("the socket of the first rank of this host belongs to another user");
  connections_.push_back({std::move(made), true});
  return connections_.back();
}

void ShardClient::give_back(Connection& connection, bool is_broken) {
  const std::scoped_lock lock(mutex_);
  connection.is_busy = false;
  if (is_broken)
    std::erase_if(connections_, [&](const auto& each) { return &each == &connection; });
}

ReadFile ShardClient::open(const std::string& path) {
  LOCKSTEP_CHECK(path.size() <= kMostMessageBytes, "a path of ", path.size(), " bytes");
  auto& connection = take();
  send_packet(connection.socket, path, -1);  // if this fails, receiving fails too
  auto reply = receive(connection.socket);
  while (reply.text.starts_with('w')) {
    made_progress();
    reply = receive(connection.socket);
  }
  give_back(connection, /*is_broken=*/reply.text.empty());
  if (reply.text.empty())
    throw UnreachableError(str(path,
                               ": the first rank of this host, which opens shards for the others, "
                               "does not respond; it may have exited"));
  const auto what = reply.text.substr(1);
  if (reply.text.front() == 'u') throw UnreachableError(what);
  if (reply.text.front() == 'r') throw RefusedError(what);
  if (reply.text.front() == 's') throw StorageError(what);
  if (reply.text.front() == 'x') throw AccessError(what);
  if (reply.text.front() == 'e') throw DataError(what);
  if (!reply.descriptor) fail_io(path, "cannot open", EMFILE);
  return {reply.descriptor.release(), path};
}

void ShardClient::stop() {
  const std::scoped_lock lock(mutex_);
  is_stopped_ = true;
  for (const auto& connection : connections_)
    shutdown(connection.socket.number(), SHUT_RDWR);
}

}  // namespace lockstep
