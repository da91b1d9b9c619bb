// Weights, gradients and activations move while compute runs. Inside an NVLink domain NCCL leaves
// them to the copy engines (NCCL_CTA_POLICY_ZERO). This requires send and receive buffers in memory
// of ncclMemAlloc that all ranks registered as a window, at the same offset in it. Between domains
// the window is memory registered with the NIC. If NCCL supports neither, its calls copy through
// memory of their own.
#include "dist/nccl_groups.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include <nccl.h>

#include "core/arena.h"
#include "core/gpu.h"
#include "core/system/machine.h"
#include "core/units.h"
#include "dist/nccl_memory.h"

namespace lockstep {
namespace {

std::string why(ncclResult_t code, ncclComm_t comm, const std::string& group, const char* call) {
  const char* more = ncclGetLastError(comm);
  return str("NCCL in the group '", group, "': ", call, ": ", ncclGetErrorString(code),
             more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "",
             ", on host ", host_name());
}

// Types that are only transferred go as bytes; fp8 cannot be summed anyway.
ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::int32: return ncclInt32;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::uint8: return ncclUint8;
  }
  return ncclUint8;
}

}  // namespace

void check_nccl(int result, ncclComm* comm, const std::string& group, const char* call) {
  const auto code = static_cast<ncclResult_t>(result);
  if (code == ncclSuccess) return;
  if (code == ncclSystemError || code == ncclRemoteError)
    throw TransientError(why(code, comm, group, call));
  throw Error(why(code, comm, group, call));
}

NcclMeter::NcclMeter(NcclCosts& costs)
    : costs_(costs), free_bytes_(gpu::free_bytes()), begin_(std::chrono::steady_clock::now()) {}

NcclMeter::~NcclMeter() {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  costs_.bytes += free_bytes_ - gpu::free_bytes();
  costs_.seconds += taken.count();
}

// Calls act(comm), which makes a call of NCCL. The first call of a kind makes connections.
template <class Act>
void NcclGroups::call(Group& group, const char* name, Act&& act) {
  const std::lock_guard lock(calls_);
  LOCKSTEP_CHECK(!aborted_, "a collective of the group '", group.name, "', which was aborted");
  std::optional<NcclMeter> meter;
  if (group.called.insert(name).second) meter.emplace(group.costs);
  check_nccl(act(group.comm), group.comm, group.name, name);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(int rank, int size, NcclGroups& groups, NcclGroups::Group& group, Device device)
      : Communicator(group.name, rank, size),
        groups_(groups),
        group_(group),
        memory_(device, Arena::Memory::device, kWordBytes),
        word_(memory_.allocate("barrier", DType::int32, {1})) {}

 private:
  static constexpr std::int64_t kWordBytes = 1024;  // one word, and an arena's overhead for it

  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) override {
    call("ncclAllReduce", [&](ncclComm_t comm) {
      return ncclAllReduce(inout.data, inout.data, elements(inout), type_of(inout.dtype),
                           op == ReduceOp::sum ? ncclSum : ncclMax, comm, stream.native());
    });
  }
  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) override {
    call("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(in.data, out.data, elements(in), type_of(in.dtype), comm,
                           stream.native());
    });
  }
  void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) override {
    call("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(in.data, out.data, elements(out), type_of(out.dtype), ncclSum, comm,
                               stream.native());
    });
  }
  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    call("ncclAlltoAll", [&](ncclComm_t comm) {
      return ncclAlltoAll(in.data, out.data, elements(in) / static_cast<std::size_t>(size()),
                          type_of(in.dtype), comm, stream.native());
    });
  }
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    call("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(inout.data, inout.data, elements(inout), type_of(inout.dtype), root,
                           comm, stream.native());
    });
  }
  void do_send(ConstTensor sent, int to, Stream& stream) override {
    call("ncclSend", [&](ncclComm_t comm) {
      return ncclSend(sent.data, elements(sent), type_of(sent.dtype), to, comm, stream.native());
    });
  }
  void do_receive(Tensor received, int from, Stream& stream) override {
    call("ncclRecv", [&](ncclComm_t comm) {
      return ncclRecv(received.data, elements(received), type_of(received.dtype), from, comm,
                      stream.native());
    });
  }
  void do_barrier(Stream& stream) override { do_all_reduce(word_, ReduceOp::max, stream); }
  void begin_group() override {
    call("ncclGroupStart", [](ncclComm_t) { return ncclGroupStart(); });
  }
  void end_group() override {
    call("ncclGroupEnd", [](ncclComm_t) { return ncclGroupEnd(); });
  }

  static std::size_t elements(ConstTensor t) { return static_cast<std::size_t>(t.elements()); }
  template <class Act>
  void call(const char* name, Act&& act) {
    groups_.call(group_, name, act);
  }

  NcclGroups& groups_;
  NcclGroups::Group& group_;
  Arena memory_;
  Tensor word_;
};

NcclGroups::NcclGroups(Device device, OnError on_error)
    : device_(device), on_error_(std::move(on_error)), watcher_([this] { watch(); }) {}

NcclGroups::~NcclGroups() {
  {
    const std::lock_guard lock(ending_mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  watcher_.join();
}

std::unique_ptr<Communicator> NcclGroups::add(const GroupConfig& config, ncclComm* comm, int rank,
                                              const NcclCosts& spent) {
  const auto ranks = static_cast<int>(config.ranks.size());
  Group* group = nullptr;
  {
    const std::lock_guard lock(calls_);
    group = &groups_.emplace_back(
        Group{.name = config.name,
              .comm = comm,
              .wants_windows = config.carries != Carries::numbers,
              .domains = config.domains,
              .most_bytes = nccl_group_bytes(config.group, ranks, config.domains),
              .costs = spent});
  }
  for (auto& block : blocks_)
    add_window(*group, block);
  return std::make_unique<NcclCommunicator>(rank, ranks, *this, *group, device_);
}

void NcclGroups::add_window(Group& group, Block& block) {
  if (!group.wants_windows) return;
  ncclWindow_t window = nullptr;  // stays null if NCCL_WIN_ENABLE=0
  call(group, "ncclCommWindowRegister", [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, block.base, static_cast<std::size_t>(block.bytes), &window,
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
  if (window == nullptr) return;
  block.windows.emplace_back(group.comm, window);
  group.has_windows = true;
}

// Returns what NCCL should use for the group's calls. NCCL's API does not report what it uses;
// these rules follow from its sources (enqueue.cc and ce_coll.cc of 2.28.9 and 2.30.7).
std::string NcclGroups::path_in_words(const Group& group) {
  const char* set = std::getenv("NCCL_CTA_POLICY");
  const std::string_view policy = set == nullptr ? "ZERO" : set;
  const bool is_zero = policy == "2" || policy.find("ZERO") != std::string_view::npos;
  const auto calls = [&](const char* name) { return group.called.contains(name); };
  const bool moves = calls("ncclAllGather") || calls("ncclAlltoAll");
  const bool adds = calls("ncclReduceScatter") || calls("ncclAllReduce");
  if (!group.wants_windows || !is_zero || !moves) return "kernels";
  if (!group.has_windows) return "kernels without windows";
  int version = 0;
  ncclGetVersion(&version);
  constexpr int kHierarchical = 23000;  // copy engines and RMA of the NICs
  if (group.domains > 1 && version < kHierarchical) return "kernels";
  return str(group.domains > 1 ? "hierarchical copy engines if the NICs allow, else kernels"
                               : "copy engines",
             adds ? ", sums by kernels" : "");
}

std::string NcclGroups::costs_in_words() {
  const auto memory = [](std::int64_t bytes) { return human_memory(static_cast<double>(bytes)); };
  const std::lock_guard lock(calls_);
  NcclCosts all;
  std::int64_t most_bytes = 0;
  std::string text;
  for (const auto& group : groups_) {
    all.bytes += group.costs.bytes;
    all.seconds += group.costs.seconds;
    most_bytes += group.most_bytes;
    text += str(text.empty() ? "" : "; ", group.name, " ", memory(group.costs.bytes), " of ",
                memory(group.most_bytes), ", ", human_seconds(group.costs.seconds), ", by ",
                path_in_words(group));
  }
  if (text.empty()) return "";
  return str("NCCL took ", memory(all.bytes), " of GPU memory, ",
             all.bytes > most_bytes ? "more than" : "within", " the expected ", memory(most_bytes),
             ", and ", human_seconds(all.seconds), " to connect (", text, ")");
}

std::shared_ptr<std::byte> NcclGroups::allocate(std::int64_t bytes) {
  void* base = nullptr;
  const auto code = ncclMemAlloc(&base, static_cast<std::size_t>(bytes));
  const auto words = [](std::int64_t n) { return human_memory(static_cast<double>(n)); };
  if (code != ncclSuccess)
    throw Error(str(why(code, nullptr, "all", "ncclMemAlloc"), ": ", words(bytes),
                    " are needed on the GPU, ", words(gpu::free_bytes()), " are free"));
  Block* block = nullptr;
  {
    const std::lock_guard lock(calls_);
    block = &blocks_.emplace_back(Block{static_cast<std::byte*>(base), bytes, {}});
  }
  for (auto& group : groups_)
    add_window(group, *block);
  return {block->base, [this](std::byte* memory) { release(memory); }};
}

void NcclGroups::release(std::byte* base) noexcept {
  const std::lock_guard lock(calls_);
  const auto block = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& other) { return other.base == base; });
  // GPUs of other ranks may still use it.
  if (aborted_ || std::uncaught_exceptions() > 0) return;
  for (auto window = block->windows.rbegin(); window != block->windows.rend(); ++window)
    ncclCommWindowDeregister(window->first, window->second);
  ncclMemFree(base);
  blocks_.erase(block);
}

// Aborts all communicators in one group call. One abort waits for the stream of its communicator,
// which may wait for a collective of another one (NVIDIA/nccl issue 1013).
void NcclGroups::abort(ncclComm* all) noexcept {
  const std::unique_lock lock(calls_, std::chrono::seconds(2));
  if (!lock.owns_lock() || std::exchange(aborted_, true)) return;
  ncclGroupStart();
  for (const auto& group : groups_)
    ncclCommAbort(group.comm);
  if (all != nullptr) ncclCommAbort(all);
  ncclGroupEnd();
}

bool NcclGroups::destroy() noexcept {
  const std::lock_guard lock(calls_);
  if (std::exchange(aborted_, true)) return false;
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
    ncclCommDestroy(group->comm);
  return true;
}

void NcclGroups::watch() {
  std::unique_lock lock(ending_mutex_);
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [&] { return ending_; })) {
    if (const auto error = found()) return on_error_(*error);
  }
}

// Returns nullopt if a call of NCCL is in progress: it may hang, and the failure detector finds
// that.
std::optional<std::string> NcclGroups::found() {
  const std::unique_lock lock(calls_, std::chrono::milliseconds(100));
  if (!lock.owns_lock() || aborted_) return std::nullopt;
  for (const auto& group : groups_) {
    ncclResult_t code = ncclSuccess;
    ncclCommGetAsyncError(group.comm, &code);
    if (code != ncclSuccess && code != ncclInProgress)
      return why(code, group.comm, group.name, "while it ran");
  }
  return std::nullopt;
}

}  // namespace lockstep
