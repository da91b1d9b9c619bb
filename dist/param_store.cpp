#include "dist/param_store.h"

#include <utility>

#include "core/integer.h"
#include "core/philox.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace lockstep {
ParamStore::ParamStore(const Mesh& mesh, Comms& comms, const Options& options)
    : options_(options), comms_(comms) {
  if (mesh.world() != 1)
    throw ConfigError(str("the mesh has ", mesh.world(), " ranks; this version trains on one"));
  LOCKSTEP_CHECK(options.compute_dtype == DType::fp32 || options.compute_dtype == DType::bf16,
                 "weights of type ", lockstep::name(options.compute_dtype),
                 ", expected fp32 or bf16");
  LOCKSTEP_CHECK(options.fp8 == Fp8Products::off || options.compute_dtype == DType::bf16,
                 "fp8 products of ", lockstep::name(options.compute_dtype), ", expected bf16");
}

const ParamStore::Unit& ParamStore::unit_of(int unit) const {
  LOCKSTEP_CHECK(0 <= unit && unit < units(), "unit ", unit, " of ", units());
  return units_[static_cast<std::size_t>(unit)];
}

const ParamShard& ParamStore::shard_of(int unit) const {
  LOCKSTEP_CHECK(!shards_.empty(), "unit ", unit_of(unit).name, " is used before allocate");
  unit_of(unit);
  return shards_[static_cast<std::size_t>(unit)];
}

const ParamStore::Place& ParamStore::place_of(ParamId id) const {
  const auto& places = unit_of(id.unit).places;
  LOCKSTEP_CHECK(0 <= id.index && id.index < static_cast<int>(places.size()), "parameter ",
                 id.index, " of ", places.size(), " in unit ", unit_of(id.unit).name);
  return places[static_cast<std::size_t>(id.index)];
}

const ParamSpec& ParamStore::spec(ParamId id) const {
  place_of(id);
  return unit_of(id.unit).specs[static_cast<std::size_t>(id.index)];
}

int ParamStore::add_unit(std::string name) {
  LOCKSTEP_CHECK(shards_.empty(), "unit ", name, " is added after allocate");
  units_.push_back({std::move(name), {}, {}, 0, {}});
  return units() - 1;
}

// Directly behind what the unit holds so far.
ParamId ParamStore::append(int unit, ParamSpec spec) {
  LOCKSTEP_CHECK(shards_.empty(), spec.name, " is declared after allocate");
  unit_of(unit);
  auto& u = units_[static_cast<std::size_t>(unit)];
  Place place{u.elements, spec.shape, 0};
  if (spec.stored_rows != 0) {
    LOCKSTEP_CHECK(spec.stored_rows >= spec.shape[0], spec.name, " has ", spec.shape[0],
                   " rows, stored as ", spec.stored_rows);
    place.stored.size[0] = spec.stored_rows;
  }
  u.elements += place.stored.elements();
  u.places.push_back(place);
  u.specs.push_back(std::move(spec));
  return {unit, static_cast<int>(u.places.size()) - 1};
}

ParamId ParamStore::declare(int unit, ParamSpec spec) {
  return declare_stacked(unit, {std::move(spec)}).front();
}

std::vector<ParamId> ParamStore::declare_stacked(int unit, std::vector<ParamSpec> specs) {
  LOCKSTEP_CHECK(!specs.empty(), "an empty stacked group");
  std::vector<ParamId> ids;
  const auto first = specs.front().shape;
  for (auto& spec : specs) {
    auto as_first = spec.shape;
    as_first.size[0] = first[0];
    LOCKSTEP_CHECK(as_first == first, spec.name, " is ", spec.shape, ", stacked on ", first,
                   "; parts of a group may differ in dimension 0 only");
    LOCKSTEP_CHECK(specs.size() == 1 || spec.stored_rows == 0, spec.name,
                   " is stacked and has padding rows");
    ids.push_back(append(unit, std::move(spec)));
  }
  auto& u = units_[static_cast<std::size_t>(unit)];
  u.places[static_cast<std::size_t>(ids.front().index)].group_parts = static_cast<int>(ids.size());
  u.elements = round_up(u.elements, kAlignedElements);
  return ids;
}

void ParamStore::allocate(Arena& arena, Stream& stream, Arena* masters) {
  LOCKSTEP_CHECK(shards_.empty(), "parameters are allocated twice");
  const bool has_master = options_.compute_dtype == DType::bf16 && !options_.stochastic_rounding;
  for (int unit = 0; unit < units(); ++unit) {
    ParamShard& shard = add_shard(arena, stream, unit);
    if (has_master)
      shard.master =
          zeros(masters != nullptr ? *masters : arena, stream, unit, "master weights", DType::fp32);
    shard.grad = zeros(arena, stream, unit, "gradients", DType::fp32);
    if (options_.fp8 != Fp8Products::off) allocate_quantized(arena, unit);
  }
  if (options_.fp8 == Fp8Products::tensor) allocate_absmax(arena);
}

void ParamStore::allocate_weights(Arena& arena, Stream& stream) {
  LOCKSTEP_CHECK(shards_.empty(), "parameters are allocated twice");
  for (int unit = 0; unit < units(); ++unit)
    add_shard(arena, stream, unit);
}

// With its weights.
ParamShard& ParamStore::add_shard(Arena& arena, Stream& stream, int unit) {
  const auto& u = unit_of(unit);
  ParamShard& shard = shards_.emplace_back();
  shard.unit = unit;
  shard.weight = zeros(arena, stream, unit, "weights", options_.compute_dtype);
  for (std::size_t i = 0; i < u.specs.size(); ++i)
    shard.segments.push_back({.id = {unit, static_cast<int>(i)},
                              .shard_begin = u.places[i].begin,
                              .logical_begin = 0,
                              .count = u.specs[i].shape.elements()});
  return shard;
}

// As many as the unit has elements.
Tensor ParamStore::zeros(Arena& arena, Stream& stream, int unit, const char* what,
                         DType dtype) const {
  const auto& u = unit_of(unit);
  const auto t = arena.allocate(str(u.name, " ", what), dtype, {u.elements});
  fill(stream, t, 0.0f);
  return t;
}

void ParamStore::allocate_quantized(Arena& arena, int unit) {
  auto& u = units_[static_cast<std::size_t>(unit)];
  const auto scaling = weight_scaling(options_.fp8);
  const auto multiple = size_multiple(scaling);
  for (int i = 0; i < static_cast<int>(u.specs.size()); ++i) {
    const ParamId first{unit, i};
    if (!spec(first).quantized || place_of(first).group_parts == 0) continue;
    const Shape shape = group(shards_.back().weight, first).shape;
    LOCKSTEP_CHECK(shape[0] % multiple == 0 && shape[1] % multiple == 0, spec(first).name,
                   " with what is stacked on it is ", shape, ", expected multiples of ", multiple,
                   " for fp8");
    const auto matrix = [&](const char* what, const Shape& s) {
      return Fp8Matrix{
          arena.allocate(str(u.name, " ", what), DType::fp8_e4m3, s),
          arena.allocate(str(u.name, " fp8 scales"), DType::fp32, scales_shape(scaling, s)),
          scaling};
    };
    QuantizedGroup g{.first = first, .absmax = {}, .weight = {}, .transposed = {}};
    g.weight = matrix("fp8 weights", shape);
    g.transposed = matrix("fp8 weights, transposed", {shape[1], shape[0]});
    u.quantized.push_back(g);
  }
}

// Side by side, so that one launch clears them.
void ParamStore::allocate_absmax(Arena& arena) {
  std::size_t groups = 0, g = 0;
  for (const auto& u : units_)
    groups += u.quantized.size();
  absmax_ = arena.allocate("fp8 weights absmax", DType::fp32, {static_cast<std::int64_t>(groups)});
  for (auto& u : units_)
    for (auto& quantized : u.quantized)
      quantized.absmax = absmax_.rows(static_cast<std::int64_t>(g++), 1);
}

void ParamStore::initialize(Stream& stream, std::uint64_t seed) {
  for (const auto& shard : shards_)
    draw(stream, seed, shard, shard.master ? shard.master : shard.weight);
  refresh_weights(stream);
}

void ParamStore::draw_weights(Stream& stream, std::uint64_t seed) {
  for (const auto& shard : shards_)
    draw(stream, seed, shard, shard.weight);
  find_absmax(stream);
  quantize_weights(stream);
}

void ParamStore::draw(Stream& stream, std::uint64_t seed, const ParamShard& shard,
                      Tensor flat) const {
  for (const Segment& segment : shard.segments) {
    const auto values = flat.rows(segment.shard_begin, segment.count);
    const auto& s = spec(segment.id);
    if (s.init == Init::normal) {
      random_normal(stream, values,
                    {.seed = seed,
                     .purpose = purpose_of(s.name),
                     .first_index = segment.logical_begin,
                     .std = s.init_std});
    } else {
      fill(stream, values, s.init == Init::ones ? 1.0f : 0.0f);
    }
  }
}

void ParamStore::refresh_weights(Stream& stream) {
  for (const auto& shard : shards_)
    if (shard.master) convert(stream, shard.weight, shard.master);
  find_absmax(stream);
  quantize_weights(stream);
}

void ParamStore::quantize_weights(Stream& stream) {
  for (const auto& u : units_)
    for (const auto& g : u.quantized) {
      const auto weight = group(shard_of(g.first.unit).weight, g.first);
      quantize(stream, g.weight, g.transposed, weight, g.absmax);
    }
}

void ParamStore::find_absmax(Stream& stream) {
  for (const auto& u : units_)
    for (const auto& g : u.quantized)
      if (g.absmax) absmax(stream, g.absmax, group(shard_of(g.first.unit).weight, g.first));
}

Tensor ParamStore::weight_absmax(ParamId id) const {
  for (const auto& g : unit_of(id.unit).quantized)
    if (g.first.index <= id.index && id.index < g.first.index + place_of(g.first).group_parts)
      return g.absmax;
  return {};
}

void ParamStore::begin_step(Stream& stream) {
  for (const auto& shard : shards_) {
    LOCKSTEP_CHECK(bool(shard.grad), "a store of weights alone cannot be trained");
    fill(stream, shard.grad, 0.0f);
  }
}

void ParamStore::prefetch(int unit) {
  unit_of(unit);  // the shard is the whole unit: there is nothing to gather
}

ParamStore::Use ParamStore::use(int unit, Stream&) {
  shard_of(unit);
  return {this, unit};
}

ConstTensor ParamStore::Use::operator[](ParamId id) const {
  LOCKSTEP_CHECK(id.unit == unit_, "a parameter of unit ", id.unit, " in the use of unit ", unit_);
  return store_->part(store_->shard_of(unit_).weight, id);
}

ConstTensor ParamStore::Use::stacked(ParamId first) const {
  LOCKSTEP_CHECK(first.unit == unit_, "a group of unit ", first.unit, " in the use of unit ",
                 unit_);
  return store_->group(store_->shard_of(unit_).weight, first);
}

ParamStore::Use::Quantized ParamStore::Use::quantized(ParamId first) const {
  for (const auto& g : store_->unit_of(first.unit).quantized)
    if (g.first == first) return {g.weight, g.transposed};
  return {};
}

Tensor ParamStore::grad(ParamId id) {
  return part(shard_of(id.unit).grad, id);
}

Tensor ParamStore::stacked_grad(ParamId first) {
  return group(shard_of(first.unit).grad, first);
}

Tensor ParamStore::part(Tensor flat, ParamId id) const {
  const auto& place = place_of(id);
  return flat.rows(place.begin, place.stored.elements()).view(place.stored);
}

Tensor ParamStore::group(Tensor flat, ParamId first) const {
  const auto& place = place_of(first);
  LOCKSTEP_CHECK(place.group_parts > 0, spec(first).name, " does not start a stacked group");
  Shape whole = place.stored;
  for (int i = 1; i < place.group_parts; ++i)
    whole.size[0] += place_of({first.unit, first.index + i}).stored[0];
  return flat.rows(place.begin, whole.elements()).view(whole);
}

void ParamStore::reduce(int unit, Stream&) {
  unit_of(unit);  // gradients are accumulated where the shard holds them
}

void ParamStore::finish_backward(Stream& compute) {
  for (const auto& shard : shards_)
    comms_[Axis::replicate].all_reduce(shard.grad, ReduceOp::sum, compute);
}

}  // namespace lockstep
