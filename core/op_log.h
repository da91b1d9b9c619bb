// OpLog: what streams are given, as operators and collectives state it themselves: FLOPs, bytes,
// sizes, and which stream waits for which. Of measuring streams it is a step with nothing behind
// it, which the planner prices; of a running stream each call has its seconds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/trace.h"

namespace lockstep {

// A call of an operator or a collective.
struct Op {
  enum class Kind : std::uint8_t { product, attention, memory, transfer, collective };

  const char* name = "";  // as the operator is called: "matmul_forward", "all_gather"
  Kind kind = Kind::memory;
  DType dtype = DType::fp32;  // product, attention: of what is multiplied
  double flops = 0;           // product, attention; a multiply-add counts as two
  // Of tensors, read or written; transfer: from host to device or back; collective: received, see
  // Communicator.
  std::int64_t bytes = 0;
  // product: rows, columns and depth [M, N, K]; attention: B, T, query heads, head size
  std::array<std::int64_t, 4> sizes{};
  // collective: of its group
  const char* group = "";  // name
  Component along = Component::communication_ranks;
  int ranks = 1;

  bool is_nothing() const { return kind == Kind::collective && ranks == 1; }
};

// What a plan and a run count it as, within a span of a component.
Component component_of(const Op& op, Component within);

// The bytes of all of them; absent ones have none.
std::int64_t bytes_of(std::initializer_list<ConstTensor> tensors);

// Op of a memory-bound operator, which reads or writes each of `tensors` once.
Op memory_op(const char* name, DType dtype, std::initializer_list<ConstTensor> tensors);
// [M, K] times [K, N].
Op product_op(const char* name, DType dtype, std::int64_t M, std::int64_t N, std::int64_t K,
              std::initializer_list<ConstTensor> tensors);

// What crosses between a device and its host.
Op transfer_op(ConstTensor moved);

class OpLog {
 public:
  enum class What : std::uint8_t { op, record, wait };
  struct Entry {
    What what = What::op;
    std::uint8_t stream = 0;              // number in streams()
    Component within = Component::other;  // of core/trace.h, where its stream was given it
    Op op;
    std::int64_t event = 0;  // record, wait: its number
    double seconds = 0;      // op of a running stream
  };

  OpLog() = default;
  OpLog(const OpLog&) = delete;
  OpLog& operator=(const OpLog&) = delete;

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::string>& streams() const { return names_; }
  void clear();  // but for events
  // Of measuring streams: forgets entries from `end` on, but for events.
  void cut(std::size_t end) { entries_.resize(end); }

  // While one lives its stream does an operator, which its trace and its log are told of; what that
  // calls itself is part of it.
  class Call {
   public:
    Call(Stream& stream, const Op& op);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Stream& stream_;
    bool is_part_;          // of another one
    OpLog* log_ = nullptr;  // nullptr: nobody asks
    std::optional<Trace::Span> span_;
    std::size_t entry_ = 0;
    std::chrono::steady_clock::time_point begin_;
    Event begin_event_;
  };

  // The seconds of calls of CUDA streams, which have done them.
  void settle();

  std::int64_t record(const Stream& stream);  // the event's number
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
  std::set<std::string, std::less<>> groups_;  // whose names outlive the communicators
  std::int64_t events_ = 0;
};

}  // namespace lockstep
