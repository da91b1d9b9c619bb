// Control: byte messages between the ranks of a job, over TCP and through rank 0's hub; independent
// of MPI, NCCL and every stream, so any thread may use it behind training's back. What is small and
// rare goes here: who is there, a checkpoint's commit. Never tensors.
//
// Messages from one rank to another with one tag arrive in the order in which they were sent. A
// message has at most 16 MiB, a tag 64 bytes; what has arrived and was not received yet at most 1
// GiB. A deadline that passes, or a peer that is gone, is a TransientError that names rank and
// host.
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
  // Returns when every rank is here. Throws, on all that came, when some are not within
  // membership.start, naming them.
  explicit Control(const Membership& membership);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();  // what was sent arrives

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  const Peer& peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }
  std::string describe(
      const std::vector<int>& ranks) const;  // "rank 3 (host n2), rank 7 (host n4)"

  void send(int to, const std::string& tag, std::span<const std::byte> bytes);
  Bytes receive(int from, const std::string& tag, Milliseconds timeout);

  // Every rank calls the same ones in the same order (those with one tag). What fails in one of the
  // last three is thrown by all ranks alike: rank 0 tells them.
  std::vector<Bytes> gather(const std::string& tag, std::span<const std::byte> bytes,
                            Milliseconds timeout);  // [ranks] at rank 0, elsewhere nothing
  Bytes broadcast(const std::string& tag, std::span<const std::byte> bytes,
                  Milliseconds timeout);  // rank 0's
  std::vector<Bytes> all_gather(const std::string& tag, std::span<const std::byte> bytes,
                                Milliseconds timeout);  // [ranks], at most 16 MiB together
  void barrier(const std::string& tag, Milliseconds timeout);

 private:
  using Key = std::pair<int, std::string>;  // from, tag
  using AtRoot = std::function<Bytes(const std::vector<Bytes>&)>;

  void await_roster(Deadline deadline);
  void read();  // the reader's thread
  void take(Frame frame);
  void lose(const std::string& why);
  Bytes receive_by(int from, const std::string& tag, Deadline deadline);
  std::vector<Bytes> collect(const std::string& tag, std::span<const std::byte> bytes,
                             Milliseconds timeout);
  Bytes round(const std::string& tag, std::span<const std::byte> bytes, Milliseconds timeout,
              const AtRoot& at_root);

  int rank_;
  Socket socket_;
  FrameReader reader_;
  std::vector<Peer> peers_;

  std::mutex sending_;
  std::mutex mutex_;  // of what follows
  std::condition_variable arrived_;
  std::map<Key, std::deque<Bytes>> inbox_;
  std::size_t waiting_bytes_ = 0;
  std::vector<bool> gone_;
  std::string lost_;  // why nothing more will come
  std::thread thread_;
};

}  // namespace lockstep
