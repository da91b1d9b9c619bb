// HostCommunicator computes collectives in host memory from transfers between pairs of ranks, which
// a subclass makes. Every rank sends to all others at once. One rank makes each sum, in the order
// of ranks, so all subclasses give the same bits.
#pragma once

#include <string>
#include <vector>

#include "dist/communicator.h"

namespace lockstep {

class HostCommunicator : public Communicator {
 protected:
  //   sum_bytes  bytes of each rank that are received and summed at once
  HostCommunicator(const std::string& name, int rank, int size, std::int64_t sum_bytes);

  // Parts of collectives, and messages. Transfers of a lane from one rank to another arrive in the
  // order in which they were sent; lanes do not wait for each other.
  enum class Lane : std::uint8_t { parts, messages };

  // Start a transfer. The memory stays valid until finish() returns, which waits for all transfers
  // of the lane. The stream's thread calls these functions.
  virtual void start_send(Lane lane, const std::byte* data, std::int64_t bytes, int to) = 0;
  virtual void start_receive(Lane lane, std::byte* data, std::int64_t bytes, int from) = 0;
  virtual void finish(Lane lane) = 0;
  // Waits for all receives of the lane; it may wait for sends too.
  virtual void finish_receives(Lane lane) = 0;

  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) final;
  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) final;
  void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) final;
  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) final;
  void do_send(ConstTensor sent, int to, Stream& stream) final;
  void do_receive(Tensor received, int from, Stream& stream) final;
  void begin_group() final { in_group_ = true; }
  void end_group() final;

 private:
  void reduce_small(Tensor inout, ReduceOp op);
  void reduce_large(Tensor inout, ReduceOp op);
  void reduce_scatter_pieces(Tensor out, ConstTensor in);
  void send_part(const std::byte* data, std::int64_t bytes, int to);
  void receive_part(std::byte* data, std::int64_t bytes, int from);
  void wait_behind(Stream& stream);
  std::vector<int> others_in_turn() const;

  std::int64_t sum_bytes_;
  std::vector<std::byte> received_;
  bool in_group_ = false;
  Stream* messages_on_ = nullptr;  // stream of messages not waited for yet
};

}  // namespace lockstep
