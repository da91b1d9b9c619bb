#include "core/op_log.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace lockstep {
namespace {

Component within(const Stream& stream) {
  return stream.trace() == nullptr ? Component::other : stream.trace()->within();
}

}  // namespace

std::int64_t bytes_of(std::initializer_list<ConstTensor> tensors) {
  std::int64_t bytes = 0;
  for (const ConstTensor& t : tensors)
    if (t) bytes += t.bytes();
  return bytes;
}

Op memory_op(const char* name, DType dtype, std::initializer_list<ConstTensor> tensors) {
  Op op;
  op.name = name;
  op.dtype = dtype;
  op.bytes = bytes_of(tensors);
  return op;
}

Op product_op(const char* name, DType dtype, std::int64_t M, std::int64_t N, std::int64_t K,
              std::initializer_list<ConstTensor> tensors) {
  Op op = memory_op(name, dtype, tensors);
  op.kind = Op::Kind::product;
  op.flops = 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  op.sizes = {M, N, K, 0};
  return op;
}

Op transfer_op(ConstTensor moved) {
  Op op = memory_op("transfer", moved.dtype, {moved});
  op.kind = Op::Kind::transfer;
  return op;
}

Component component_of(Group group) {
  switch (group) {
    case Group::all:
    case Group::other: return Component::communication_ranks;
    case Group::tensor: return Component::communication_tensor;
    case Group::gathers:
    case Group::shard:
    case Group::shard_inside:
    case Group::shard_across: return Component::communication_shard;
    case Group::replicate:
    case Group::replicate_inside:
    case Group::replicate_across: return Component::communication_replicate;
  }
  LOCKSTEP_FAIL("group ", static_cast<int>(group));
}

Component component_of(const Op& op, Component within) {
  switch (op.kind) {
    case Op::Kind::product: return Component::products;
    case Op::Kind::attention: return Component::attention;
    case Op::Kind::transfer: return Component::communication_host;
    case Op::Kind::collective: return component_of(op.group);
    case Op::Kind::memory: break;
  }
  return within == Component::optimizer ? within : Component::memory_bound;
}

OpLog::Call::Call(Stream& stream, const Op& op)
    : stream_(stream), is_part_(stream.set_in_call(true)) {
  if (is_part_) return;
  log_ = stream.op_log();
  if (log_ != nullptr) {
    entry_ = log_->entries_.size();
    log_->add(stream, What::op, op, 0);
  }
  if (stream.trace() != nullptr) span_.emplace(stream, component_of(op, within(stream)));
  if (log_ == nullptr || stream.is_measuring()) return;
  if (stream.is_cuda()) begin_event_ = stream.record_timed();
  begin_ = std::chrono::steady_clock::now();
}

OpLog::Call::~Call() {
  if (is_part_) return;
  stream_.set_in_call(false);
  if (log_ == nullptr || stream_.is_measuring()) return;
  if (stream_.is_cuda()) {
    if (std::uncaught_exceptions() == 0)  // after a fault every call fails
      log_->timed_.push_back({entry_, std::move(begin_event_), stream_.record_timed()});
    return;
  }
  log_->entries_[entry_].seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void OpLog::settle() {
  for (const Timed& timed : timed_)
    entries_[timed.entry].seconds = timed.end.seconds_since(timed.begin);
  timed_.clear();
}

void OpLog::clear() {
  entries_.clear();
  timed_.clear();
}

std::int64_t OpLog::record(const Stream& stream) {
  add(stream, What::record, {}, events_);
  return events_++;
}

void OpLog::wait(const Stream& stream, std::int64_t event) {
  add(stream, What::wait, {}, event);
}

std::uint8_t OpLog::number_of(const Stream& stream) {
  const auto found = std::find(streams_.begin(), streams_.end(), &stream);
  if (found != streams_.end()) return static_cast<std::uint8_t>(found - streams_.begin());
  LOCKSTEP_CHECK(streams_.size() < 255, "an operator log has at most 255 streams");
  streams_.push_back(&stream);
  names_.emplace_back(stream.name());
  return static_cast<std::uint8_t>(streams_.size() - 1);
}

void OpLog::add(const Stream& stream, What what, const Op& op, std::int64_t event) {
  entries_.push_back({.what = what,
                      .stream = number_of(stream),
                      .within = within(stream),
                      .op = op,
                      .event = event,
                      .seconds = 0});
}

}  // namespace lockstep
