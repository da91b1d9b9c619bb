#include "dist/communicator.h"

#include <utility>

#include "dist/collective_ring.h"

namespace lockstep {

const char* name(Collective kind) {
  switch (kind) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::all_gather: return "all_gather";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_to_all: return "all_to_all";
    case Collective::broadcast: return "broadcast";
    case Collective::send: return "send";
    case Collective::receive: return "receive";
    case Collective::barrier: return "barrier";
  }
  return "?";
}

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size) {
  LOCKSTEP_CHECK(0 <= rank && rank < size, "rank ", rank, " of ", size, " in ", name_);
}

bool Communicator::make(Collective kind, std::int64_t bytes, Stream& stream,
                        FunctionRef<void()> call) {
  if (size_ == 1) return false;
  auto& traffic = traffic_[static_cast<std::size_t>(kind)];
  ++traffic.calls;
  traffic.bytes += bytes;
  Op op;
  op.name = lockstep::name(kind);
  op.kind = Op::Kind::collective;
  op.bytes = bytes;
  op.group = group_;
  op.ranks = size_;
  if (stream.is_measuring()) {
    const OpLog::Call made(stream, op);
    return true;
  }
  if (ring_ != nullptr && begun_in_ != nullptr)
    ring_->add_bytes(number_, bytes);
  else if (ring_ != nullptr)
    number_ = ring_->begin(lockstep::name(kind), name_, bytes, stream.record());
  begun_in_ = ring_ == nullptr ? nullptr : &stream;
  if (!span_) {
    if (stream.trace() != nullptr) traced_.emplace(stream, component_of(group_));
    span_.emplace(stream, lockstep::name(kind), name_);
  }
  if (grouped_) {
    call();
    return true;
  }
  {
    std::optional<OpLog::Call> made;  // measures seconds for the stream's op log
    if (stream.op_log() != nullptr) made.emplace(stream, op);
    call();
  }
  end_entry();
  return true;
}

// Calls that are transferred together are one entry, even if there are no calls: ranks that have
// nothing to send to their peers count the same as those that have.
void Communicator::end_entry() {
  span_.reset();
  traced_.reset();
  if (ring_ == nullptr || size_ == 1) return;
  if (begun_in_ == nullptr) number_ = ring_->begin("nothing", name_, 0, {});
  ring_->end(number_, begun_in_ == nullptr ? Event() : begun_in_->record());
  begun_in_ = nullptr;
}

void Communicator::check_rank(const char* what, int rank) const {
  LOCKSTEP_CHECK(0 <= rank && rank < size_, what, " rank ", rank, " of a group of ", size_);
}

void Communicator::check_other(const char* what, int rank) const {
  check_rank(what, rank);
  LOCKSTEP_CHECK(rank != rank_, what, " rank ", rank, " itself");
}

void Communicator::all_reduce(Tensor inout, ReduceOp op, Stream& stream) {
  LOCKSTEP_CHECK(
      inout.dtype == DType::fp32 || inout.dtype == DType::bf16 || inout.dtype == DType::int32,
      "all_reduce of ", lockstep::name(inout.dtype), ", expected fp32, bf16 or int32");
  make(Collective::all_reduce, 2 * (size_ - 1) * inout.bytes() / size_, stream,
       [&] { do_all_reduce(inout, op, stream); });
}

void Communicator::all_gather(Tensor out, ConstTensor in, Stream& stream) {
  LOCKSTEP_CHECK(out.dtype == in.dtype && out.elements() == size_ * in.elements(), "all_gather of ",
                 lockstep::name(in.dtype), " ", in.shape, " of ", size_, " ranks to ",
                 lockstep::name(out.dtype), " ", out.shape);
  const bool made = make(Collective::all_gather, (size_ - 1) * in.bytes(), stream,
                         [&] { do_all_gather(out, in, stream); });
  if (!made && out.data != in.data) stream.copy(out, in);
}

void Communicator::reduce_scatter(Tensor out, ConstTensor in, Stream& stream) {
  LOCKSTEP_CHECK(out.dtype == DType::fp32 || out.dtype == DType::bf16, "reduce_scatter of ",
                 lockstep::name(out.dtype), ", expected fp32 or bf16");
  LOCKSTEP_CHECK(out.dtype == in.dtype && in.elements() == size_ * out.elements(),
                 "reduce_scatter of ", lockstep::name(in.dtype), " ", in.shape, " of ", size_,
                 " ranks to ", lockstep::name(out.dtype), " ", out.shape);
  const bool made = make(Collective::reduce_scatter, (size_ - 1) * out.bytes(), stream,
                         [&] { do_reduce_scatter(out, in, stream); });
  if (!made) stream.copy(out, in);
}

void Communicator::all_to_all(Tensor out, ConstTensor in, Stream& stream) {
  LOCKSTEP_CHECK(
      out.dtype == in.dtype && out.elements() == in.elements() && in.elements() % size_ == 0,
      "all_to_all of ", lockstep::name(in.dtype), " ", in.shape, " of ", size_, " ranks to ",
      lockstep::name(out.dtype), " ", out.shape);
  LOCKSTEP_CHECK(out.data != in.data || in.bytes() == 0, "all_to_all in place");
  const bool made = make(Collective::all_to_all, (size_ - 1) * in.bytes() / size_, stream,
                         [&] { do_all_to_all(out, in, stream); });
  if (!made) stream.copy(out, in);
}

void Communicator::broadcast(Tensor inout, int root, Stream& stream) {
  check_rank("broadcast from", root);
  make(Collective::broadcast, rank_ == root ? 0 : inout.bytes(), stream,
       [&] { do_broadcast(inout, root, stream); });
}

void Communicator::send(ConstTensor sent, int to, Stream& stream) {
  check_other("a message to", to);
  make(Collective::send, 0, stream, [&] { do_send(sent, to, stream); });
}

void Communicator::receive(Tensor received, int from, Stream& stream) {
  check_other("a message from", from);
  make(Collective::receive, received.bytes(), stream, [&] { do_receive(received, from, stream); });
}

void Communicator::barrier(Stream& stream) {
  make(Collective::barrier, 0, stream, [&] { do_barrier(stream); });
}

void LoneCommunicator::fail() const {
  LOCKSTEP_FAIL("the other ", size() - 1, " ranks of ", name(), " are not there");
}

}  // namespace lockstep
