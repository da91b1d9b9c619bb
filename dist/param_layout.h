// ParamLayout: which parameters there are, and where each lies in the flat buffer of its unit.
//
// A unit's buffer holds one tensor rank's part of it: first the parameters that are split over the
// tensor axis, then those that every tensor rank holds. Each parameter, or stacked group, starts at
// a multiple of kAlignedElements; what is between them, rows that pad a vocabulary, and the end, up
// to a size that divides, are padding, which belongs to no parameter. The buffer is split evenly
// over the shard axis, wherever that cuts.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

enum class Init : std::uint8_t { zeros, ones, normal };
// What an optimizer may treat differently.
enum class Role : std::uint8_t { matrix, embedding, head, vector };

struct ParamSpec {
  std::string name;     // "model.layers.3.self_attn.q_proj.weight": key of checkpoint and of Init
  Shape shape;          // the whole parameter, unpadded
  int tensor_dim = -1;  // 0 or 1: split over the tensor axis, evenly as stored; -1: every tensor
                        // rank holds all of it, and its gradient is summed over them
  Role role = Role::matrix;
  Init init = Init::normal;
  float init_std = 0.0f;
  std::int64_t stored_rows = 0;  // rows on all tensor ranks, padding included; 0: those of shape
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

// Which units share memory for what is whole for a while only.
enum class Keep : std::uint8_t {
  own,     // none: a unit that is used twice in a micro-batch, or a small one
  layers,  // two buffers by turns: units that are used one after the other
  ends,    // one buffer: units that are never used at the same time
};

class ParamLayout {
 public:
  static constexpr std::int64_t kAlignedElements = 128;  // 256 bytes of bf16

  // A rank's places on the axes that parameters are split over, and of how many.
  struct Place {
    std::int64_t shard = 0, shards = 1, tensor = 0, tensors = 1;
    std::int64_t copies = 1;  // ranks of the replicate axis, which divide each shard's sums
  };
  explicit ParamLayout(const Place& place) : place_(place) {}

  // Declare all, then lay_out(); what follows is for afterwards. A stacked group (q, k, v; gate,
  // up) lies back to back, so that it is one matrix; its parts differ in dimension 0 only. Throws
  // ConfigError where the tensor axis does not divide a dimension it splits.
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
  // Those in front, of parameters that the tensor ranks divide.
  std::int64_t split_elements(int unit) const { return at(unit).split; }
  // Of this rank's shard: where the elements begin whose parameters every tensor rank holds.
  std::int64_t replicated_from(int unit) const;
  std::vector<Segment> segments(int unit) const;  // of this rank's shard

  // A parameter, or the whole group that starts with `first`, in its unit's buffer: as stored.
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
  // What this rank's shard has of a group [n]: neighbours, or nothing.
  template <class View>
  View group_in_shard(View shard, ParamId first) const {
    const Range range = range_in_shard(first);
    return shard.rows(range.begin, range.count);
  }

  // Element j of this tensor rank's part of a parameter is element
  //   first + j / columns * stride + j % columns   of the whole, unpadded one.
  struct Indices {
    std::int64_t first, columns, stride;
  };
  Indices indices(ParamId id) const;

  // This tensor rank's part: dimension dim, cut into `parts` of which it has number `part`.
  struct TensorPart {
    int dim = -1;                                       // -1: all of it
    std::int64_t parts = 1, part = 0, stored_size = 0;  // stored_size of a part along dim
  };
  TensorPart tensor_part(ParamId id) const;

 private:
  struct Part {  // of one parameter in its unit
    std::int64_t begin = 0;
    Shape stored;               // on this tensor rank
    std::int64_t elements = 0;  // of those, without rows of padding
    int group_parts = 0;        // in the first parameter of a stacked group: how many it has
  };
  struct Unit {
    std::string name;
    Keep keep = Keep::own;
    std::vector<ParamSpec> specs;
    std::vector<Part> parts;
    std::int64_t elements = 0, split = 0;
  };
  struct Range {
    std::int64_t begin = 0, count = 0;
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
