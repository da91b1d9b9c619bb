// NCCL for ranks that are threads of one process, on the simulated GPU. A group of calls is done
// when all ranks of its communicator have made theirs (nccl_calls.h).
#include "tests/simt/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
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

ncclResult_t make(ncclComm_t comm, const std::vector<Call>& calls) {
  constexpr auto kPatience = std::chrono::seconds(120);
  Shared& s = *comm->shared;
  std::unique_lock lock(s.mutex);
  s.calls[static_cast<std::size_t>(comm->rank)] = &calls;
  const int round = s.round;
  if (++s.arrived == s.size) {
    s.arrived = 0;
    try {
      s.error = simt::perform(s.calls);
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
