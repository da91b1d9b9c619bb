// MetricsServer: GET /metrics over HTTP/1.1 (RFC 9112), for Prometheus. One thread, no blocking
// call. Each connection has one request of a few kilobytes and a few seconds; when too many are
// open, the oldest is closed. So clients that are slow, or mean harm, take nothing from training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace lockstep {

class MetricsServer {
 public:
  // address "": every address of this machine. port 0: any that is free. Throws TransientError
  // where it cannot listen there.
  MetricsServer(const std::string& address, std::uint16_t port);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  std::uint16_t port() const { return port_; }
  std::string address() const;  // "127.0.0.1:9400"
  void set(std::string text);   // what is answered from now on

 private:
  class Server;
  std::string host_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace lockstep
