// NCCL for ranks that are threads of one process, on the simulated GPU. A group of collectives runs
// when all ranks of its communicator have entered it. A send copies its message at once; a receive
// waits for it (nccl_calls.h).
#include "tests/simt/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/simt/nccl_calls.h"

namespace {

using simt::Call;
using simt::Kind;

struct SplitEntry {
  int color, key;
  ncclComm_t* made;
};

// The window of its rank that an address is in, and the byte in that window.
using Place = std::pair<std::ptrdiff_t, std::ptrdiff_t>;
constexpr Place kNowhere{-1, 0};

thread_local std::string last_error;
std::atomic<int> broken_rank = -1, hanging_rank = -1;

}  // namespace

// Memory that a rank has registered.
struct ncclWindow_vidmem {
  const std::byte* base;
  std::size_t bytes;
};

// The state that the ranks of one communicator share.
struct Shared {
  explicit Shared(int ranks)
      : size(ranks),
        calls(static_cast<std::size_t>(ranks)),
        windows(static_cast<std::size_t>(ranks)),
        splits(static_cast<std::size_t>(ranks)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;  // the number of ranks that have joined
  bool aborted = false;
  int arrived = 0, round = 0;
  std::vector<const std::vector<Call>*> calls;                        // of the round, by rank
  std::string error;                                                  // of the last round
  std::map<std::pair<int, int>, std::deque<simt::Message>> messages;  // by from, to
  std::vector<std::deque<ncclWindow_vidmem>> windows;  // by rank, in the order of creation
  int splitting = 0, splits_done = 0;
  std::vector<SplitEntry> splits;
  std::vector<int> origin;  // the rank in the communicator of all ranks, by rank
};

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank;
  int splits = 0;
  const void* stream = nullptr;  // of its last call
};

namespace {

Place place_of(const Shared& s, std::size_t rank, const void* address) {
  const auto& windows = s.windows[rank];
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto offset = static_cast<const std::byte*>(address) - windows[i].base;
    if (0 <= offset && offset < static_cast<std::ptrdiff_t>(windows[i].bytes))
      return {static_cast<std::ptrdiff_t>(i), offset};
  }
  return kNowhere;
}

// NCCL addresses the memory of a peer by the offset of its own memory in their windows.
std::string check_places(const Shared& s) {
  for (std::size_t i = 0; i < s.calls[0]->size(); ++i)
    for (std::size_t rank = 0; rank < s.calls.size(); ++rank) {
      const auto &first = s.calls[0]->at(i), &call = s.calls[rank]->at(i);
      if (place_of(s, rank, call.out) != place_of(s, 0, first.out))
        return "what a rank receives into lies at another place of its memory than rank 0's";
      const bool in_place = call.kind == Kind::all_gather && call.in >= call.out &&
                            place_of(s, rank, call.in) != kNowhere;
      if (!in_place && place_of(s, rank, call.in) != place_of(s, 0, first.in))
        return "what a rank sends lies at another place of its memory than rank 0's";
    }
  return "";
}

constexpr auto kPatience = std::chrono::seconds(120);

// Streams that wait for other ranks, and the communicator of their collective (hang_nccl).
std::mutex waiting_mutex;
std::condition_variable waiting_changed;
std::map<const void*, ncclComm_t> waiting;

ncclResult_t collect(ncclComm_t comm, const std::vector<Call>& calls) {
  Shared& s = *comm->shared;
  comm->stream = calls.front().stream;
  if (int rank = s.origin[static_cast<std::size_t>(comm->rank)];
      hanging_rank.compare_exchange_strong(rank, -1)) {
    const std::lock_guard lock(waiting_mutex);
    waiting[comm->stream] = comm;
    return ncclSuccess;
  }
  std::unique_lock lock(s.mutex);
  s.calls[static_cast<std::size_t>(comm->rank)] = &calls;
  const int round = s.round;
  if (++s.arrived == s.size) {
    s.arrived = 0;
    try {
      s.error = simt::perform(s.calls);
      if (s.error.empty()) s.error = check_places(s);
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

// All sends start before this rank waits for its receives.
ncclResult_t exchange(ncclComm_t comm, const std::vector<Call>& messages) {
  Shared& s = *comm->shared;
  std::unique_lock lock(s.mutex);
  for (const auto& call : messages)
    if (call.kind == Kind::send) s.messages[{comm->rank, call.other}].push_back(simt::send(call));
  s.changed.notify_all();
  for (const auto& call : messages) {
    if (call.kind != Kind::receive) continue;
    auto& sent = s.messages[{call.other, comm->rank}];
    if (!s.changed.wait_for(lock, kPatience, [&] { return !sent.empty() || s.aborted; })) {
      last_error = "a message is expected that no rank sent";
      return ncclSystemError;
    }
    if (sent.empty()) {
      last_error = "another rank is gone";
      return ncclRemoteError;
    }
    last_error = simt::receive(call, sent.front());
    sent.pop_front();
    if (!last_error.empty()) return ncclInvalidUsage;
  }
  return ncclSuccess;
}

ncclResult_t make(ncclComm_t comm, std::vector<Call> calls) {
  const auto messages = std::stable_partition(calls.begin(), calls.end(),
                                              [](const Call& call) { return !call.is_message(); });
  const std::vector<Call> exchanged(messages, calls.end());
  calls.erase(messages, calls.end());
  if (!calls.empty())
    if (const auto code = collect(comm, calls); code != ncclSuccess) return code;
  return exchange(comm, exchanged);
}

thread_local int depth = 0;
thread_local std::vector<ncclComm_t> aborts;
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

// Runs when all ranks of a communicator have called ncclCommSplit.
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

// Aborts together. As in NCCL, an abort ends only after the stream of its communicator, which may
// wait for a communicator that is not aborted. The real one notifies the other ranks later.
void abort_all(const std::vector<ncclComm_t>& comms) {
  for (const auto comm : comms) {
    {
      const std::lock_guard lock(comm->shared->mutex);
      comm->shared->aborted = true;
    }
    comm->shared->changed.notify_all();
    const std::lock_guard lock(waiting_mutex);
    std::erase_if(waiting, [&](const auto& wait) { return wait.second == comm; });
  }
  waiting_changed.notify_all();
  for (const auto comm : comms) {
    std::unique_lock lock(waiting_mutex);
    waiting_changed.wait_for(lock, kPatience, [&] { return !waiting.contains(comm->stream); });
    lock.unlock();
    delete comm;
  }
}

}  // namespace

void simt::break_nccl(int rank) {
  broken_rank = rank;
}
void simt::hang_nccl(int rank) {
  hanging_rank = rank;
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
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (depth > 0)
    aborts.push_back(comm);
  else
    abort_all({comm});
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
  Shared& s = *comm->shared;
  const std::lock_guard lock(s.mutex);
  auto& mine = s.windows[static_cast<std::size_t>(comm->rank)];
  *window = &mine.emplace_back(ncclWindow_vidmem{static_cast<const std::byte*>(memory), bytes});
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const std::lock_guard lock(comm->shared->mutex);
  window->bytes = 0;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  abort_all(std::exchange(aborts, {}));
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
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::reduce_scatter, in, out, count, type, op, stream});
}
ncclResult_t ncclAlltoAll(const void* in, void* out, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return give(comm, {Kind::all_to_all, in, out, count, type, 0, stream});
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
