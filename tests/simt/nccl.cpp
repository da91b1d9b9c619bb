// NCCL for ranks that are threads of one process, on the simulated GPU. A group of calls is done
// when all ranks of its communicator have made theirs; they must be the same ones, sends and
// receives must match. For the order of streams (order.h) a call is a point at which the streams of
// all ranks meet.
#include "tests/simt/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include "core/tensor.h"
#include "dist/host_reduce.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/order.h"
#include "tests/simt/simt.h"

namespace {

enum class Kind { all_reduce, all_gather, broadcast, send, receive };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  int other;  // root, peer or operation
  cudaStream_t stream;

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
  auto what() const { return std::tuple(kind, count, type, other); }
};

std::size_t bytes_of(ncclDataType_t type) {
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

struct SplitEntry {
  int color, key;
  ncclComm_t* made;
};

thread_local std::string last_error;
std::atomic<int> broken_rank = -1;

}  // namespace

// What the ranks of one communicator share.
struct Shared {
  explicit Shared(int ranks)
      : size(ranks),
        calls(static_cast<std::size_t>(ranks)),
        splits(static_cast<std::size_t>(ranks)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;  // of those that make it
  bool aborted = false;
  int arrived = 0, round = 0;
  std::vector<const std::vector<Call>*> calls;  // of the round, by rank
  std::string error;                            // of the last round
  int splitting = 0, splits_done = 0;
  std::vector<SplitEntry> splits;
  std::vector<int> origin;  // rank of the communicator of all, by rank
};

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank;
  int splits = 0;
};

namespace {

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

void meet(const std::vector<cudaStream_t>& streams) {
  simt::Clock all;
  for (const auto* stream : streams)
    simt::merge(all, simt::order().of(stream));
  for (const auto* stream : streams)
    simt::order().wait(stream, all);
}

// One collective of all ranks.
void collect(const std::vector<const Call*>& calls) {
  const Call& first = *calls.front();
  const auto bytes = first.count * bytes_of(first.type);
  std::vector<cudaStream_t> streams;
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
  }
  meet(streams);
}

// The messages of a group, which may all be on their way at once. Returns what does not match.
std::string exchange_messages(const std::vector<const std::vector<Call>*>& calls) {
  std::map<std::pair<int, int>, std::vector<const Call*>> sent, received;  // by from, to
  std::vector<cudaStream_t> streams;
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
    if (messages.size() != sent[pair].size()) return "a message is expected that nobody sent";
  meet(streams);
  for (const auto& [into, staged] : on_their_way)
    Work(into->stream).copy(into->out, staged->data(), into->count * bytes_of(into->type));
  meet(streams);
  return "";
}

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

ncclResult_t make(ncclComm_t comm, const std::vector<Call>& calls) {
  constexpr auto kPatience = std::chrono::seconds(120);
  Shared& s = *comm->shared;
  std::unique_lock lock(s.mutex);
  s.calls[static_cast<std::size_t>(comm->rank)] = &calls;
  const int round = s.round;
  if (++s.arrived == s.size) {
    s.arrived = 0;
    try {
      s.error = perform(s.calls);
    } catch (const std::exception& error) {
      s.error = error.what();
    }
    ++s.round;
    s.changed.notify_all();
  } else if (!s.changed.wait_for(lock, kPatience, [&] { return s.round != round || s.aborted; })) {
    last_error = "the other ranks make no call";
    return ncclSystemError;
  }
  if (s.round == round) {
    last_error = "another rank is gone";
    return ncclRemoteError;
  }
  last_error = s.error;
  return s.error.empty() ? ncclSuccess : ncclInvalidUsage;
}

thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, std::vector<Call>>> pending;

ncclResult_t give(ncclComm_t comm, const Call& call) {
  if (depth == 0) return make(comm, {call});
  const auto found =
      std::find_if(pending.begin(), pending.end(), [&](const auto& p) { return p.first == comm; });
  if (found == pending.end())
    pending.push_back({comm, {call}});
  else
    found->second.push_back(call);
  return ncclSuccess;
}

std::mutex all_mutex;
std::map<std::string, std::shared_ptr<Shared>> all;  // by unique id

// All ranks of a communicator have said which part of it they go to.
void split(Shared& s) {
  std::map<int, std::vector<int>> colors;
  for (int rank = 0; rank < s.size; ++rank)
    if (const auto color = s.splits[static_cast<std::size_t>(rank)].color; color >= 0)
      colors[color].push_back(rank);
  for (auto& [color, ranks] : colors) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return s.splits[static_cast<std::size_t>(a)].key < s.splits[static_cast<std::size_t>(b)].key;
    });
    auto made = std::make_shared<Shared>(static_cast<int>(ranks.size()));
    made->here = made->size;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto rank = static_cast<std::size_t>(ranks[i]);
      made->origin.push_back(s.origin[rank]);
      *s.splits[rank].made = new ncclComm{made, static_cast<int>(i)};
    }
  }
  s.splitting = 0;
  ++s.splits_done;
}

}  // namespace

void simt::break_nccl(int rank) {
  broken_rank = rank;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> last = 0;
  *id = {};
  const auto text = std::to_string(++last);
  std::copy(text.begin(), text.end(), id->internal);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t /*result*/) {
  return "an error of the simulated NCCL";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return last_error.c_str();
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  const std::lock_guard lock(all_mutex);
  auto& shared = all[id.internal];
  if (!shared) {
    shared = std::make_shared<Shared>(ranks);
    for (int r = 0; r < ranks; ++r)
      shared->origin.push_back(r);
  }
  const std::lock_guard its(shared->mutex);
  ++shared->here;
  *comm = new ncclComm{shared, rank};
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  if (config->blocking != 1) return ncclInvalidArgument;
  Shared& s = *comm->shared;
  const std::lock_guard lock(s.mutex);
  if (s.here < s.size || comm->splits != s.splits_done) return ncclInvalidUsage;  // not ready
  *made = nullptr;
  ++comm->splits;
  s.splits[static_cast<std::size_t>(comm->rank)] = {color, key, made};
  if (++s.splitting == s.size) split(s);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Shared& s = *comm->shared;
  const std::lock_guard lock(s.mutex);
  *error = s.here < s.size || comm->splits != s.splits_done ? ncclInProgress : ncclSuccess;
  if (s.origin[static_cast<std::size_t>(comm->rank)] == broken_rank) {
    last_error = "the cable is out";
    *error = ncclRemoteError;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->shared->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
// NCCL's own tells the others in its own time.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->shared->mutex);
    comm->shared->aborted = true;
  }
  comm->shared->changed.notify_all();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  const auto calls = std::exchange(pending, {});
  for (const auto& [comm, group] : calls)
    if (const auto code = make(comm, group); code != ncclSuccess) return code;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::all_reduce, in, out, count, type, op, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::all_gather, in, out, count, type, 0, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::broadcast, in, out, count, type, root, stream});
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::send, in, nullptr, count, type, peer, stream});
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return give(comm, {Kind::receive, nullptr, out, count, type, peer, stream});
}
