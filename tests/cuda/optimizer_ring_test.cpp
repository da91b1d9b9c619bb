// Compares updates through a ring of chunks with the same updates in place.
#include "train/step/optimizer_ring.h"

#include "kernels/elementwise.h"
#include "tests/cuda/twins.h"
#include "train/step/optimizer.h"

namespace lockstep::testing::optimizer_ring_test {

constexpr Device kGpu{Device::Kind::cuda, 0};
constexpr std::int64_t kElements = OptimizerRing::kMostElements;

// Model has a parameter of one and a half chunks, one of a few elements after it, and small ones.
class Model {
 public:
  explicit Model(bool offloaded)
      : stream_(kGpu, "test"),
        arena_(kGpu, Arena::Memory::device, 40 * kElements),
        pinned_(kGpu, Arena::Memory::pinned_host, 40 * kElements),
        comms_(make_comms()),
        params_(comms_, {.compute_dtype = DType::bf16}),
        optimizer_(params_, {.adamw = {.nominal_tokens = 1}, .moments = DType::bf16}) {
    const int large = params_.add_unit("large");
    declare(large, "matrix", {kElements / 1024, 1025});
    declare(large, "vector", {100});
    for (int i = 0; i < 5; ++i)
      declare(params_.add_unit(str("small", i)), str("matrix", i).c_str(), {3, 7 + i});
    Arena* const state = offloaded ? &pinned_ : nullptr;
    params_.allocate(arena_, stream_, state);
    optimizer_.allocate(arena_, stream_, state);
    params_.initialize(stream_, 3);
    learning_rate_ = number("learning_rate", DType::fp32, 0.1f);
    loss_ = number("loss", DType::fp32, 1.0f);
    valid_tokens_ = number("valid_tokens", DType::int32, 0);
    step_ = number("step", DType::int32, 0);
    fill_integer(stream_, valid_tokens_, 1);
  }

  void step(std::int32_t number) {
    fill_integer(stream_, step_, number);
    for (const ParamShard& shard : params_.shards())
      random_normal(stream_, shard.grad, {.seed = static_cast<std::uint64_t>(number), .std = 1.0f});
    optimizer_.step(stream_, arena_, {learning_rate_, step_, loss_, valid_tokens_});
  }

  // Weights and optimizer state.
  std::vector<std::byte> state() {
    Arena host(kGpu, Arena::Memory::pinned_host, 40 * kElements);
    std::vector<std::byte> bytes;
    const auto add = [&](Tensor t) {
      const Tensor copy = host.allocate("copy", t.dtype, t.shape);
      stream_.copy(copy, t);
      stream_.synchronize();
      bytes.insert(bytes.end(), copy.data, copy.data + copy.bytes());
    };
    for (std::size_t s = 0; s < params_.shards().size(); ++s) {
      const AdamWState& state = optimizer_.state()[s];
      for (const Tensor& t : {params_.shards()[s].weight, state.master, state.m, state.v})
        add(t);
    }
    return bytes;
  }

 private:
  void declare(int unit, const char* name, const Shape& shape) {
    params_.declare(unit, {.name = name, .shape = shape, .init_std = 1.0f});
  }
  Tensor number(const char* name, DType dtype, float value) {
    const Tensor t = arena_.allocate(name, dtype, {1});
    fill(stream_, t, value);
    return t;
  }

  Stream stream_;
  Arena arena_, pinned_;
  Comms comms_;
  ParamStore params_;
  Optimizer optimizer_;
  Tensor learning_rate_, loss_, valid_tokens_, step_;
};

TEST(OptimizerRing, gives_the_same_bits_as_updates_in_place) {
  Model in_place(false), offloaded(true);
  for (int i = 1; i <= 2; ++i) {
    in_place.step(i);
    offloaded.step(i);
  }
  EXPECT_FALSE(in_place.state() == Model(true).state());
  EXPECT_TRUE(offloaded.state() == in_place.state());
}

}  // namespace lockstep::testing::optimizer_ring_test
