// All groups are split from one communicator of all ranks. That one is non-blocking, so that this
// rank can give up waiting for others that do not come. The groups are blocking: on others NCCL
// starts a thread for each call. Calls of several groups, on several streams, must reach every GPU
// in one order: the program's, which NCCL_LAUNCH_ORDER_IMPLICIT makes it keep.
#include "dist/nccl_world.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <nccl.h>

#include "core/arena.h"
#include "core/gpu.h"
#include "core/machine.h"
#include "core/progress.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOldestVersion = 22600;  // the first with NCCL_LAUNCH_ORDER_IMPLICIT

std::string in_words(int version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// What only travels is bytes; fp8 cannot be summed anyway.
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

std::string why(ncclResult_t code, ncclComm_t comm, const std::string& group, const char* call) {
  const char* more = ncclGetLastError(comm);
  return str("NCCL in the group '", group, "': ", call, ": ", ncclGetErrorString(code),
             more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "",
             ", on host ", host_name());
}

void check(ncclResult_t code, ncclComm_t comm, const std::string& group, const char* call) {
  if (code == ncclSuccess) return;
  if (code == ncclSystemError || code == ncclRemoteError)
    throw TransientError(why(code, comm, group, call));
  throw Error(why(code, comm, group, call));
}

struct Group {
  std::string name;
  ncclComm_t comm;
};

// The groups of this rank, and who watches them. Calls are made one at a time, so that none is on
// its way when they are aborted.
class Groups {
 public:
  using OnError = std::function<void(const std::string& why)>;

  explicit Groups(OnError on_error)
      : on_error_(std::move(on_error)), watcher_([this] { watch(); }) {}
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;
  ~Groups() {
    {
      const std::lock_guard lock(ending_mutex_);
      ending_ = true;
    }
    ends_.notify_all();
    watcher_.join();
  }

  const Group& add(Group group) {
    const std::lock_guard lock(calls_);
    return groups_.emplace_back(std::move(group));
  }

  // act(comm), a call of NCCL.
  template <class Act>
  void call(const Group& group, const char* name, Act&& act) {
    const std::lock_guard lock(calls_);
    LOCKSTEP_CHECK(!aborted_, "a collective of the group '", group.name, "', which was aborted");
    check(act(group.comm), group.comm, group.name, name);
  }

  // What GPUs wait for in them ends. A call that hangs is not waited for.
  void abort() noexcept {
    const std::unique_lock lock(calls_, std::chrono::seconds(2));
    if (!lock.owns_lock() || std::exchange(aborted_, true)) return;
    for (const auto& group : groups_)
      ncclCommAbort(group.comm);
  }
  // All ranks: what they were given is done first.
  void destroy() noexcept {
    const std::lock_guard lock(calls_);
    if (std::exchange(aborted_, true)) return;
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
      ncclCommDestroy(group->comm);
  }

 private:
  void watch() {
    std::unique_lock lock(ending_mutex_);
    while (!ends_.wait_for(lock, std::chrono::seconds(1), [&] { return ending_; })) {
      if (const auto error = found()) return on_error_(*error);
    }
  }
  std::optional<std::string> found() {
    const std::lock_guard lock(calls_);
    if (aborted_) return std::nullopt;
    for (const auto& group : groups_) {
      ncclResult_t code = ncclSuccess;
      ncclCommGetAsyncError(group.comm, &code);
      if (code != ncclSuccess && code != ncclInProgress)
        return why(code, group.comm, group.name, "while it ran");
    }
    return std::nullopt;
  }

  OnError on_error_;
  std::timed_mutex calls_;  // of the next two
  std::deque<Group> groups_;
  bool aborted_ = false;
  std::mutex ending_mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread watcher_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(int rank, int size, Groups& groups, const Group& group, Device device)
      : Communicator(group.name, rank, size),
        groups_(groups),
        group_(group),
        memory_(device, Arena::Memory::device, kWordBytes),
        word_(memory_.allocate("barrier", DType::int32, {1})) {}

 private:
  static constexpr std::int64_t kWordBytes = 1024;  // of one word, and what an arena puts around it

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
  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    const auto n = in.elements() / size(), piece = in.bytes() / size();
    begin_group();
    for (int r = 0; r < size(); ++r) {
      send({in.data + r * piece, {n}, in.dtype, in.device}, r, stream);
      receive({out.data + r * piece, {n}, out.dtype, out.device}, r, stream);
    }
    end_group();
  }
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    call("ncclBroadcast", [&](ncclComm_t comm) {
      return ncclBroadcast(inout.data, inout.data, elements(inout), type_of(inout.dtype), root,
                           comm, stream.native());
    });
  }
  void do_send_receive(Tensor received, int from, ConstTensor sent, int to,
                       Stream& stream) override {
    begin_group();
    send(sent, to, stream);
    receive(received, from, stream);
    end_group();
  }
  void do_barrier(Stream& stream) override { do_all_reduce(word_, ReduceOp::max, stream); }
  void begin_group() override {
    call("ncclGroupStart", [](ncclComm_t) { return ncclGroupStart(); });
  }
  void end_group() override {
    call("ncclGroupEnd", [](ncclComm_t) { return ncclGroupEnd(); });
  }

  void send(ConstTensor t, int to, Stream& stream) {
    call("ncclSend", [&](ncclComm_t comm) {
      return ncclSend(t.data, elements(t), type_of(t.dtype), to, comm, stream.native());
    });
  }
  void receive(Tensor t, int from, Stream& stream) {
    call("ncclRecv", [&](ncclComm_t comm) {
      return ncclRecv(t.data, elements(t), type_of(t.dtype), from, comm, stream.native());
    });
  }
  static std::size_t elements(ConstTensor t) { return static_cast<std::size_t>(t.elements()); }
  template <class Act>
  void call(const char* name, Act&& act) {
    groups_.call(group_, name, act);
  }

  Groups& groups_;
  const Group& group_;
  Arena memory_;
  Tensor word_;
};

class NcclWorld final : public World {
 public:
  NcclWorld(World& host, Device device, std::chrono::milliseconds patience)
      : host_(host),
        device_(device),
        patience_(patience),
        exceptions_(std::uncaught_exceptions()),
        groups_(
            [this](const std::string& error) { abort(error, TransientError("").exit_code()); }) {}
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;
  ~NcclWorld() override {
    if (std::uncaught_exceptions() > exceptions_) {  // the others may not come
      groups_.abort();
      if (all_ != nullptr) ncclCommAbort(all_);
      return;
    }
    groups_.destroy();
    if (all_ != nullptr) end_all_ranks();
  }

  void start() {
    const auto words = nccl_in_words();
    const auto said = host_.exchange(words);
    for (std::size_t rank = 0; rank < said.size(); ++rank)
      if (said[rank] != said.front())
        throw ConfigError(str("rank ", rank, " has NCCL ", said[rank], ", rank 0 has ",
                              said.front(), "; start all ranks with the same"));
    ncclUniqueId id{};
    if (rank() == 0) check(ncclGetUniqueId(&id), nullptr, kAll, "ncclGetUniqueId");
    const auto ids =
        host_.exchange(rank() == 0 ? std::string(id.internal, sizeof id.internal) : "");
    std::copy_n(ids.front().data(), sizeof id.internal, id.internal);
    gpu::use(device_.index);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    await(ncclCommInitRankConfig(&all_, size(), id, rank(), &config), kAll, "ncclCommInitRank");
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }

  std::unique_ptr<Communicator> connect(const std::string& name,
                                        const std::vector<int>& ranks) override {
    const auto place =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    const auto count = static_cast<int>(ranks.size());
    // All ranks take part in a split, those that are alone too.
    const int color =
        count == 1 ? NCCL_SPLIT_NOCOLOR : *std::min_element(ranks.begin(), ranks.end());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t& made = made_.emplace_back(nullptr);
    await(ncclCommSplit(all_, color, place, &made, &config), name, "ncclCommSplit");
    if (count == 1) return std::make_unique<LoneCommunicator>(name, 0, 1);
    const auto& group = groups_.add({name, made});
    int members = 0, number = 0;
    check(ncclCommCount(made, &members), made, name, "ncclCommCount");
    check(ncclCommUserRank(made, &number), made, name, "ncclCommUserRank");
    LOCKSTEP_CHECK(members == count && number == place, "the group '", name, "' has ", members,
                   " ranks, and rank ", rank(), " is its number ", number, ", expected ", count,
                   " and ", place, ": do all ranks make the same groups in the same order?");
    return std::make_unique<NcclCommunicator>(place, count, groups_, group, device_);
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    return host_.exchange(mine);
  }
  void abort(const std::string& error, int exit_code) noexcept override {
    groups_.abort();
    host_.abort(error, exit_code);
  }
  CollectiveRing* ring() override { return host_.ring(); }

 private:
  static constexpr const char* kAll = "all";

  // What was begun on the communicator of all ranks.
  void await(ncclResult_t code, const std::string& group, const char* call) {
    const auto deadline = Clock::now() + patience_;
    while (code == ncclInProgress) {
      if (Clock::now() > deadline)
        throw TransientError(str("NCCL in the group '", group, "': ", call,
                                 ": its ranks did not come ", "together within ",
                                 static_cast<double>(patience_.count()) / 1000,
                                 " s; does each of them run, and reach the others' network? "
                                 "NCCL_DEBUG=INFO says more"));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      made_progress();  // `patience` is what ends this
      check(ncclCommGetAsyncError(all_, &code), all_, group, "ncclCommGetAsyncError");
    }
    check(code, all_, group, call);
  }

  void end_all_ranks() noexcept {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    auto code = ncclCommFinalize(all_);
    while (code == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ncclCommGetAsyncError(all_, &code) != ncclSuccess) break;
    }
    if (code == ncclSuccess)
      ncclCommDestroy(all_);
    else
      ncclCommAbort(all_);
  }

  World& host_;
  Device device_;
  std::chrono::milliseconds patience_;
  int exceptions_;  // under way when the world was made
  ncclComm_t all_ = nullptr;
  std::deque<ncclComm_t> made_;  // NCCL writes into it until a split is over
  Groups groups_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::string nccl_in_words() {
  int version = 0;
  check(ncclGetVersion(&version), nullptr, "all", "ncclGetVersion");
  auto words = in_words(version);
  for (const char* name :
       {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE"})
    if (const char* value = std::getenv(name)) words += str(" ", name, "=", value);
  return words;
}

std::unique_ptr<World> make_nccl_world(World& host, Device device,
                                       std::chrono::milliseconds patience) {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);  // read once
  int version = 0;
  check(ncclGetVersion(&version), nullptr, "all", "ncclGetVersion");
  if (version < kOldestVersion)
    throw ConfigError(str("NCCL is of version ", in_words(version), ", expected ",
                          in_words(kOldestVersion), " or later; install a newer libnccl2"));
  auto world = std::make_unique<NcclWorld>(host, device, patience);
  world->start();
  return world;
}

}  // namespace lockstep
