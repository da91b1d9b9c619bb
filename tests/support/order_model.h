// A model of the order in which the GPUs of several ranks run collectives. It finds deadlocks by
// search, and the entries that determine the time of a program.
//
// A rank's host enqueues entries on streams; a stream runs its entries in order. A collective
// begins on a rank when
//   - it is the next entry of its stream, and the call before it in its group has ended there;
//   - its slots (multiprocessor blocks) are free;
//   - with launch order (NCCL_LAUNCH_ORDER_IMPLICIT=1), the collective enqueued before it on the
//     rank, in any group, has begun. A call of copy engines waits in this order too, but later
//     calls do not wait for it: they wait for the last call by kernels.
// It holds its slots until it ends, `seconds` after the last rank of its group has begun it.
// Compute holds none, because it always ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// An entry is a collective of `group` unless `what` differs. A send and its receive are one
// collective, of a group of two ranks.
struct OrderEntry {
  enum class What : std::uint8_t { collective, compute, record, wait };
  int rank = 0;
  int group = 0;          // collective: index in OrderProgram::groups
  std::string name = {};  // collective: the same on all ranks of a call
  What what = What::collective;
  int stream = 0;
  double seconds = 0;              // collective, compute
  int slots = 1;                   // collective
  bool uses_copy_engines = false;  // collective: it holds no slots
  std::int64_t event = 0;          // record, wait: number; a wait without a record ends at once
};

struct OrderProgram {
  struct Group {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<std::string> streams = {};  // names; a stream without a name has its number
  std::vector<Group> groups = {};
  std::vector<OrderEntry> entries = {};  // each rank's in the order of its host
};

struct OrderOptions {
  int slots = 1;  // of each rank
  bool launch_order = true;
  std::size_t most_states = 100'000;  // of a search; more are an Error
};

// Returns "" if every run of the program ends. Otherwise returns "mismatch: " with a call that
// differs between ranks of a group, or "deadlock: " with what each stream waits for and the order
// of begins that leads there. Entries may take any time, and free slots may go to any collective.
std::string find_deadlock(const OrderProgram& program, const OrderOptions& options = {});

struct OrderTimes {
  struct Step {
    int rank, stream;
    std::string name;
    double begin, end;
    std::string after;  // reason of its begin: "stream", "event", "group", "launch order", "slots"
  };
  std::vector<double> begin, end;  // of each entry
  // The compute and collectives that determine the last end. A collective is listed for the rank
  // that began it last.
  std::vector<Step> path;
};
// Returns the times of a program. Without launch order, the lowest stream gets slots first; a GPU
// may choose otherwise. Throws Error if the program does not end.
OrderTimes critical_path(const OrderProgram& program, const OrderOptions& options = {});
// A line for each step: "rank 1, stream 0: gather 5-7 event".
std::string in_words(const OrderProgram& program, const OrderTimes& times);

}  // namespace lockstep
