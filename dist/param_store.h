// ParamStore: where every parameter lives. Parameters form units (embedding, each block, head); a
// unit is one flat buffer, so that one gather and one reduce will serve all its parameters. On one
// rank a unit's shard is the whole unit, and gathering and reducing have nothing to do.
//
// In a unit each parameter, or stacked group, starts at a multiple of kAlignedElements; what is
// between them, and rows that pad a vocabulary, are padding: they belong to no parameter and stay
// zero in weights, gradients and moments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "dist/communicator.h"
#include "kernels/quantize.h"

namespace lockstep {

enum class Init : std::uint8_t { zeros, ones, normal };
// What an optimizer may treat differently.
enum class Role : std::uint8_t { matrix, embedding, head, vector };

// Whether the products of the layers' matrices are of fp8, and with which scales.
enum class Fp8Products : std::uint8_t {
  off,
  tensor,  // one scale a tensor
  block,   // one for 128 x 128 of weights, for 1 x 128 of all else
};

// Of the weights.
constexpr Scaling weight_scaling(Fp8Products fp8) {
  return fp8 == Fp8Products::tensor ? Scaling::tensor : Scaling::blocks;
}

struct ParamSpec {
  std::string name;     // "model.layers.3.self_attn.q_proj.weight": key of checkpoint and of Init
  Shape shape;          // the whole parameter, unpadded
  int tensor_dim = -1;  // dim split over the tensor axis; -1: every tensor rank holds all of it
  Role role = Role::matrix;
  Init init = Init::normal;
  float init_std = 0.0f;
  std::int64_t stored_rows = 0;  // rows in the buffer, padding included; 0: those of shape
  bool quantized = false;        // its products are of fp8, where the store's option says so
};

struct ParamId {
  int unit = 0, index = 0;
  friend bool operator==(ParamId, ParamId) = default;
};

// A run of elements of one parameter inside a shard.
struct Segment {
  ParamId id;
  std::int64_t shard_begin = 0;    // in the shard
  std::int64_t logical_begin = 0;  // row-major, in this tensor rank's part of the parameter
  std::int64_t count = 0;
};

// This rank's piece of a unit and its states.
struct ParamShard {
  int unit = 0;
  Tensor weight;  // compute type [n]
  Tensor master;  // fp32 [n]; absent when the weight itself is trained: in fp32, or in bf16 by
                  // stochastic rounding
  Tensor grad;    // fp32 [n], summed over all data ranks after finish_backward; absent without
                  // training
  std::vector<Segment> segments;
};

enum class Sharding : std::uint8_t { none, optimizer, gradients, full };  // ZeRO 0 to 3

class ParamStore {
 public:
  struct Options {
    Sharding sharding = Sharding::none;  // one rank: all the same
    DType compute_dtype = DType::fp32;   // fp32 or bf16
    bool stochastic_rounding = false;    // train bf16 weights without an fp32 master
    Fp8Products fp8 = Fp8Products::off;  // with bf16 alone
    DType fp8_gradients = DType::fp8_e5m2;
  };
  static constexpr std::int64_t kAlignedElements = 128;  // 256 bytes of bf16

  // Throws ConfigError for a mesh of more than one rank. `comms` must outlive the store.
  ParamStore(const Mesh& mesh, Comms& comms, const Options& options);

  // Build: declare all, then allocate once. A stacked group (q, k, v; gate, up) lies back to back,
  // so that Use::stacked is one matrix; its parts differ in dimension 0 only.
  int add_unit(std::string name);
  ParamId declare(int unit, ParamSpec spec);
  std::vector<ParamId> declare_stacked(int unit, std::vector<ParamSpec> specs);

  // Weights, master weights and gradients; or the weights alone, which cannot be trained and have
  // no fp8 copies. All are zero afterwards, padding included.
  //   masters: another arena for the masters, of pinned memory; see train/optimizer_ring.h
  void allocate(Arena& arena, Stream& stream, Arena* masters = nullptr);
  void allocate_weights(Arena& arena, Stream& stream);

  // Every parameter by its spec, a function of (seed, its name) only.
  void initialize(Stream& stream, std::uint64_t seed);
  // The same for the weights alone, of the compute type: masters stay as they are.
  void draw_weights(Stream& stream, std::uint64_t seed);
  // weight = round(master), where there is a master, and their fp8 copies: after something wrote
  // the masters.
  void refresh_weights(Stream& stream);
  // The fp8 copies alone: after something wrote the weights and, with one scale a tensor, what
  // weight_absmax() is of.
  void quantize_weights(Stream& stream);
  // Largest magnitudes of the weights that have fp8 copies with one scale a tensor: [G] fp32, one a
  // stacked group. Of a parameter: [1], its group's. Else absent.
  Tensor weight_absmax() const { return absmax_; }
  Tensor weight_absmax(ParamId id) const;

  // Step: gradients start at zero; prefetch early, use late, drop soon.
  void begin_step(Stream& stream);
  void prefetch(int unit);
  class Use {  // full weights of a unit, valid while it lives
   public:
    Use(Use&& other) noexcept = default;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() = default;
    ConstTensor operator[](ParamId id) const;  // as stored, padding rows included
    ConstTensor stacked(ParamId first) const;  // the whole group that starts with `first`
    struct Quantized {                         // the same in fp8, as [O, I] and as [I, O]
      ConstFp8Matrix weight, transposed;
    };
    Quantized quantized(ParamId first) const;  // absent without fp8

   private:
    friend class ParamStore;
    Use(const ParamStore* store, int unit) : store_(store), unit_(unit) {}
    const ParamStore* store_;
    int unit_;
  };
  [[nodiscard]] Use use(int unit, Stream& compute);

  Tensor grad(ParamId id);  // fp32, as stored: add this unit's gradient of one micro-batch to it
  Tensor stacked_grad(ParamId first);
  void reduce(int unit, Stream& compute);  // the unit's gradients of a micro-batch are complete
  void finish_backward(Stream& compute);   // those of the step are: sums over the replicate axis

  int units() const { return static_cast<int>(units_.size()); }
  std::span<const ParamSpec> specs(int unit) const { return unit_of(unit).specs; }
  const ParamSpec& spec(ParamId id) const;
  std::span<ParamShard> shards() { return shards_; }
  DType compute_dtype() const { return options_.compute_dtype; }
  Fp8Products fp8() const { return options_.fp8; }
  DType fp8_gradients() const { return options_.fp8_gradients; }

 private:
  struct Place {  // of one parameter in its unit
    std::int64_t begin = 0;
    Shape stored;
    int group_parts = 0;  // in the first parameter of a stacked group: how many it has
  };
  struct QuantizedGroup {
    ParamId first;
    Tensor absmax;  // [1] of absmax_, for one scale a tensor
    Fp8Matrix weight, transposed;
  };
  struct Unit {
    std::string name;
    std::vector<ParamSpec> specs;
    std::vector<Place> places;
    std::int64_t elements = 0;
    std::vector<QuantizedGroup> quantized;
  };

  const Unit& unit_of(int unit) const;
  const ParamShard& shard_of(int unit) const;  // after allocate
  const Place& place_of(ParamId id) const;
  ParamId append(int unit, ParamSpec spec);
  Tensor part(Tensor flat, ParamId id) const;
  Tensor group(Tensor flat, ParamId first) const;
  ParamShard& add_shard(Arena& arena, Stream& stream, int unit);
  Tensor zeros(Arena& arena, Stream& stream, int unit, const char* what, DType dtype) const;
  void allocate_quantized(Arena& arena, int unit);
  void allocate_absmax(Arena& arena);
  void find_absmax(Stream& stream);
  void draw(Stream& stream, std::uint64_t seed, const ParamShard& shard, Tensor flat) const;

  Options options_;
  Comms& comms_;
  std::vector<Unit> units_;
  std::vector<ParamShard> shards_;
  Tensor absmax_;
};

}  // namespace lockstep
