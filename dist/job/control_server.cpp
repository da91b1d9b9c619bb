#include "dist/job/control_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <utility>

#include "core/descriptor.h"
#include "core/log.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

constexpr int kAcceptedAtOnce = 256;
constexpr Milliseconds kLongestTurn{60'000};
constexpr int kEvents = 1024;  // at most, of one call of epoll_wait
constexpr std::uint64_t kListener = ~std::uint64_t{0}, kWake = kListener - 1;  // else a client's id

// Raises the descriptor limit to what a control server of options.ranks needs, and 256 for the
// rest.
const ControlServerOptions& with_descriptors(const ControlServerOptions& options) {
  const auto needed =
      2 * static_cast<rlim_t>(options.ranks) + ControlProtocol::most_clients(options.ranks) + 256;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return options;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (limit.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw ConfigError(str("rank 0 needs ", needed, " open files for ", options.ranks,
                          " ranks, but its limit is ", limit.rlim_max,
                          "; raise it with ulimit -Hn"));
  return options;
}

}  // namespace

// Server runs the protocol on sockets, by epoll.
class ControlServer::Server final : private ControlActions {
 public:
  explicit Server(const ControlServerOptions& options)
      : listener_(listen_at(with_descriptors(options).address, options.port)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        protocol_(options, *this, Clock::now()) {
    if (!epoll_) throw TransientError("cannot create an epoll descriptor");
    watch(EPOLL_CTL_ADD, listener_.descriptor(), EPOLLIN, kListener);
    watch(EPOLL_CTL_ADD, wake_.descriptor(), EPOLLIN, kWake);
  }

  std::uint16_t port() const { return listener_.port(); }

  void stop() {
    stopping_ = true;
    wake_.up();
  }

  bool wait_until_all_left(Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return connected_ == 0; });
  }

  std::vector<int> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  void run() {
    while (!stopping_) {
      wait_for_events();
      protocol_.time(Clock::now());
    }
  }

 private:
  void watch(int operation, int descriptor, std::uint32_t events, std::uint64_t what) const {
    epoll_event event{.events = events, .data = {.u64 = what}};
    if (epoll_ctl(epoll_.number(), operation, descriptor, &event) != 0)
      throw TransientError(str("cannot watch a connection: ", reason(errno)));
  }

  void wait_for_events() {
    auto until = protocol_.due();
    if (!accepting_) until = std::min<Deadline>(until, protocol_.accepts_at());
    const auto left = std::clamp(std::chrono::ceil<Milliseconds>(until - Clock::now()),
                                 Milliseconds(0), kLongestTurn);
    std::array<epoll_event, kEvents> events;
    const int count =
        epoll_wait(epoll_.number(), events.data(), kEvents, static_cast<int>(left.count()));
    bool client_waits = !accepting_ && Clock::now() >= protocol_.accepts_at();
    for (int i = 0; i < count; ++i) {
      const auto& [happened, data] = events[static_cast<std::size_t>(i)];
      if (data.u64 == kListener)
        client_waits = true;
      else if (data.u64 != kWake)
        serve(static_cast<int>(data.u64), happened);
    }
    if (client_waits) accept_all();  // last: it may remove connections
  }

  Socket& socket_of(int id) { return sockets_[static_cast<std::size_t>(id)]; }

  void serve(int id, std::uint32_t happened) {
    auto& socket = socket_of(id);
    if (!socket) return;  // closed in this turn
    if ((happened & EPOLLOUT) != 0) protocol_.ready(id);
    if ((happened & (EPOLLIN | EPOLLERR | EPOLLHUP)) == 0) return;
    std::optional<std::size_t> count;
    try {
      count = socket.try_receive(buffer_);
    } catch (const TransientError&) {  // a broken connection counts as closed
    }
    if (!count)
      protocol_.closed(id);
    else if (*count > 0)
      protocol_.bytes(id, std::span(buffer_).first(*count), Clock::now());
  }

  // While too many clients are unauthenticated, new ones wait in the queue of the listener.
  void accept_all() {
    int accepted = 0;
    bool all = false;
    for (auto now = Clock::now(); now >= protocol_.accepts_at(); now = Clock::now()) {
      if (protocol_.is_crowded()) {
        const int oldest = protocol_.oldest_client();
        serve(oldest, EPOLLIN);
        protocol_.make_room(oldest, now);
        continue;
      }
      if (accepted == kAcceptedAtOnce) return;  // the listener reports the others again
      auto socket = accept_from(listener_);
      all = !socket;
      if (all) break;
      ++accepted;
      admit(std::move(*socket), now);
    }
    if (std::exchange(accepting_, all) != all)
      watch(EPOLL_CTL_MOD, listener_.descriptor(), all ? EPOLLIN : 0u, kListener);
    // A client waits, but descriptors or memory are exhausted.
    if (all && accepted == 0) std::this_thread::sleep_for(Milliseconds(10));
  }

  void admit(Socket socket, Deadline now) {
    const int id = protocol_.opened(socket.peer(), random_bytes(), now);
    if (static_cast<std::size_t>(id) == sockets_.size()) sockets_.emplace_back();
    socket_of(id) = std::move(socket);
    try {
      watch(EPOLL_CTL_ADD, socket_of(id).descriptor(), EPOLLIN, static_cast<std::uint64_t>(id));
    } catch (const TransientError& error) {
      protocol_.reject(id, error.what(), now);
    }
  }

  std::size_t send(int id, std::span<const std::byte> bytes) override {
    return socket_of(id).try_send(bytes);
  }
  void watch(int id, bool reading, bool writing) override {
    watch(EPOLL_CTL_MOD, socket_of(id).descriptor(),
          (reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u), static_cast<std::uint64_t>(id));
  }
  void close(int id) override { socket_of(id) = Socket(); }
  void connected(int ranks) override {
    const std::lock_guard lock(mutex_);
    connected_ = ranks;
    changed_.notify_all();
  }
  void aborted(const Verdict& verdict) override {
    const std::lock_guard lock(mutex_);
    lost_ = verdict.lost;
  }

  Socket listener_;
  Wake wake_;
  Descriptor epoll_;
  std::atomic<bool> stopping_ = false;
  bool accepting_ = true;
  Bytes buffer_ = Bytes(kPieceBytes);
  std::deque<Socket> sockets_;  // by id; empty: no connection
  ControlProtocol protocol_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int connected_ = 0;
  std::vector<int> lost_;  // of the verdict, for another thread
};

ControlServer::ControlServer(const ControlServerOptions& options)
    : server_(std::make_unique<Server>(options)) {
  port_ = server_->port();
  thread_ = start_thread([server = server_.get()] {
    try {
      server->run();
    } catch (const std::exception& error) {
      log_line(LogLevel::error, str("rank 0's control server stopped: ", error.what()));
    }
  });
}

ControlServer::~ControlServer() {
  server_->stop();
  thread_.join();
}

std::vector<int> ControlServer::lost() const {
  return server_->lost();
}

bool ControlServer::wait_until_all_left(Milliseconds timeout) {
  return server_->wait_until_all_left(timeout);
}

}  // namespace lockstep
