#include "dist/communicator.h"

#include <utility>

namespace lockstep {

const char* name(Collective kind) {
  switch (kind) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::all_gather: return "all_gather";
    case Collective::all_to_all: return "all_to_all";
    case Collective::broadcast: return "broadcast";
    case Collective::send_receive: return "send_receive";
    case Collective::barrier: return "barrier";
  }
  return "?";
}

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size) {
  LOCKSTEP_CHECK(0 <= rank && rank < size, "rank ", rank, " of ", size, " in ", name_);
}

bool Communicator::counts(Collective kind, std::int64_t bytes, const Stream& stream) {
  if (size_ == 1) return false;
  auto& traffic = traffic_[static_cast<std::size_t>(kind)];
  ++traffic.calls;
  traffic.bytes += bytes;
  return !stream.is_measuring();
}

void Communicator::check_rank(const char* what, int rank) const {
  LOCKSTEP_CHECK(0 <= rank && rank < size_, what, " rank ", rank, " of a group of ", size_);
}

void Communicator::all_reduce(Tensor inout, ReduceOp op, Stream& stream) {
  LOCKSTEP_CHECK(
      inout.dtype == DType::fp32 || inout.dtype == DType::bf16 || inout.dtype == DType::int32,
      "all_reduce of ", lockstep::name(inout.dtype), ", expected fp32, bf16 or int32");
  if (counts(Collective::all_reduce, 2 * (size_ - 1) * inout.bytes() / size_, stream))
    do_all_reduce(inout, op, stream);
}

void Communicator::all_gather(Tensor out, ConstTensor in, Stream& stream) {
  LOCKSTEP_CHECK(out.dtype == in.dtype && out.elements() == size_ * in.elements(), "all_gather of ",
                 lockstep::name(in.dtype), " ", in.shape, " of ", size_, " ranks to ",
                 lockstep::name(out.dtype), " ", out.shape);
  if (counts(Collective::all_gather, (size_ - 1) * in.bytes(), stream))
    return do_all_gather(out, in, stream);
  if (size_ == 1 && out.data != in.data) stream.copy(out, in);
}

void Communicator::all_to_all(Tensor out, ConstTensor in, Stream& stream) {
  LOCKSTEP_CHECK(
      out.dtype == in.dtype && out.elements() == in.elements() && in.elements() % size_ == 0,
      "all_to_all of ", lockstep::name(in.dtype), " ", in.shape, " of ", size_, " ranks to ",
      lockstep::name(out.dtype), " ", out.shape);
  LOCKSTEP_CHECK(out.data != in.data || in.bytes() == 0, "all_to_all in place");
  if (counts(Collective::all_to_all, (size_ - 1) * in.bytes() / size_, stream))
    return do_all_to_all(out, in, stream);
  if (size_ == 1) stream.copy(out, in);
}

void Communicator::broadcast(Tensor inout, int root, Stream& stream) {
  check_rank("broadcast from", root);
  if (counts(Collective::broadcast, rank_ == root ? 0 : inout.bytes(), stream))
    do_broadcast(inout, root, stream);
}

void Communicator::send_receive(Tensor received, int from, ConstTensor sent, int to,
                                Stream& stream) {
  check_rank("a message from", from);
  check_rank("a message to", to);
  LOCKSTEP_CHECK(received.dtype == sent.dtype && received.elements() == sent.elements(),
                 "send_receive of ", lockstep::name(sent.dtype), " ", sent.shape, " to ",
                 lockstep::name(received.dtype), " ", received.shape);
  if (counts(Collective::send_receive, from == rank_ ? 0 : received.bytes(), stream))
    return do_send_receive(received, from, sent, to, stream);
  if (size_ == 1) stream.copy(received, sent);
}

void Communicator::barrier(Stream& stream) {
  if (counts(Collective::barrier, 0, stream)) do_barrier(stream);
}

void LoneCommunicator::fail() const {
  LOCKSTEP_FAIL("the other ", size() - 1, " ranks of ", name(), " are not there");
}

}  // namespace lockstep
