#include "dist/param_store.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/philox.h"
#include "dist/collective_ring.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

ParamLayout::Place place_in(const Comms& comms) {
  return {.shard = comms.gathers->rank(),
          .shards = comms.gathers->size(),
          .tensor = comms.tensor->rank(),
          .tensors = comms.tensor->size(),
          .copies = comms.replicate.size()};
}

Tensor zeros(Arena& arena, Stream& stream, const std::string& name, DType dtype,
             std::int64_t elements, Purpose purpose) {
  const Arena::For use(arena, purpose);
  const auto t = arena.allocate(name, dtype, {elements});
  fill(stream, t, 0.0f);
  return t;
}

}  // namespace

ParamStore::ParamStore(Comms& comms, const Options& options)
    : options_(options),
      comms_(comms),
      layout_(place_in(comms)),
      fp8_(layout_, options.fp8),
      shard_ranks_(comms.gathers->size()),
      exceptions_(std::uncaught_exceptions()) {
  LOCKSTEP_CHECK(options.compute_dtype == DType::fp32 || options.compute_dtype == DType::bf16,
                 "weights of type ", lockstep::name(options.compute_dtype),
                 ", expected fp32 or bf16");
  LOCKSTEP_CHECK(options.fp8 == Fp8Matmuls::off || options.compute_dtype == DType::bf16,
                 "fp8 matmuls of ", lockstep::name(options.compute_dtype), ", expected bf16");
}

ParamStore::~ParamStore() {
  if (auto* ring = comms_.world->ring()) ring->forget_events();
  // If an error ends this rank, the work that its streams wait for will not arrive.
  const auto waits = [](std::optional<Stream>& stream) {
    return stream && stream->is_queued() && !stream->record().is_done();
  };
  if (std::uncaught_exceptions() > exceptions_ && (waits(gathers_) || waits(scatters_)))
    comms_.world->abort("it ended with an error", 1);
}

ParamStore::Unit& ParamStore::unit_of(int unit) {
  shard_of(unit);
  return units_[static_cast<std::size_t>(unit)];
}

const ParamShard& ParamStore::shard_of(int unit) const {
  LOCKSTEP_CHECK(!shards_.empty(), "unit ", layout_.name(unit), " is used before allocate");
  layout_.name(unit);
  return shards_[static_cast<std::size_t>(unit)];
}

Tensor ParamStore::my_part(Tensor whole) const {
  const auto n = whole.elements() / shard_ranks_;
  return whole.rows(comms_.gathers->rank() * n, n);
}

void ParamStore::allocate(Arena& arena, Stream& stream, Arena* masters) {
  allocate_weights(arena, stream);
  const bool has_master = options_.compute_dtype == DType::bf16 && !options_.stochastic_rounding;
  for (auto& shard : shards_)
    if (has_master)
      shard.master = zeros(masters != nullptr ? *masters : arena, stream,
                           layout_.name(shard.unit) + " master weights", DType::fp32,
                           layout_.shard_elements(shard.unit), Purpose::master_weights);
  allocate_grads(arena, stream);
  allocate_fp8(arena);
}

void ParamStore::allocate_weights(Arena& arena, Stream& stream) {
  layout_.lay_out();
  units_.resize(static_cast<std::size_t>(units()));
  make_streams(stream);
  const auto dtype = options_.compute_dtype;
  const auto keeps = weight_keeps();
  add_buffers(weight_buffers_, &Unit::weights, arena, stream, " weights", dtype, keeps);
  for (int unit = 0; unit < units(); ++unit) {
    const bool shared = keeps[static_cast<std::size_t>(unit)] != Keep::own;
    const auto& buffer = weight_buffers_[units_[static_cast<std::size_t>(unit)].weights];
    shards_.push_back({.unit = unit,
                       .weight = shared
                                     ? zeros(arena, stream, layout_.name(unit) + " weights", dtype,
                                             layout_.shard_elements(unit), Purpose::weights)
                                     : my_part(buffer.memory),
                       .master = {},
                       .grad = {},
                       .segments = layout_.segments(unit)});
  }
}

void ParamStore::allocate_grads(Arena& arena, Stream& stream) {
  const bool each = reduces_each_micro_batch();
  add_buffers(grad_buffers_, &Unit::grads, arena, stream, " gradients", DType::fp32, keeps(each));
  std::int64_t most = 0;
  for (auto& shard : shards_) {
    unit_of(shard.unit).is_set.resize(layout_.specs(shard.unit).size());
    unit_of(shard.unit).added = layout_.added_ranges(shard.unit);
    const auto n = layout_.shard_elements(shard.unit);
    shard.grad = each ? zeros(arena, stream, layout_.name(shard.unit) + " gradients", DType::fp32,
                              n, Purpose::gradients)
                      : my_part(grads_of(shard.unit).memory);
    most = std::max(most, n);
  }
  const Arena::For use(arena, Purpose::gradients);
  ring_ = ReduceRing(arena, comms_.reduce, options_.compute_dtype,
                     {&comms_.shard, &comms_.replicate}, most);
}

// Returns how units share temporary whole buffers; without `shared` each unit has its own.
std::vector<Keep> ParamStore::keeps(bool shared) const {
  std::vector<Keep> keeps;
  for (int unit = 0; unit < units(); ++unit)
    keeps.push_back(shared ? layout_.keep(unit) : Keep::own);
  return keeps;
}

std::vector<Keep> ParamStore::weight_keeps() const {
  auto weights = keeps(shard_ranks_ > 1 && divides_weights(options_.sharding));
  auto kept = options_.keep_gathered;
  for (Keep& keep : weights)
    if (keep == Keep::layers && kept-- > 0) keep = Keep::own;
  return weights;
}

// Adds one buffer for each unit with its own, and the shared buffers, each sized for the largest
// unit that shares them.
void ParamStore::add_buffers(std::vector<Buffer>& buffers, std::size_t Unit::*of, Arena& arena,
                             Stream& stream, const char* what, DType dtype,
                             const std::vector<Keep>& keeps) {
  const bool are_weights = of == &Unit::weights;
  const auto add = [&](const std::string& name, std::int64_t elements, bool shared) {
    const auto purpose = !are_weights ? Purpose::gradients
                         : shared     ? Purpose::gathered_weights
                                      : Purpose::weights;
    buffers.push_back(
        {.memory = zeros(arena, stream, name + what, dtype, elements, purpose), .done = {}});
    return buffers.size() - 1;
  };
  const auto add_for = [&](Keep keep, std::size_t count, const char* name) {
    std::vector<std::size_t> sharers;
    std::int64_t most = 0;
    for (int unit = 0; unit < units(); ++unit) {
      const auto u = static_cast<std::size_t>(unit);
      if (keeps[u] != keep) continue;
      sharers.push_back(u);
      most = std::max(most, layout_.elements(unit));
    }
    const auto first = buffers.size();
    for (std::size_t i = 0; i < std::min(count, sharers.size()); ++i)
      add(name, most, true);
    for (std::size_t i = 0; i < sharers.size(); ++i)
      units_[sharers[i]].*of = first + i % count;
  };
  for (int unit = 0; unit < units(); ++unit) {
    const auto u = static_cast<std::size_t>(unit);
    if (keeps[u] == Keep::own)
      units_[u].*of = add(layout_.name(unit), layout_.elements(unit), false);
  }
  add_for(Keep::layers, 2, "a whole layer's");
  add_for(Keep::ends, 1, "a whole end's");
}

void ParamStore::make_streams(const Stream& compute) {
  const auto has_both = [](const Levels& l) {
    return l.inside->size() > 1 && l.across->size() > 1;
  };
  const auto make = [&](std::optional<Stream>& stream, const char* name) {
    const auto mode = compute.is_measuring() ? Stream::Mode::measuring
                      : compute.is_cuda()    ? Stream::Mode::immediate
                                             : Stream::Mode::queued;
    stream.emplace(compute.device(), name, mode, 1, Stream::Priority::urgent);
    stream->set_op_log(compute.op_log());
  };
  if (comms_.tensor->size() > 1 && runs_beside(Group::tensor, compute.device()))
    make(tensor_, "tensor");
  if (comms_.gathers->size() * comms_.replicate.size() == 1) return;
  make(gathers_, "gathers");
  make(scatters_, "scatters");
  if (has_both(comms_.shard) || has_both(comms_.replicate)) make(across_, "across");
}

Stream& ParamStore::tensor_stream(Stream& compute) {
  if (!tensor_) return compute;
  tensor_->set_op_log(compute.op_log());  // preflight has a log for each step
  tensor_->wait(compute.record());
  return *tensor_;
}

void ParamStore::allocate_fp8(Arena& arena) {
  const Arena::For use(arena, Purpose::weights);
  std::vector<std::size_t> buffers;
  for (const Unit& unit : units_)
    buffers.push_back(unit.weights);
  fp8_.allocate(arena, buffers);
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
  weights_changed(stream);
}

void ParamStore::draw(Stream& stream, std::uint64_t seed, const ParamShard& shard,
                      Tensor flat) const {
  for (const Segment& segment : shard.segments) {
    const auto& s = spec(segment.id);
    if (s.init != Init::normal) {
      fill(stream, flat.rows(segment.shard_begin, segment.count),
           s.init == Init::ones ? 1.0f : 0.0f);
      continue;
    }
    // Segments split into runs that are contiguous in the whole parameter too.
    const auto at = layout_.indices(segment.id);
    const auto end = segment.logical_begin + segment.count;
    for (auto j = segment.logical_begin; j < end;) {
      const auto n = std::min(end, (j / at.columns + 1) * at.columns) - j;
      random_normal(stream, flat.rows(segment.shard_begin + j - segment.logical_begin, n),
                    {.seed = seed,
                     .purpose = purpose_of(s.name),
                     .first_index = at.first + j / at.columns * at.stride + j % at.columns,
                     .std = s.init_std});
      j += n;
    }
  }
}

void ParamStore::refresh_weights(Stream& stream) {
  for (const auto& shard : shards_)
    if (shard.master) convert(stream, shard.weight, shard.master);
  find_absmax(stream);
  weights_changed(stream);
}

// One scale per tensor covers the parts of all ranks: every layout gives the fp8 values that one
// rank would give.
void ParamStore::weights_changed(Stream& stream) {
  if (weight_absmax()) comms_.all->all_reduce(weight_absmax(), ReduceOp::max, stream);
  ++version_;
  changed_ = stream.record();
  // The fp8 copies of all units need the largest magnitudes, which have just been found.
  first_units_ = weight_absmax() ? 0 : std::exchange(first_units_of_change_, 0);
  if (shard_ranks_ > 1) return;  // with several ranks, fp8 copies are made after each all-gather
  for (const auto& shard : shards_)
    fp8_.quantize(stream, shard.unit, shard.weight);
}

void ParamStore::first_weights_changed(Stream& stream, int units) {
  first_changed_ = stream.record();
  first_units_of_change_ = units;
}

void ParamStore::find_absmax(Stream& stream) {
  for (const auto& shard : shards_)
    fp8_.find_absmax(stream, shard.unit, shard.weight);
}

void ParamStore::begin_step(Stream& compute) {
  saw_last_ = false;
  reduction_.reset();  // of a step that was not finished
  bucket_ = {};
  for (int unit = 0; unit < units(); ++unit) {
    LOCKSTEP_CHECK(bool(shard_of(unit).grad), "a store of weights alone cannot be trained");
    unit_of(unit).is_reduced = false;
  }
  begin_micro_batch(/*is_first=*/true);
  if (scatters_) compute.wait(scatters_->record());  // an aborted step may have left work
  if (!reduces_each_micro_batch()) return;
  for (const auto& shard : shards_)
    fill(compute, shard.grad, 0.0f);
}

void ParamStore::begin_micro_batch(bool is_first) {
  const bool is_new = is_first || reduces_each_micro_batch();
  for (Unit& unit : units_) {
    unit.is_new = is_new;
    std::fill(unit.is_set.begin(), unit.is_set.end(), !is_new);
  }
}

void ParamStore::prefetch(int unit) {
  if (shard_ranks_ == 1) return;
  Buffer& buffer = weights_of(unit);
  if (buffer.unit == unit && buffer.version == version_) return;
  LOCKSTEP_CHECK(buffer.users == 0, "unit ", layout_.name(unit), " is gathered while unit ",
                 layout_.name(buffer.unit), " is in use");
  gathers_->wait(unit < first_units_ ? first_changed_ : changed_);
  gathers_->wait(buffer.done);
  const CollectiveRing::Aside aside(comms_.world->ring(), layout_.name(unit));
  const Timeline::Span span(*gathers_, layout_.name(unit), "unit");
  comms_.gathers->all_gather(buffer.memory.rows(0, layout_.elements(unit)), shard_of(unit).weight,
                             *gathers_);
  if (options_.fp8 != Fp8Matmuls::off)
    gathers_->enqueue([this, unit, whole = ConstTensor(buffer.memory)](Stream& stream) {
      fp8_.quantize(stream, unit, whole);
    });
  buffer.unit = unit;
  buffer.version = version_;
  unit_of(unit).gathered = gathers_->record();
}

ParamStore::Use ParamStore::use(int unit, Stream& compute) {
  Buffer& buffer = weights_of(unit);
  if (auto* ring = comms_.world->ring()) ring->about(layout_.name(unit));
  prefetch(unit);
  if (shard_ranks_ > 1) {
    const Trace::Span span(compute, Component::communication_shard);
    compute.wait(unit_of(unit).gathered);
  }
  ++buffer.users;
  return {this, unit, &compute};
}

void ParamStore::release(int unit, Stream& compute) {
  Buffer& buffer = weights_of(unit);
  if (--buffer.users == 0 && gathers_) buffer.done = compute.record();
}

void ParamStore::set_timeline(Timeline* timeline) {
  for (auto* stream : {&gathers_, &scatters_, &across_, &tensor_})
    if (*stream) (*stream)->set_timeline(timeline);
}

ParamStore::Use::Use(ParamStore* store, int unit, Stream* compute)
    : store_(store), unit_(unit), compute_(compute) {
  if (compute->timeline() != nullptr)
    span_ = std::make_unique<Timeline::Span>(*compute, store->layout_.name(unit), "unit");
}

ParamStore::Use::Use(Use&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      unit_(other.unit_),
      compute_(other.compute_),
      span_(std::move(other.span_)) {}

// NOLINTNEXTLINE(bugprone-exception-escape): a device that cannot record an event ends the rank
ParamStore::Use::~Use() {
  if (store_ != nullptr) store_->release(unit_, *compute_);
}

ConstTensor ParamStore::Use::operator[](ParamId id) const {
  LOCKSTEP_CHECK(id.unit == unit_, "a parameter of unit ", id.unit, " in the use of unit ", unit_);
  return store_->layout_.part(ConstTensor(store_->weights_of(unit_).memory), id);
}

ConstTensor ParamStore::Use::stacked(ParamId first) const {
  LOCKSTEP_CHECK(first.unit == unit_, "a group of unit ", first.unit, " in the use of unit ",
                 unit_);
  return store_->layout_.group(ConstTensor(store_->weights_of(unit_).memory), first);
}

ParamStore::Use::Quantized ParamStore::Use::quantized(ParamId first) const {
  const auto* group = store_->fp8_.find(first);
  return group == nullptr ? Quantized{} : Quantized{group->weight, group->transposed};
}

void ParamStore::begin_gradients(int unit, Stream& compute) {
  Buffer& buffer = grads_of(unit);
  LOCKSTEP_CHECK(buffer.unit < 0 || buffer.unit == unit, "gradients of unit ", layout_.name(unit),
                 " before those of ", layout_.name(buffer.unit), " are complete");
  buffer.unit = unit;
  Unit& u = unit_of(unit);
  if (!std::exchange(u.is_new, false)) return;
  if (reduces_each_micro_batch()) {
    const Trace::Span span(compute, Component::communication_shard);
    compute.wait(buffer.done);  // until it is reduced
  }
  for (const auto& [begin, count] : u.added)
    fill(compute, buffer.memory.rows(begin, count), 0.0f);
}

Tensor ParamStore::grad(ParamId id) {
  return layout_.part(grads_of(id.unit).memory, id);
}

ParamStore::WeightGrad ParamStore::weight_grad(ParamId first) {
  std::vector<bool>::reference is_set =
      unit_of(first.unit).is_set.at(static_cast<std::size_t>(first.index));
  const bool add = is_set || !spec(first).grad_is_set;
  is_set = true;
  return {stacked_grad(first), add};
}

Tensor ParamStore::stacked_grad(ParamId first) {
  return layout_.group(grads_of(first.unit).memory, first);
}

// During the reductions the compute stream continues with the next unit.
void ParamStore::reduce(int unit, Stream& compute, bool last) {
  Unit& u = unit_of(unit);
  LOCKSTEP_CHECK(!u.is_reduced || !scatters_, "a micro-batch after the last one of its step");
  u.is_reduced = last;
  Buffer& buffer = grads_of(unit);
  buffer.unit = -1;
  saw_last_ = saw_last_ || last;
  const bool each = reduces_each_micro_batch();
  if (!scatters_ || (!last && !each)) return;
  enqueue_reduction();
  reduction_.emplace(Reduction{unit, last, compute.record()});
  if (comms_.tensor->size() == 1 || layout_.keep(unit) != Keep::layers) enqueue_reduction();
}

void ParamStore::enqueue_reduction() {
  if (!reduction_) return;
  const auto [unit, last, complete] = *std::exchange(reduction_, std::nullopt);
  const bool each = reduces_each_micro_batch();
  Buffer& buffer = grads_of(unit);
  const auto whole = buffer.memory.rows(0, layout_.elements(unit));
  const auto& shard = shard_of(unit);
  const CollectiveRing::Aside aside(comms_.world->ring(), layout_.name(unit));
  scatters_->wait(complete);
  const Timeline::Span span(*scatters_, layout_.name(unit), "unit");
  if (shard_ranks_ > 1)
    ring_.reduce_scatter(reduction_streams(), comms_.shard, shard.grad, whole, each);
  if (each) buffer.done = scatters_->record();
  if (last && comms_.replicate.size() > 1) add_to_bucket(unit);
}

// Backward completes units in reverse order. Gradients of neighbors lie side by side, except if
// ranks keep whole gradients and own a part of each.
void ParamStore::add_to_bucket(int unit) {
  const Tensor grad = shard_of(unit).grad;
  const bool extends =
      bucket_ && unit + 1 == bucket_unit_ && grad.data + grad.bytes() == bucket_.data;
  if (bucket_ && !extends) sum_bucket();
  const auto elements = grad.elements() + (extends ? bucket_.elements() : 0);
  bucket_ = {grad.data, {elements}, grad.dtype, grad.device};
  bucket_unit_ = unit;
  if (elements >= ReduceRing::bucket_elements(comms_.replicate.size())) sum_bucket();
}

void ParamStore::sum_bucket() {
  const CollectiveRing::Aside aside(comms_.world->ring(), layout_.name(bucket_unit_));
  ring_.all_reduce(reduction_streams(), comms_.replicate, std::exchange(bucket_, {}));
}

void ParamStore::finish_backward(Stream& compute) {
  LOCKSTEP_CHECK(saw_last_ || !scatters_, "the step has no last micro-batch");
  enqueue_reduction();
  if (bucket_) sum_bucket();
  if (scatters_) {
    const Trace::Span span(compute, comms_.replicate.size() > 1 ? Component::communication_replicate
                                                                : Component::communication_shard);
    compute.wait(scatters_->record());
    compute.wait(gathers_->record());  // after this the weights may change
  }
  if (auto* ring = comms_.world->ring()) ring->about("");
  if (comms_.tensor->size() == 1) return;
  Stream& stream = tensor_stream(compute);
  comms_.tensor->together([&] {
    for (const auto& shard : shards_) {
      const auto from = layout_.replicated_from(shard.unit);
      const auto n = shard.grad.elements() - from;
      if (n > 0) comms_.tensor->all_reduce(shard.grad.rows(from, n), ReduceOp::sum, stream);
    }
  });
  const Trace::Span span(compute, Component::communication_tensor);
  compute.wait(stream.record());
}

}  // namespace lockstep
