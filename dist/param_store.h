// ParamStore owns the memory of every parameter and its transfers between ranks (data parallel:
// FSDP, ZeRO stages 1 to 3). Parameters form FSDP units (embedding, each block, head). A unit is
// one flat buffer (param_layout.h), split evenly over the shard axis, so that one all-gather and
// one reduce-scatter serve all its parameters. With one rank along the axis, the shard is the whole
// unit, and nothing is gathered or reduced. Padding stays zero in weights, gradients and moments.
//
// Each of d ranks of the shard axis holds the optimizer state of n/d of the n elements of a unit.
// By Sharding it holds:
//              weights                gradients
//   optimizer  n                      n, summed over ranks once a step
//   gradients  n                      n/d; n of a micro-batch, while its backward runs
//   full       n/d; n while in use    n/d; n of a micro-batch, while its backward runs
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "dist/comms.h"
#include "dist/fp8_weights.h"
#include "dist/param_layout.h"
#include "dist/reduction.h"

namespace lockstep {

// This rank's shard of a unit and its states.
struct ParamShard {
  int unit = 0;
  Tensor weight;  // compute type [n]
  Tensor master;  // fp32 [n]; absent if the weight itself is trained, in fp32 or in bf16 by
                  // stochastic rounding
  Tensor grad;    // fp32 [n]: sum over all data ranks after finish_backward; only in training
  std::vector<Segment> segments;
};

class ParamStore {
 public:
  struct Options {
    Sharding sharding = Sharding::full;
    std::int64_t keep_gathered = 0;  // number of first Keep::layers units that stay whole in `full`
    DType compute_dtype = DType::fp32;  // fp32 or bf16
    bool stochastic_rounding = false;   // train bf16 weights without an fp32 master
    Fp8Matmuls fp8 = Fp8Matmuls::off;   // only with bf16
    DType fp8_gradients = DType::fp8_e5m2;
  };
  static constexpr std::int64_t kAlignedElements = ParamLayout::kAlignedElements;

  // `comms` must outlive the store.
  ParamStore(Comms& comms, const Options& options);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;
  ~ParamStore();

  // To build a store: declare all parameters (see ParamLayout), then allocate once.
  int add_unit(std::string name, Keep keep = Keep::own) {
    return layout_.add_unit(std::move(name), keep);
  }
  ParamId declare(int unit, ParamSpec spec) {
    return layout_.declare_stacked(unit, {std::move(spec)}).front();
  }
  std::vector<ParamId> declare_stacked(int unit, std::vector<ParamSpec> specs) {
    return layout_.declare_stacked(unit, std::move(specs));
  }
  const ParamLayout& layout() const { return layout_; }

  // allocate() allocates weights, master weights and gradients. allocate_weights() allocates
  // weights only; they cannot be trained and have no fp8 copies. All memory is zero afterwards,
  // padding included.
  //   masters: another arena, of pinned memory, for the master weights; see
  //   train/step/optimizer_ring.h
  void allocate(Arena& arena, Stream& stream, Arena* masters = nullptr);
  void allocate_weights(Arena& arena, Stream& stream);

  // Initializes every parameter by its spec, as a function of (seed, its name) only.
  void initialize(Stream& stream, std::uint64_t seed);
  // The same for the weights of the compute type only: master weights stay unchanged.
  void draw_weights(Stream& stream, std::uint64_t seed);
  // Sets weight = round(master) wherever there is a master weight. Call it after writing the master
  // weights, or the weights where no master weights exist.
  void refresh_weights(Stream& stream);
  // Call this after writing the shards' weights and, for fp8 with one scale per tensor, the values
  // of weight_absmax(). It finds the largest magnitudes over all ranks, makes the fp8 copies, and
  // marks gathered weights as stale.
  void weights_changed(Stream& stream);
  // Before weights_changed(): the weights of the first `units` units are written. Their all-gathers
  // may begin while the others are written.
  void first_weights_changed(Stream& stream, int units);
  // Largest magnitudes of the weights that have fp8 copies with one scale per tensor: [G] fp32, one
  // per stacked group. The code that writes weights sets them to the values of its shard.
  // weight_absmax(id) is [1], the value of the parameter's group. Both are absent otherwise.
  Tensor weight_absmax() const { return fp8_.absmax(); }
  Tensor weight_absmax(ParamId id) const { return fp8_.absmax(id); }

  void begin_step(Stream& compute);
  // Call it before each micro-batch. Gradients of the first one of a step begin at zero. Call it
  // outside CUDA graphs: they do not repeat it.
  void begin_micro_batch(bool is_first);
  // Prefetch early, use late, drop soon.
  void prefetch(int unit);
  class Use {  // whole weights of a unit, valid during its lifetime
   public:
    Use(Use&& other) noexcept;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();
    ConstTensor operator[](ParamId id) const;  // as stored, padding rows included
    ConstTensor stacked(ParamId first) const;  // the whole group that starts with `first`
    struct Quantized {                         // the same in fp8, as [O, I] and as [I, O]
      ConstFp8Matrix weight, transposed;
    };
    Quantized quantized(ParamId first) const;  // absent without fp8

   private:
    friend class ParamStore;
    Use(ParamStore* store, int unit, Stream* compute);
    ParamStore* store_;
    int unit_;
    Stream* compute_;
    std::unique_ptr<Timeline::Span> span_;  // if the compute stream has a timeline
  };
  [[nodiscard]] Use use(int unit, Stream& compute);

  // Between begin_gradients() and reduce(), a micro-batch adds its gradients of a unit, in fp32 as
  // stored.
  void begin_gradients(int unit, Stream& compute);
  Tensor grad(ParamId id);
  Tensor stacked_grad(ParamId first);
  // For the gradients of matmul weights (ParamSpec::grad_is_set): the first matmul of a sum sets
  // it, later ones add to it. So it needs no zeros.
  struct WeightGrad {
    Tensor sum;
    bool add;
  };
  WeightGrad weight_grad(ParamId first);
  // The unit's gradients are complete. last: this is the last micro-batch of the step.
  void reduce(int unit, Stream& compute, bool last);
  // All gradients of the step are complete: afterwards shards have their sums over all ranks.
  void finish_backward(Stream& compute);

  // Returns the stream of all calls of the tensor group, after the work of compute so far: on a GPU
  // a stream beside compute, on a CPU compute itself.
  Stream& tensor_stream(Stream& compute);

  void set_timeline(Timeline* timeline);  // of the store's own streams

  Comms& comms() { return comms_; }

  // How units share memory for whole weights: Keep::own for all units that are gathered once a
  // step.
  std::vector<Keep> weight_keeps() const;

  int units() const { return layout_.units(); }
  const ParamSpec& spec(ParamId id) const { return layout_.spec(id); }
  std::span<ParamShard> shards() { return shards_; }
  DType compute_dtype() const { return options_.compute_dtype; }
  Fp8Matmuls fp8() const { return options_.fp8; }
  DType fp8_gradients() const { return options_.fp8_gradients; }

 private:
  // Memory for a whole unit; several may share it.
  struct Buffer {
    Tensor memory;
    int unit = -1;             // unit whose values it holds; -1: none
    std::int64_t version = 0;  // version of those weights
    int users = 0;
    Event done;  // end of what last read or emptied the buffer
  };
  struct Unit {
    std::size_t weights = 0, grads = 0;  // indices of its buffers
    Event gathered;
    bool is_reduced = false;                  // whether the step's last micro-batch is reduced
    bool is_new = true;                       // its whole gradients have no summand yet
    std::vector<bool> is_set{};               // of each parameter: see weight_grad()
    std::vector<ParamLayout::Range> added{};  // ParamLayout::added_ranges
  };

  const ParamShard& shard_of(int unit) const;  // only after allocate
  Unit& unit_of(int unit);
  Buffer& weights_of(int unit) { return weight_buffers_[unit_of(unit).weights]; }
  Buffer& grads_of(int unit) { return grad_buffers_[unit_of(unit).grads]; }
  Tensor my_part(Tensor whole) const;
  // Whether gradients are whole only during a micro-batch.
  bool reduces_each_micro_batch() const {
    return shard_ranks_ > 1 && lockstep::reduces_each_micro_batch(options_.sharding);
  }

  void make_streams(const Stream& compute);
  void allocate_grads(Arena& arena, Stream& stream);
  std::vector<Keep> keeps(bool shared) const;
  void add_buffers(std::vector<Buffer>& buffers, std::size_t Unit::*of, Arena& arena,
                   Stream& stream, const char* what, DType dtype, const std::vector<Keep>& keeps);
  // Enqueues the reduction that waits, if any.
  void enqueue_reduction();
  // Adds a unit to the bucket of units whose gradients are summed over replicas together.
  void add_to_bucket(int unit);
  void sum_bucket();
  ReduceRing::Streams reduction_streams() { return {*scatters_, across_ ? *across_ : *scatters_}; }
  void allocate_fp8(Arena& arena);
  void find_absmax(Stream& stream);
  void draw(Stream& stream, std::uint64_t seed, const ParamShard& shard, Tensor flat) const;
  void release(int unit, Stream& compute);

  Options options_;
  Comms& comms_;
  ParamLayout layout_;
  Fp8Weights fp8_;  // outlives the stream that writes it
  int shard_ranks_;
  int exceptions_;  // exceptions in flight when the store was made
  // Beside the compute stream; outlive their events. across_: transfers of reductions across
  // domains; absent unless a reduction has both levels. tensor_: see tensor_stream().
  std::optional<Stream> gathers_, scatters_, across_, tensor_;
  std::vector<Unit> units_;
  std::vector<ParamShard> shards_;
  std::vector<Buffer> weight_buffers_, grad_buffers_;
  ReduceRing ring_;
  // NCCL begins collectives in the order of the program, over all streams. The tensor collectives
  // of a block would thus wait until the reduction of the block before has begun its last call.
  // That reduction is therefore enqueued after the block, and waits here until then.
  struct Reduction {
    int unit;
    bool last;
    Event complete;  // the gradients
  };
  std::optional<Reduction> reduction_;
  Tensor bucket_;        // gradients of neighboring units, or absent
  int bucket_unit_ = 0;  // the first of them
  // Recorded after the last change of the shards' weights, and of those of the first units.
  Event changed_, first_changed_;
  int first_units_ = 0;            // number of units of first_changed_
  int first_units_of_change_ = 0;  // the same for the change in progress
  std::int64_t version_ = 0;
  bool saw_last_ = false;  // whether the step's last micro-batch was reduced
};

}  // namespace lockstep
