// Replaces NCCL, in the library of recorder.cpp: each call is a line, and moves nothing. Ranks
// exchange their parts of a communicator through files next to their records.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <nccl.h>

#include "tests/gpu/recorder.h"

struct ncclComm {
  int number;  // in the order of creation; 0: of all ranks
  int rank, size;
};

namespace {

int splits = 0;

std::string split_file(int split, int rank) {
  const auto name = record_name();
  return name.substr(0, name.rfind('.')) + ".split." + std::to_string(split) + "." +
         std::to_string(rank);
}

// color and key of every rank.
std::vector<std::pair<int, int>> tell_all(const ncclComm& all, int color, int key) {
  const int split = ++splits;
  const auto mine = split_file(split, all.rank);
  std::ofstream(mine + ".new") << color << ' ' << key << '\n';
  std::filesystem::rename(mine + ".new", mine);
  std::vector<std::pair<int, int>> said;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int rank = 0; rank < all.size; ++rank) {
    while (!std::filesystem::exists(split_file(split, rank)) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    said.emplace_back(NCCL_SPLIT_NOCOLOR, 0);
    std::ifstream(split_file(split, rank)) >> said.back().first >> said.back().second;
  }
  return said;
}

void record_call(const char* call, cudaStream_t stream, ncclComm_t comm, const void* in,
                 const void* out, std::size_t count, ncclDataType_t type, int other) {
  record("%s %p %d %p %p %zu %d %d", call, static_cast<void*>(stream), comm->number, in, out, count,
         static_cast<int>(type), other);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const char* other = std::getenv("LOCKSTEP_RECORD_NCCL");
  *version = other == nullptr ? 22809 : std::atoi(other);
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the recorder";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (id.internal[0] != 7 || config->blocking != 0) return ncclInvalidArgument;
  *comm = new ncclComm{0, rank, size};
  record("ncclCommInitRankConfig %d %d", rank, size);
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  *made = nullptr;
  const auto said = tell_all(*comm, color, key);
  std::vector<int> keys;
  for (const auto& [its_color, its_key] : said)
    if (color != NCCL_SPLIT_NOCOLOR && its_color == color) keys.push_back(its_key);
  std::sort(keys.begin(), keys.end());
  const auto place = std::find(keys.begin(), keys.end(), key) - keys.begin();
  if (!keys.empty())
    *made = new ncclComm{splits, static_cast<int>(place), static_cast<int>(keys.size())};
  record("ncclCommSplit %d %d %d %s %d", splits, color, key,
         config->CTAPolicy == NCCL_CTA_POLICY_ZERO ? "zero" : "default", config->maxCTAs);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  record("ncclCommDestroy %d", comm->number);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  record("ncclCommAbort %d", comm->number);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** p, std::size_t bytes) {
  *p = device_memory(bytes);
  record("ncclMemAlloc %p %zu", *p, bytes);
  return *p == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclMemFree(void* p) {
  record("ncclMemFree %p", p);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* p, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  const char* enabled = std::getenv("NCCL_WIN_ENABLE");
  if (enabled != nullptr && std::strcmp(enabled, "0") == 0) return ncclSuccess;
  *window = next_handle<ncclWindow_t>();
  record("ncclCommWindowRegister %d %p %zu %d", comm->number, p, bytes, flags);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t) {
  record("ncclCommWindowDeregister %d", comm->number);
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  record("ncclGroupStart");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  record("ncclGroupEnd");
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclAllReduce", stream, comm, in, out, count, type, op);
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclAllGather", stream, comm, in, out, count, type, 0);
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclReduceScatter", stream, comm, in, out, count, type, op);
  return ncclSuccess;
}
ncclResult_t ncclAlltoAll(const void* in, void* out, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclAlltoAll", stream, comm, in, out, count * static_cast<std::size_t>(comm->size),
              type, 0);
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclBroadcast", stream, comm, in, out, count, type, root);
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  record_call("ncclSend", stream, comm, in, nullptr, count, type, peer);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  record_call("ncclRecv", stream, comm, nullptr, out, count, type, peer);
  return ncclSuccess;
}
