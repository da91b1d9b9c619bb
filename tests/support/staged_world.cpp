#include "tests/support/staged_world.h"

#include <utility>

#include "core/gpu.h"

namespace lockstep {
namespace {

// Staging owns pinned memory for one tensor, as large as the largest one so far.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { release(); }

  // A tensor with the type and shape of t.
  Tensor for_tensor(ConstTensor t) {
    if (bytes_ < t.bytes()) {
      release();
      memory_ = gpu::allocate_pinned(t.bytes());
      LOCKSTEP_CHECK(memory_ != nullptr, "cannot pin ", t.bytes(), " bytes of host memory");
      bytes_ = t.bytes();
    }
    return {memory_, t.shape, t.dtype, Device{}};
  }

 private:
  void release() noexcept {
    if (memory_ != nullptr) gpu::release_pinned(memory_);
    memory_ = nullptr;
    bytes_ = 0;
  }

  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

class StagedCommunicator final : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> host)
      : Communicator(host->name(), host->rank(), host->size()), host_(std::move(host)) {}

 private:
  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) override {
    const auto staged = fetched(inout, stream);
    host_->all_reduce(staged, op, cpu_);
    bring(inout, staged, stream);
  }
  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) override {
    const auto staged = fetched(in, stream), all = received_.for_tensor(out);
    host_->all_gather(all, staged, cpu_);
    bring(out, all, stream);
  }
  void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) override {
    const auto staged = fetched(in, stream), sum = received_.for_tensor(out);
    host_->reduce_scatter(sum, staged, cpu_);
    bring(out, sum, stream);
  }
  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    const auto staged = fetched(in, stream), swapped = received_.for_tensor(out);
    host_->all_to_all(swapped, staged, cpu_);
    bring(out, swapped, stream);
  }
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    const auto staged = fetched(inout, stream);
    host_->broadcast(staged, root, cpu_);
    bring(inout, staged, stream);
  }
  // The host's world buffers sent messages, so that no message waits for another.
  void do_send(ConstTensor sent, int to, Stream& stream) override {
    host_->send(fetched(sent, stream), to, cpu_);
  }
  void do_receive(Tensor received, int from, Stream& stream) override {
    const auto staged = received_.for_tensor(received);
    host_->receive(staged, from, cpu_);
    bring(received, staged, stream);
  }
  void do_barrier(Stream& stream) override {
    stream.synchronize();
    host_->barrier(cpu_);
  }

  Tensor fetched(ConstTensor t, Stream& stream) {
    const auto staged = sent_.for_tensor(t);
    stream.copy(staged, t);
    stream.synchronize();
    return staged;
  }
  static void bring(Tensor to, ConstTensor staged, Stream& stream) {
    stream.copy(to, staged);
    stream.synchronize();  // the memory is written again
  }

  std::unique_ptr<Communicator> host_;
  Stream cpu_{Device{}, "staged"};
  Staging sent_, received_;
};

class StagedWorld final : public WorldOver {
 public:
  explicit StagedWorld(World& host) : WorldOver(host) {}
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    return std::make_unique<StagedCommunicator>(under_.connect(group));
  }
};

}  // namespace

std::unique_ptr<World> make_staged_world(World& host) {
  return std::make_unique<StagedWorld>(host);
}

}  // namespace lockstep
