// MetricsServer answers GET /metrics over HTTP/1.1 (RFC 9112), for Prometheus. It has one thread
// and makes no blocking call. Each connection may send one request of a few kilobytes within a few
// seconds. If too many are open, the oldest is closed. Slow or hostile clients do not slow
// training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace lockstep {

class MetricsServer {
 public:
  // address "": every address of this host. port 0: any free port. Throws TransientError if it
  // cannot listen there.
  MetricsServer(const std::string& address, std::uint16_t port);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  std::uint16_t port() const { return port_; }
  std::string address() const;  // "127.0.0.1:9400"
  void set(std::string text);   // sets the text of later answers

 private:
  class Server;
  std::string host_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace lockstep
