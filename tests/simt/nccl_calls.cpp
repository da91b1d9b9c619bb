#include "tests/simt/nccl_calls.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <nccl.h>

#include "core/tensor.h"
#include "dist/host_reduce.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/order.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

std::size_t bytes_of(int type) {
  return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

// Pinned memory for what is on its way.
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

// Work of a stream: copies between its rank's memory and what is staged.
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
  const auto bytes = first.kind == Kind::all_to_all ? calls.size() * piece : piece;
  std::vector<const void*> streams;
  for (const auto* call : calls)
    streams.push_back(call->stream);
  std::vector<std::unique_ptr<Staged>> staged;
  for (const auto* call : calls) {
    staged.push_back(std::make_unique<Staged>(bytes));
    Work(call->stream).copy(staged.back()->data(), call->in, bytes);
  }
  if (first.kind == Kind::all_reduce) {
    const auto dtype = first.type == ncclFloat32    ? lockstep::DType::fp32
                       : first.type == ncclBfloat16 ? lockstep::DType::bf16
                                                    : lockstep::DType::int32;
    const auto n = static_cast<std::int64_t>(first.count);
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
  meet(streams);
  for (std::size_t r = 0; r < calls.size(); ++r) {
    Work work(calls[r]->stream);
    auto* out = static_cast<std::byte*>(calls[r]->out);
    if (first.kind == Kind::all_reduce) work.copy(out, staged[r]->data(), bytes);
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

// The messages of a group, which may all be on their way at once. Returns what does not match.
std::string exchange_messages(const std::vector<const std::vector<Call>*>& calls) {
  std::map<std::pair<int, int>, std::vector<const Call*>> sent, received;  // by from, to
  std::vector<const void*> streams;
  for (std::size_t rank = 0; rank < calls.size(); ++rank)
    for (const auto& call : *calls[rank]) {
      const auto me = static_cast<int>(rank);
      if (call.kind == Kind::send) sent[{me, call.other}].push_back(&call);
      if (call.kind == Kind::receive) received[{call.other, me}].push_back(&call);
      if (call.is_message()) streams.push_back(call.stream);
    }
  std::vector<std::pair<const Call*, std::unique_ptr<Staged>>> on_their_way;
  for (const auto& [pair, messages] : sent) {
    const auto& expected = received[pair];
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const auto& m = *messages[i];
      if (i >= expected.size() || expected[i]->count != m.count || expected[i]->type != m.type)
        return "a message of rank " + std::to_string(pair.first) + " to rank " +
               std::to_string(pair.second) + " is not expected so";
      const auto bytes = m.count * bytes_of(m.type);
      on_their_way.emplace_back(expected[i], std::make_unique<Staged>(bytes));
      Work(m.stream).copy(on_their_way.back().second->data(), m.in, bytes);
    }
  }
  for (const auto& [pair, messages] : received)
    if (messages.size() != sent[pair].size()) return "a message is expected that no rank sent";
  meet(streams);
  for (const auto& [into, staged] : on_their_way)
    Work(into->stream).copy(into->out, staged->data(), into->count * bytes_of(into->type));
  meet(streams);
  return "";
}

}  // namespace

std::string perform(const std::vector<const std::vector<Call>*>& calls) {
  const std::lock_guard lock(simt::device_mutex());
  std::vector<std::vector<const Call*>> collectives(calls.size());
  for (std::size_t r = 0; r < calls.size(); ++r)
    for (const auto& call : *calls[r])
      if (!call.is_message()) collectives[r].push_back(&call);
  for (const auto& other : collectives)
    if (!std::equal(other.begin(), other.end(), collectives[0].begin(), collectives[0].end(),
                    [](const Call* a, const Call* b) { return a->what() == b->what(); }))
      return "ranks make different calls";
  for (std::size_t i = 0; i < collectives[0].size(); ++i) {
    std::vector<const Call*> one;
    for (const auto& of_rank : collectives)
      one.push_back(of_rank[i]);
    collect(one);
  }
  return exchange_messages(calls);
}

}  // namespace simt
