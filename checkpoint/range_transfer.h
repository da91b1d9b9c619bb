// RangeServer sends ranges of the files in a host's own directory to ranks of other hosts, while
// they restore a checkpoint. Connections authenticate as those between ranks do
// (dist/job/handshake.h).
//
//   rank   -> server  number of ranges, then of each: file, offset, bytes, whole   (64 bits each)
//   server -> rank    for each range 0 and its bytes; if it is not whole, then the 32 digits of
//                     their XXH3-128. If it cannot be read: exit code, size of a text, and the text
#pragma once

#include <filesystem>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/manifest.h"
#include "core/function_ref.h"
#include "dist/job/handshake.h"

namespace lockstep {

struct FileRange {
  std::uint64_t file = 0;  // index in the manifest
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t is_whole = 0;  // 1: a hash of the manifest covers it, so none is sent
};
inline constexpr std::uint64_t kMostRanges = std::uint64_t{1} << 24;  // of one connection

class RangeServer {
 public:
  // Serves the files of one checkpoint from a thread for each connection. `manifest` must outlive
  // this.
  RangeServer(const Secret& secret, std::filesystem::path checkpoint,
              const CheckpointManifest& manifest);
  RangeServer(const RangeServer&) = delete;
  RangeServer& operator=(const RangeServer&) = delete;
  ~RangeServer();  // ends all connections

  std::uint16_t port() const { return listener_.port(); }

 private:
  struct Connection {
    Socket socket;
    std::thread thread;
    bool ended = false;
  };
  void accept();
  bool add_connection();  // mutex_ is held
  void serve(Connection& connection) const;
  void answer(Socket& socket) const;
  void send(Socket& socket, const FileRange& range) const;
  void drop_ended();  // mutex_ is held

  Secret secret_;
  std::filesystem::path checkpoint_;
  const CheckpointManifest& manifest_;
  Socket listener_;
  mutable std::mutex mutex_;
  std::list<Connection> connections_;
  bool leaving_ = false;
  std::thread thread_;
};

// RangeStream receives ranges from a RangeServer, in the order in which they were requested.
class RangeStream {
 public:
  // Connects and requests all ranges. Throws TransientError if the server cannot be reached.
  //   patience: timeout to connect, and for each piece
  RangeStream(const Membership& to, std::span<const FileRange> ranges, Milliseconds patience);

  // Receives the next range: calls use(piece, done) for each piece, with the number of bytes before
  // it, a multiple of 8. The bytes are received into `place`, or into a buffer if it is empty.
  // Throws DataError if the server cannot read the range or it arrives damaged; the ranges after it
  // can still be received. Throws TransientError if the connection breaks.
  void next(std::span<std::byte> place,
            FunctionRef<void(std::span<const std::byte> piece, std::int64_t done)> use);

 private:
  Milliseconds patience_;
  std::vector<FileRange> ranges_;
  std::size_t next_ = 0;
  Socket socket_;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep
