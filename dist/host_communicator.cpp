#include "dist/host_communicator.h"

#include <algorithm>
#include <utility>

#include "dist/host_reduce.h"

namespace lockstep {

HostCommunicator::HostCommunicator(const std::string& name, int rank, int size,
                                   std::int64_t sum_bytes)
    : Communicator(name, rank, size), sum_bytes_(sum_bytes) {}

// Both ends omit an empty part.
void HostCommunicator::send_part(const std::byte* data, std::int64_t bytes, int to) {
  if (bytes > 0) start_send(Lane::parts, data, bytes, to);
}
void HostCommunicator::receive_part(std::byte* data, std::int64_t bytes, int from) {
  if (bytes > 0) start_receive(Lane::parts, data, bytes, from);
}

// The other ranks, beginning with the next one, so that not all ranks send to the same one first.
std::vector<int> HostCommunicator::others_in_turn() const {
  std::vector<int> others;
  for (int i = 1; i < size(); ++i)
    others.push_back((rank() + i) % size());
  return others;
}

void HostCommunicator::do_send(ConstTensor sent, int to, Stream& stream) {
  stream.enqueue(
      [this, sent, to](Stream&) { start_send(Lane::messages, sent.data, sent.bytes(), to); });
  wait_behind(stream);
}

void HostCommunicator::do_receive(Tensor received, int from, Stream& stream) {
  stream.enqueue([this, received, from](Stream&) {
    start_receive(Lane::messages, received.data, received.bytes(), from);
  });
  wait_behind(stream);
}

// Messages of a group are waited for at the group's end.
void HostCommunicator::end_group() {
  in_group_ = false;
  if (auto* stream = std::exchange(messages_on_, nullptr))
    stream->enqueue([this](Stream&) { finish(Lane::messages); });
}

void HostCommunicator::wait_behind(Stream& stream) {
  messages_on_ = &stream;
  if (!in_group_) end_group();
}

void HostCommunicator::do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) {
  constexpr std::int64_t kSmallBytes = 16 << 10;
  stream.enqueue([this, inout, op](Stream&) {
    if (inout.bytes() <= kSmallBytes)
      reduce_small(inout, op);
    else
      reduce_large(inout, op);
  });
}

void HostCommunicator::do_all_gather(Tensor out, ConstTensor in, Stream& stream) {
  stream.enqueue([this, out, in](Stream&) {
    const auto bytes = in.bytes();
    for (int i = 1; i < size(); ++i) {
      const int from = (rank() + size() - i) % size(), to = (rank() + i) % size();
      receive_part(out.data + from * bytes, bytes, from);
      send_part(in.data, bytes, to);
    }
    auto* mine = out.data + rank() * bytes;
    if (in.data != mine) std::copy_n(in.data, bytes, mine);
    finish(Lane::parts);
  });
}

void HostCommunicator::do_all_to_all(Tensor out, ConstTensor in, Stream& stream) {
  stream.enqueue([this, out, in](Stream&) {
    const auto piece = in.bytes() / size();
    for (int i = 1; i < size(); ++i) {
      const int from = (rank() + size() - i) % size(), to = (rank() + i) % size();
      receive_part(out.data + from * piece, piece, from);
      send_part(in.data + to * piece, piece, to);
    }
    std::copy_n(in.data + rank() * piece, piece, out.data + rank() * piece);
    finish(Lane::parts);
  });
}

void HostCommunicator::do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) {
  stream.enqueue([this, out, in](Stream&) { reduce_scatter_pieces(out, in); });
}

void HostCommunicator::reduce_scatter_pieces(Tensor out, ConstTensor in) {
  const auto n = out.elements(), element = bytes_per_element(out.dtype);
  const auto step = std::min(n, sum_bytes_ / element);
  received_.resize(static_cast<std::size_t>(size() * step * element));
  const auto buffer = [&](int r) { return received_.data() + r * step * element; };
  const auto each_step = [&](auto&& act) {
    for (std::int64_t first = 0; first < n; first += step)
      act(first, std::min(step, n - first));
  };
  const auto others = others_in_turn();
  each_step([&](std::int64_t first, std::int64_t count) {
    for (const int r : others)
      send_part(in.data + (r * n + first) * element, count * element, r);
  });
  each_step([&](std::int64_t first, std::int64_t count) {
    for (const int r : others)
      receive_part(buffer(r), count * element, r);
    finish_receives(Lane::parts);
    std::vector<const std::byte*> pieces;
    for (int r = 0; r < size(); ++r)
      pieces.push_back(r == rank() ? in.data + (r * n + first) * element : buffer(r));
    ring_sum(out.view({n}).rows(first, count), pieces, rank());
  });
  finish(Lane::parts);
}

// Every rank adds up everything.
void HostCommunicator::reduce_small(Tensor inout, ReduceOp op) {
  const auto bytes = inout.bytes();
  received_.resize(static_cast<std::size_t>(size() * bytes));
  std::vector<const std::byte*> all;
  for (int r = 0; r < size(); ++r) {
    auto* theirs = received_.data() + r * bytes;
    all.push_back(r == rank() ? inout.data : theirs);
    if (r == rank()) continue;
    receive_part(theirs, bytes, r);
    send_part(inout.data, bytes, r);
  }
  finish(Lane::parts);
  reduce_range(inout, op, all, 0, inout.elements());
}

// Each rank adds up one part, in steps, and sends the sums of each step to the others. A rank sends
// the sums of a step only after it has received the summands, so these may be overwritten then.
void HostCommunicator::reduce_large(Tensor inout, ReduceOp op) {
  const auto n = inout.elements(), element = bytes_per_element(inout.dtype);
  const auto part = (n + size() - 1) / size();  // the last parts may be shorter, or empty
  const auto step = std::min(part, sum_bytes_ / element);
  received_.resize(static_cast<std::size_t>(size() * step * element));
  const auto buffer = [&](int r) { return received_.data() + r * step * element; };
  struct Range {
    std::int64_t begin, end;
  };
  // The elements of rank r's part that are summed in the step from `first` on.
  const auto range = [&](int r, std::int64_t first) {
    return Range{std::min(n, r * part + first),
                 std::min(n, r * part + std::min(part, first + step))};
  };
  const auto at = [&](Range x) { return inout.data + x.begin * element; };
  const auto bytes = [&](Range x) { return (x.end - x.begin) * element; };
  const auto others = others_in_turn();
  for (std::int64_t first = 0; first < part; first += step)
    for (const int r : others)
      send_part(at(range(r, first)), bytes(range(r, first)), r);
  for (std::int64_t first = 0; first < part; first += step) {
    const auto mine = range(rank(), first);
    for (const int r : others)
      receive_part(buffer(r), bytes(mine), r);
    finish_receives(Lane::parts);
    std::vector<const std::byte*> all;  // pointers as if each held the whole tensor
    for (int r = 0; r < size(); ++r)
      all.push_back(r == rank() ? inout.data : buffer(r) - mine.begin * element);
    reduce_range(inout, op, all, mine.begin, mine.end);
    for (const int r : others)
      send_part(at(mine), bytes(mine), r);
  }
  for (std::int64_t first = 0; first < part; first += step)
    for (const int r : others)
      receive_part(at(range(r, first)), bytes(range(r, first)), r);
  finish(Lane::parts);
}

}  // namespace lockstep
