// Communicator: the collectives of one group of ranks. Each call enqueues on a stream and returns;
// every rank of the group makes the same calls in the same order.
//
// Every group has one rank so far: make_comms() refuses a larger mesh. Callers are written for any
// size, so that further backends change nothing above this file.
#pragma once

#include <array>
#include <memory>

#include "core/stream.h"
#include "dist/mesh.h"

namespace lockstep {

enum class ReduceOp : std::uint8_t { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;  // never blocks: aborts when an error is in flight
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void all_reduce(Tensor inout, ReduceOp op, Stream& stream) = 0;
  virtual void all_gather(Tensor out, ConstTensor in, Stream& stream) = 0;  // out: size() x in
  virtual void all_to_all(Tensor out, ConstTensor in,
                          Stream& stream) = 0;  // piece r goes to rank r
  virtual void broadcast(Tensor inout, int root, Stream& stream) = 0;
  virtual void barrier() = 0;
};

// A group of this rank alone: what it sends, it receives.
class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Tensor inout, ReduceOp op, Stream& stream) override;
  void all_gather(Tensor out, ConstTensor in, Stream& stream) override;
  void all_to_all(Tensor out, ConstTensor in, Stream& stream) override;
  void broadcast(Tensor inout, int root, Stream& stream) override;
  void barrier() override;
};

// One communicator per mesh axis, and one of all ranks.
struct Comms {
  std::unique_ptr<Communicator> world;
  std::array<std::unique_ptr<Communicator>, kAxes> axis;
  Communicator& operator[](Axis a) { return *axis[static_cast<std::size_t>(a)]; }
};

// Throws ConfigError for a mesh of more than one rank.
Comms make_comms(const Mesh& mesh);

}  // namespace lockstep
