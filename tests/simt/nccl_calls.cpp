#include "tests/simt/nccl_calls.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include <nccl.h>

#include "core/tensor.h"
#include "dist/host_reduce.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

std::size_t bytes_of(int type) {
  return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

// Pinned memory for data in transit.
class Staged {
 public:
  explicit Staged(std::size_t bytes)
      : memory_(simt::allocate_pinned(std::max<std::size_t>(bytes, 1))) {}
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged() { simt::release(memory_); }
  std::byte* data() const { return memory_; }

 private:
  std::byte* memory_;
};

// Work of a stream: copies between the memory of its rank and staged memory.
class Work {
 public:
  explicit Work(const void* stream) { simt::order().begin(stream); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() { simt::order().end(); }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) simt::copy(to, from, bytes);
  }
};

void meet(const std::vector<const void*>& streams) {
  simt::Clock all;
  for (const auto* stream : streams)
    simt::merge(all, simt::order().of(stream));
  for (const auto* stream : streams)
    simt::order().wait(stream, all);
}

// One collective of all ranks.
void collect(const std::vector<const Call*>& calls) {
  const Call& first = *calls.front();
  const auto piece = first.count * bytes_of(first.type);
  const bool has_pieces = first.kind == Kind::all_to_all || first.kind == Kind::reduce_scatter;
  const auto bytes = has_pieces ? calls.size() * piece : piece;
  std::vector<const void*> streams;
  for (const auto* call : calls)
    streams.push_back(call->stream);
  std::vector<std::unique_ptr<Staged>> staged;
  for (const auto* call : calls) {
    staged.push_back(std::make_unique<Staged>(bytes));
    Work(call->stream).copy(staged.back()->data(), call->in, bytes);
  }
  const auto dtype = first.type == ncclFloat32    ? lockstep::DType::fp32
                     : first.type == ncclBfloat16 ? lockstep::DType::bf16
                                                  : lockstep::DType::int32;
  const auto n = static_cast<std::int64_t>(first.count);
  if (first.kind == Kind::all_reduce) {
    std::vector<std::byte> sum(bytes);
    std::vector<const std::byte*> all;
    for (const auto& one : staged)
      all.push_back(one->data());
    lockstep::reduce_range(
        {sum.data(), {n}, dtype, {}},
        first.other == ncclSum ? lockstep::ReduceOp::sum : lockstep::ReduceOp::max, all, 0, n);
    for (const auto& one : staged)
      std::copy(sum.begin(), sum.end(), one->data());
  }
  std::vector<std::vector<std::byte>> sums;  // of each rank's pieces
  if (first.kind == Kind::reduce_scatter)
    for (std::size_t r = 0; r < calls.size(); ++r) {
      std::vector<const std::byte*> pieces;
      for (const auto& one : staged)
        pieces.push_back(one->data() + r * piece);
      sums.emplace_back(piece);
      lockstep::ring_sum({sums.back().data(), {n}, dtype, {}}, pieces, static_cast<int>(r));
    }
  for (std::size_t r = 0; r < sums.size(); ++r)
    std::copy(sums[r].begin(), sums[r].end(), staged[r]->data());
  meet(streams);
  for (std::size_t r = 0; r < calls.size(); ++r) {
    Work work(calls[r]->stream);
    auto* out = static_cast<std::byte*>(calls[r]->out);
    if (first.kind == Kind::all_reduce) work.copy(out, staged[r]->data(), bytes);
    if (first.kind == Kind::reduce_scatter) work.copy(out, staged[r]->data(), piece);
    if (first.kind == Kind::broadcast)
      work.copy(out, staged[static_cast<std::size_t>(first.other)]->data(), bytes);
    if (first.kind == Kind::all_gather)
      for (std::size_t other = 0; other < calls.size(); ++other)
        work.copy(out + other * bytes, staged[other]->data(), bytes);
    if (first.kind == Kind::all_to_all)
      for (std::size_t other = 0; other < calls.size(); ++other)
        work.copy(out + other * piece, staged[other]->data() + r * piece, piece);
  }
  meet(streams);
}

}  // namespace

std::string perform(const std::vector<const std::vector<Call>*>& calls) {
  const std::lock_guard lock(simt::device_mutex());
  const auto& first = *calls[0];
  for (const auto* other : calls)
    if (!std::equal(other->begin(), other->end(), first.begin(), first.end(),
                    [](const Call& a, const Call& b) { return a.what() == b.what(); }))
      return "ranks make different calls";
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<const Call*> one;
    for (const auto* of_rank : calls)
      one.push_back(&of_rank->at(i));
    collect(one);
  }
  return "";
}

Message send(const Call& call) {
  const std::lock_guard lock(simt::device_mutex());
  const auto bytes = call.count * bytes_of(call.type);
  const auto staged = std::make_shared<Staged>(bytes);
  Work(call.stream).copy(staged->data(), call.in, bytes);
  return {call.count, call.type, {staged, staged->data()}, simt::order().of(call.stream)};
}

std::string receive(const Call& call, const Message& message) {
  if (call.count != message.count || call.type != message.type)
    return "a message of " + std::to_string(message.count) + " elements of type " +
           std::to_string(message.type) + ", but " + std::to_string(call.count) + " of type " +
           std::to_string(call.type) + " are expected";
  const std::lock_guard lock(simt::device_mutex());
  simt::order().wait(call.stream, message.sent);
  Work(call.stream).copy(call.out, message.data.get(), call.count * bytes_of(call.type));
  return "";
}

}  // namespace simt
