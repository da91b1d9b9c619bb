// OpLog records the operators and collectives of streams, as they describe themselves: FLOPs,
// bytes, sizes, and which stream waits for which. With measuring streams it records a step without
// running it, for the planner. With running streams each call also has its seconds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/trace.h"

namespace lockstep {

// Purpose of a group of ranks in training: each value names a Communicator of Comms (dist/comms.h).
enum class Group : std::uint8_t {
  all,
  tensor,
  gathers,
  shard,
  shard_inside,
  shard_across,
  replicate,
  replicate_inside,
  replicate_across,
  other  // not in Comms
};
inline constexpr std::size_t kGroups = 9;  // in Comms
Component component_of(Group group);       // the component that the time of its calls counts for

// A call of an operator or a collective.
struct Op {
  enum class Kind : std::uint8_t { product, attention, memory, transfer, collective };

  const char* name = "";  // name of the operator: "matmul_forward", "all_gather"
  Kind kind = Kind::memory;
  DType dtype = DType::fp32;  // product, attention: type of the factors
  double flops = 0;           // product, attention: a multiply-add counts as two
  // Bytes of tensors read or written; transfer: moved between host and device; collective:
  // received, see Communicator.
  std::int64_t bytes = 0;
  // product (matmul): rows, columns and depth [M, N, K]; attention: B, T, query heads, head size
  std::array<std::int64_t, 4> sizes{};
  // collective: its group, and the number of ranks of the group
  Group group = Group::other;
  int ranks = 1;

  bool is_nothing() const { return kind == Kind::collective && ranks == 1; }
};

// The component that plans and runs count `op` as, inside a span of the component `within`.
Component component_of(const Op& op, Component within);

// Total bytes of the tensors; absent ones count 0.
std::int64_t bytes_of(std::initializer_list<ConstTensor> tensors);

// Op of a memory-bound operator that reads or writes each of `tensors` once.
Op memory_op(const char* name, DType dtype, std::initializer_list<ConstTensor> tensors);
// Op of a matmul [M, K] times [K, N].
Op product_op(const char* name, DType dtype, std::int64_t M, std::int64_t N, std::int64_t K,
              std::initializer_list<ConstTensor> tensors);

// Op of a copy between a device and its host.
Op transfer_op(ConstTensor moved);

class OpLog {
 public:
  enum class What : std::uint8_t { op, record, wait };
  struct Entry {
    What what = What::op;
    std::uint8_t stream = 0;              // index in streams()
    Component within = Component::other;  // component of the enclosing span (core/trace.h)
    Op op;
    std::int64_t event = 0;  // record, wait: number of the event
    double seconds = 0;      // op on a running stream
  };

  OpLog() = default;
  OpLog(const OpLog&) = delete;
  OpLog& operator=(const OpLog&) = delete;

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::string>& streams() const { return names_; }
  void clear();  // keeps the numbers of events
  // For measuring streams: removes entries from `end` on; keeps the numbers of events.
  void cut(std::size_t end) { entries_.resize(end); }

  // Call reports an operator to the stream's trace and log during its lifetime. Operators called
  // meanwhile on this stream count as part of it.
  class Call {
   public:
    Call(Stream& stream, const Op& op);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Stream& stream_;
    bool is_part_;          // part of another operator
    OpLog* log_ = nullptr;  // nullptr: the stream has no log
    std::optional<Trace::Span> span_;
    std::size_t entry_ = 0;
    std::chrono::steady_clock::time_point begin_;
    Event begin_event_;
  };

  // Sets the seconds of calls on CUDA streams, after the streams have finished them.
  void settle();

  std::int64_t record(const Stream& stream);  // returns the event's number
  void wait(const Stream& stream, std::int64_t event);

 private:
  std::uint8_t number_of(const Stream& stream);
  void add(const Stream& stream, What what, const Op& op, std::int64_t event);

  struct Timed {
    std::size_t entry;
    Event begin, end;
  };
  std::vector<Entry> entries_;
  std::vector<Timed> timed_;
  std::vector<const Stream*> streams_;
  std::vector<std::string> names_;
  std::int64_t events_ = 0;
};

}  // namespace lockstep
