#include "train/observe/metrics_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string_view>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/start_thread.h"
#include "core/system/machine.h"
#include "dist/job/socket.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostConnections = 32;
constexpr std::size_t kMostRequestBytes = 8192;
constexpr Milliseconds kMostTime{5'000};  // limit of a connection, from its first byte to its last

struct Connection {
  Socket socket;
  Deadline deadline;
  std::string request{}, answer{};  // answer empty: the request is not complete
  std::size_t sent = 0;
  bool over = false;
};

std::string answer_of(std::string_view status, std::string_view headers, std::string_view body,
                      bool with_body = true) {
  return str("HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", body.size(),
             "\r\nConnection: close\r\n\r\n", with_body ? body : "");
}

std::string refusal(std::string_view status, std::string_view headers = "") {
  return answer_of(status, str("Content-Type: text/plain\r\n", headers), str(status, "\n"));
}

// Answer to a request whose head is complete.
std::string answer_to(std::string_view request, const std::string& page) {
  const auto line = request.substr(0, request.find_first_of("\r\n"));
  const auto method_end = line.find(' '), version_at = line.rfind(' ');
  if (method_end == line.npos || version_at <= method_end ||
      !line.substr(version_at + 1).starts_with("HTTP/1."))
    return refusal("400 Bad Request");
  const auto method = line.substr(0, method_end);
  auto target = line.substr(method_end + 1, version_at - method_end - 1);
  target = target.substr(0, target.find('?'));
  if (method != "GET" && method != "HEAD")
    return refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  if (target != "/metrics") return refusal("404 Not Found");
  return answer_of("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", page,
                   method == "GET");
}

bool is_complete(std::string_view request) {
  return request.find("\r\n\r\n") != request.npos || request.find("\n\n") != request.npos;
}

}  // namespace

class MetricsServer::Server {
 public:
  Server(const std::string& address, std::uint16_t port)
      : listener_(listen_at(address, port, "choose another log.metrics_port")) {}

  std::uint16_t port() const { return listener_.port(); }

  void set(std::string text) {
    const std::lock_guard lock(mutex_);
    page_ = std::move(text);
  }

  void stop() {
    stopping_ = true;
    wake_.up();
  }

  void run() {
    while (!stopping_) {
      poll_once();
      const auto now = Clock::now();
      connections_.remove_if([&](const Connection& c) { return c.over || now >= c.deadline; });
    }
  }

 private:
  std::string page() {
    const std::lock_guard lock(mutex_);
    return page_;
  }

  void poll_once() {
    std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0},
                                {wake_.descriptor(), POLLIN, 0}};
    for (const auto& connection : connections_)
      entries.push_back({connection.socket.descriptor(),
                         static_cast<short>(connection.answer.empty() ? POLLIN : POLLOUT), 0});
    // Connections are in order of arrival, and so are their deadlines.
    int wait = -1;
    if (!connections_.empty()) {
      const auto left =
          std::chrono::ceil<Milliseconds>(connections_.front().deadline - Clock::now()).count();
      wait = static_cast<int>(std::max<std::int64_t>(left, 0));
    }
    if (poll(entries.data(), entries.size(), wait) <= 0) return;
    std::size_t i = 2;
    for (auto& connection : connections_)
      if (entries[i++].revents != 0) serve(connection);
    if (entries[0].revents != 0) accept_all();
  }

  void accept_all() {
    bool any = false;
    while (auto socket = accept_from(listener_)) {
      any = true;
      if (connections_.size() == kMostConnections) connections_.pop_front();
      connections_.push_back({.socket = std::move(*socket), .deadline = Clock::now() + kMostTime});
    }
    // A client waits, but descriptors or memory are exhausted.
    if (!any) std::this_thread::sleep_for(Milliseconds(10));
  }

  void serve(Connection& c) {
    try {
      if (c.answer.empty()) read(c);
      if (!c.answer.empty()) send(c);
    } catch (const TransientError&) {  // the client is gone
      c.over = true;
    }
  }

  void read(Connection& c) {
    std::array<std::byte, 4096> bytes;
    const auto count = c.socket.try_receive(bytes);
    if (!count) {
      c.over = true;
      return;
    }
    c.request.append(reinterpret_cast<const char*>(bytes.data()), *count);
    if (is_complete(c.request))
      c.answer = answer_to(c.request, page());
    else if (c.request.size() > kMostRequestBytes)
      c.answer = refusal("431 Request Header Fields Too Large");
  }

  // Sends the answer; the connection is closed after it.
  void send(Connection& c) {
    c.sent += c.socket.try_send(std::as_bytes(std::span(c.answer)).subspan(c.sent));
    c.over = c.sent == c.answer.size();
  }

  Socket listener_;
  Wake wake_;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> connections_;  // oldest first
  std::mutex mutex_;
  std::string page_;
};

MetricsServer::MetricsServer(const std::string& address, std::uint16_t port)
    : host_(address.empty() ? host_name() : address),
      server_(std::make_unique<Server>(address, port)) {
  port_ = server_->port();
  thread_ = start_thread([server = server_.get()] {
    try {
      server->run();
    } catch (const std::exception& error) {
      log_own_warning("the metrics server stopped: ", error.what());
    }
  });
}

MetricsServer::~MetricsServer() {
  server_->stop();
  thread_.join();
}

std::string MetricsServer::address() const {
  const bool colons = host_.find(':') != std::string::npos;
  return colons ? str("[", host_, "]:", port_) : str(host_, ":", port_);
}

void MetricsServer::set(std::string text) {
  server_->set(std::move(text));
}

}  // namespace lockstep
