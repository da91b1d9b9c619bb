// ParamLayout lists the parameters and their places in the flat buffers of their FSDP units.
//
// A unit's buffer holds one tensor rank's part of the unit: first the parameters that are split
// over the tensor axis, then those that every tensor rank holds. Each parameter, or stacked group,
// starts at a multiple of kAlignedElements. Padding belongs to no parameter: the gaps between
// parameters, the rows that pad a vocabulary, and the end, up to a size that divides evenly. The
// buffer is split evenly over the shard axis, regardless of where parameters begin.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

enum class Init : std::uint8_t { zeros, ones, normal };
// Kind of parameter, which an optimizer may treat differently.
enum class Role : std::uint8_t { matrix, embedding, head, vector };

struct ParamSpec {
  std::string name;     // "model.layers.3.self_attn.q_proj.weight": key in checkpoints and for Init
  Shape shape;          // the whole parameter, unpadded
  int tensor_dim = -1;  // 0 or 1: split over the tensor axis, evenly as stored; -1: every tensor
                        // rank holds all of it, and its gradient is summed over them
  Role role = Role::matrix;
  Init init = Init::normal;
  float init_std = 0.0f;
  std::int64_t stored_rows = 0;  // rows on all tensor ranks, padding included; 0: the rows of shape
  bool quantized = false;        // whether its matmuls run in fp8, if the store's option says so
  bool grad_is_set = false;      // the first matmul sets the gradient, later ones add to it
};

struct ParamId {
  int unit = 0, index = 0;
  friend bool operator==(ParamId, ParamId) = default;
};

// A contiguous run of elements of one parameter inside a shard.
struct Segment {
  ParamId id;
  std::int64_t shard_begin = 0;    // in the shard
  std::int64_t logical_begin = 0;  // row-major, in this tensor rank's part of the parameter
  std::int64_t count = 0;
};

// Which units share memory for data that is whole only temporarily.
enum class Keep : std::uint8_t {
  own,     // no sharing: a unit that is used twice in a micro-batch, or a small one
  layers,  // two alternating buffers: units that are used one after the other
  ends,    // one buffer: units that are never used at the same time
};

class ParamLayout {
 public:
  static constexpr std::int64_t kAlignedElements = 128;  // 256 bytes of bf16

  // A rank's position on the axes that parameters are split over, and the size of each axis.
  struct Place {
    std::int64_t shard = 0, shards = 1, tensor = 0, tensors = 1;
    std::int64_t copies = 1;  // ranks of the replicate axis, which divide each shard's sums
  };
  explicit ParamLayout(const Place& place) : place_(place) {}

  // Declare all parameters, then call lay_out(); the functions after it are valid only then. A
  // stacked group (q, k, v; gate, up) lies back to back, so that it is one matrix. Its parts differ
  // in dimension 0 only. Throws ConfigError if the tensor axis does not divide a dimension that it
  // splits.
  int add_unit(std::string name, Keep keep);
  std::vector<ParamId> declare_stacked(int unit, std::vector<ParamSpec> specs);
  void lay_out();

  int units() const { return static_cast<int>(units_.size()); }
  const std::string& name(int unit) const { return at(unit).name; }
  Keep keep(int unit) const { return at(unit).keep; }
  const std::vector<ParamSpec>& specs(int unit) const { return at(unit).specs; }
  const ParamSpec& spec(ParamId id) const;
  bool starts_group(ParamId id) const { return part_of(id).group_parts > 0; }
  int group_parts(ParamId first) const { return part_of(first).group_parts; }
  bool is_in_group(ParamId id, ParamId first) const;

  std::int64_t elements(int unit) const { return at(unit).elements; }  // of the buffer
  std::int64_t shard_elements(int unit) const { return at(unit).elements / place_.shards; }
  // Number of elements at the front, of parameters that are split over the tensor ranks.
  std::int64_t split_elements(int unit) const { return at(unit).split; }
  // Offset in this rank's shard where the parameters begin that every tensor rank holds.
  std::int64_t replicated_from(int unit) const;
  std::vector<Segment> segments(int unit) const;  // of this rank's shard

  struct Range {
    std::int64_t begin = 0, count = 0;
  };
  // The parts of a unit's buffer that need zeros: padding, and parameters without grad_is_set.
  std::vector<Range> added_ranges(int unit) const;

  // A parameter, or the whole group that starts with `first`, in its unit's buffer, as stored.
  template <class View>
  View part(View flat, ParamId id) const {
    const Part& p = part_of(id);
    return flat.rows(p.begin, p.stored.elements()).view(p.stored);
  }
  template <class View>
  View group(View flat, ParamId first) const {
    const Shape whole = group_shape(first);
    return flat.rows(part_of(first).begin, whole.elements()).view(whole);
  }
  Shape group_shape(ParamId first) const;
  // The part of a group in this rank's shard, [n]: contiguous elements, or nothing.
  template <class View>
  View group_in_shard(View shard, ParamId first) const {
    const Range range = range_in_shard(first);
    return shard.rows(range.begin, range.count);
  }

  // Element j of this tensor rank's part of a parameter is element
  //   first + j / columns * stride + j % columns   of the whole, unpadded parameter.
  struct Indices {
    std::int64_t first, columns, stride;
  };
  Indices indices(ParamId id) const;

  // This tensor rank's part: dimension `dim` is cut into `parts`, and this rank has number `part`.
  struct TensorPart {
    int dim = -1;                                       // -1: the whole parameter
    std::int64_t parts = 1, part = 0, stored_size = 0;  // stored_size of a part along dim
  };
  TensorPart tensor_part(ParamId id) const;

 private:
  struct Part {  // one parameter in its unit
    std::int64_t begin = 0;
    Shape stored;               // on this tensor rank
    std::int64_t elements = 0;  // elements of `stored` without padding rows
    int group_parts = 0;  // in the first parameter of a stacked group: number of its parameters
  };
  struct Unit {
    std::string name;
    Keep keep = Keep::own;
    std::vector<ParamSpec> specs;
    std::vector<Part> parts;
    std::int64_t elements = 0, split = 0;
  };
  const Unit& at(int unit) const;
  const Part& part_of(ParamId id) const;
  Range range_in_shard(ParamId first) const;
  Part make_part(const ParamSpec& spec) const;

  Place place_;
  std::vector<Unit> units_;
  bool laid_out_ = false;
};

}  // namespace lockstep
