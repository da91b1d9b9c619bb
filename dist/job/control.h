// Control: byte messages between the ranks of a job, over TCP and through rank 0's control server.
// It does not use MPI, NCCL or streams, so any thread may use it while training runs. It carries
// small and rare messages, such as the list of ranks or the commit of a checkpoint, and no tensors.
//
// Messages from one rank to another with one tag arrive in the order in which they were sent. The
// limits are 16 MiB for a message, 64 bytes for a tag, and 1 GiB for messages that have arrived and
// were not received yet. If a deadline passes or a peer is gone, the call throws a TransientError
// that names rank and host.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "dist/job/handshake.h"

namespace lockstep {

class Control {
 public:
  // Returns when every rank has connected. If some do not connect within membership.start, all
  // connected ranks throw an error that names them.
  explicit Control(const Membership& membership);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();  // returns after sent messages have arrived, or after two seconds

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::string describe(
      const std::vector<int>& ranks) const;  // "rank 3 (host n2), rank 7 (host n4)"; at most eight

  std::vector<std::string> hosts(const std::vector<int>& ranks) const;  // each once

  // to: a rank, or kEveryRank
  void send(int to, const std::string& tag, std::span<const std::byte> bytes);
  Bytes receive(int from, const std::string& tag, Milliseconds timeout);

  // Collective calls. Every rank makes the calls with one tag in the same order. If all_gather or
  // barrier fails, all ranks throw the same error, which rank 0 sends them. What rank 0 sends to
  // all ranks passes once from it to its control server.
  std::vector<Bytes> gather(const std::string& tag, std::span<const std::byte> bytes,
                            Milliseconds timeout);  // [ranks] on rank 0, elsewhere empty
  Bytes broadcast(const std::string& tag, std::span<const std::byte> bytes,
                  Milliseconds timeout);  // returns rank 0's bytes
  std::vector<Bytes> all_gather(const std::string& tag, std::span<const std::byte> bytes,
                                Milliseconds timeout);  // [ranks], at most 1 GiB in total
  void barrier(const std::string& tag, Milliseconds timeout);

 private:
  using Key = std::pair<int, std::string>;  // from, tag
  using AtRoot = std::function<Bytes(const std::vector<Bytes>&)>;

  void await_roster(Deadline deadline);
  void read();  // runs in the reader's thread
  void take(Frame frame);
  void lose(const std::string& why);
  Bytes receive_by(int from, const std::string& tag, Deadline deadline);
  std::vector<Bytes> collect(const std::string& tag, std::span<const std::byte> bytes,
                             Milliseconds timeout);
  Bytes round(const std::string& tag, std::span<const std::byte> bytes, Milliseconds timeout,
              const AtRoot& at_root);

  int rank_, ranks_;
  Socket socket_;
  FrameReader reader_;
  std::vector<std::string> hosts_;  // of the ranks

  std::mutex sending_;
  std::mutex mutex_;  // guards the members below, except thread_
  std::condition_variable arrived_;
  std::map<Key, std::deque<Bytes>> inbox_;
  std::size_t waiting_bytes_ = 0;
  std::vector<bool> gone_;
  std::string lost_;  // why the connection ended; empty: it is open
  std::thread thread_;
};

}  // namespace lockstep
