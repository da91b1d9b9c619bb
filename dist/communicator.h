// Communicator provides the collectives of one group of ranks. Each call enqueues on a stream and
// returns. Every rank of the group makes the same calls in the same order, except messages, and
// always on one stream.
// Each World has its own backend (comms.h). On a measuring stream nothing runs: calls are only
// counted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "core/op_log.h"
#include "core/stream.h"
#include "core/timeline.h"
#include "core/trace.h"

namespace lockstep {

class CollectiveRing;

enum class ReduceOp : std::uint8_t { sum, max };

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send,
  receive,
  barrier
};
inline constexpr std::size_t kCollectives = 8;
const char* name(Collective kind);

class Communicator {
 public:
  // Traffic is the number of calls and the bytes that this rank must receive from others for them:
  //   all_reduce 2 (d-1)/d n    all_gather (d-1) n of `in`    reduce_scatter, all_to_all (d-1)/d n
  //   broadcast n, but 0 at the root    send 0    receive n
  struct Traffic {
    std::int64_t calls = 0, bytes = 0;
    friend bool operator==(const Traffic&, const Traffic&) = default;
  };

  // name: purpose of the group, for logs and errors
  Communicator(std::string name, int rank, int size);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const Traffic& traffic(Collective kind) const { return traffic_[static_cast<std::size_t>(kind)]; }
  // Records each later call in the ring, which outlives this communicator.
  void record_in(CollectiveRing* ring) { ring_ = ring; }
  // For a group of the mesh: sets its purpose, and its ranks in the world.
  void belongs_to(Group group, std::vector<int> ranks) {
    group_ = group;
    ranks_ = std::move(ranks);
  }
  const std::vector<int>& ranks() const { return ranks_; }

  // inout = the sum, or maximum, of all ranks' inout, with the same bits on each rank. Types: fp32,
  // bf16 (added in fp32) and int32.
  void all_reduce(Tensor inout, ReduceOp op, Stream& stream);
  // out [size() n] = the `in` [n] of each rank, in rank order. `in` may be this rank's part of out.
  void all_gather(Tensor out, ConstTensor in, Stream& stream);
  // out [n] = the sum over ranks of piece rank() of the size() pieces of `in`; fp32 or bf16. The
  // library chooses the order, and where it rounds. `out` does not overlap `in`.
  void reduce_scatter(Tensor out, ConstTensor in, Stream& stream);
  // Sends piece r of the size() pieces of `in` to rank r. `out` gets the received pieces in rank
  // order.
  void all_to_all(Tensor out, ConstTensor in, Stream& stream);
  void broadcast(Tensor inout, int root, Stream& stream);
  // Sends a message to another rank, which receives the messages of this rank in order. Ranks that
  // both send and receive do so in together(), and send first. All ranks of the group call
  // together(), even with an empty body: otherwise the numbers of a CollectiveRing differ.
  void send(ConstTensor sent, int to, Stream& stream);
  void receive(Tensor received, int from, Stream& stream);
  void barrier(Stream& stream);

  // body() makes independent calls, which may be transferred together.
  template <class Body>
  void together(Body&& body) {
    begin_group();
    grouped_ = true;
    body();
    grouped_ = false;
    end_group();
    end_entry();
  }

 protected:
  // When these are called, the arguments are checked, the group has other ranks, and the stream
  // runs.
  virtual void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) = 0;
  virtual void do_all_gather(Tensor out, ConstTensor in, Stream& stream) = 0;
  virtual void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) = 0;
  virtual void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) = 0;
  virtual void do_broadcast(Tensor inout, int root, Stream& stream) = 0;
  virtual void do_send(ConstTensor sent, int to, Stream& stream) = 0;
  virtual void do_receive(Tensor received, int from, Stream& stream) = 0;
  virtual void do_barrier(Stream& stream) = 0;
  virtual void begin_group() {}
  virtual void end_group() {}

 private:
  // Counts a call, and makes it if the stream runs. Returns false if the group has only this rank.
  bool make(Collective kind, std::int64_t bytes, Stream& stream, FunctionRef<void()> call);
  void end_entry();
  void check_rank(const char* what, int rank) const;
  void check_other(const char* what, int rank) const;

  std::string name_;
  int rank_, size_;
  std::array<Traffic, kCollectives> traffic_{};
  Group group_ = Group::other;
  std::vector<int> ranks_;
  CollectiveRing* ring_ = nullptr;
  std::uint64_t number_ = 0;            // number in the ring of the call or calls in progress
  Stream* begun_in_ = nullptr;          // stream of the first of these calls
  std::optional<Trace::Span> traced_;   // trace span of these calls
  std::optional<Timeline::Span> span_;  // timeline span of these calls
  bool grouped_ = false;
};

// A group whose other ranks, if any, do not exist: for measuring streams and for a rank that runs
// alone.
class LoneCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;

 private:
  void do_all_reduce(Tensor, ReduceOp, Stream&) override { fail(); }
  void do_all_gather(Tensor, ConstTensor, Stream&) override { fail(); }
  void do_reduce_scatter(Tensor, ConstTensor, Stream&) override { fail(); }
  void do_all_to_all(Tensor, ConstTensor, Stream&) override { fail(); }
  void do_broadcast(Tensor, int, Stream&) override { fail(); }
  void do_send(ConstTensor, int, Stream&) override { fail(); }
  void do_receive(Tensor, int, Stream&) override { fail(); }
  void do_barrier(Stream&) override { fail(); }
  [[noreturn]] void fail() const;
};

}  // namespace lockstep
