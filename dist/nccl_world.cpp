// All groups are split from one communicator of all ranks. That communicator is non-blocking, so
// that this rank can stop waiting for ranks that do not arrive. The groups are blocking: with
// non-blocking ones NCCL starts a thread for each call. Calls of several groups, on several
// streams, must reach every GPU in the same order. NCCL_LAUNCH_ORDER_IMPLICIT makes NCCL keep the
// order of the program.
#include "dist/nccl_world.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <nccl.h>

#include "core/gpu.h"
#include "core/log.h"
#include "core/progress.h"
#include "dist/nccl_groups.h"
#include "dist/nccl_memory.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
// First version with NCCL_CTA_POLICY_ZERO and ncclAlltoAll; NCCL_LAUNCH_ORDER_IMPLICIT came in
// 2.26.
constexpr int kOldestVersion = 22800;
// Newest version whose sources were read for what the groups rely on: copy engines, launch order.
constexpr int kNewestVersion = 23099;

// CUDA of the oldest driver with which NCCL uses copy engines (12.5) and orders launches (12.3).
constexpr double kOldestDriver = 12.5;

std::string in_words(int version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

class NcclWorld final : public WorldOver {
 public:
  NcclWorld(World& host, Device device, std::chrono::milliseconds patience)
      : WorldOver(host),
        device_(device),
        patience_(patience),
        exceptions_(std::uncaught_exceptions()),
        groups_(device, [this](const std::string& error) {
          abort(error, TransientError("").exit_code());
        }) {}
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;
  ~NcclWorld() override {
    if (std::uncaught_exceptions() > exceptions_)
      groups_.abort(all_);  // others may not arrive
    else if (groups_.destroy() && all_ != nullptr)
      end_all_ranks();
  }

  void start() {
    const auto words = nccl_in_words();
    const auto said = under_.exchange(words);
    for (std::size_t rank = 0; rank < said.size(); ++rank)
      if (said[rank] != said.front())
        throw ConfigError(str("rank ", rank, " has NCCL ", said[rank], ", rank 0 has ",
                              said.front(), "; start all ranks with the same"));
    ncclUniqueId id{};
    if (rank() == 0) check_nccl(ncclGetUniqueId(&id), nullptr, kAll, "ncclGetUniqueId");
    const auto ids =
        under_.exchange(rank() == 0 ? std::string(id.internal, sizeof id.internal) : "");
    std::copy_n(ids.front().data(), sizeof id.internal, id.internal);
    gpu::use(device_.index);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = nccl_channels(Carries::numbers);
    await(ncclCommInitRankConfig(&all_, size(), id, rank(), &config), kAll, "ncclCommInitRank");
  }

  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    const auto& ranks = group.ranks;
    const auto place =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    const auto count = static_cast<int>(ranks.size());
    // All ranks take part in a split, including ranks that are alone in their group.
    const int color =
        count == 1 ? NCCL_SPLIT_NOCOLOR : *std::min_element(ranks.begin(), ranks.end());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = nccl_channels(group.carries);
    if (group.carries != Carries::numbers) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    ncclComm_t& made = made_.emplace_back(nullptr);
    NcclCosts spent;
    {
      const NcclMeter meter(spent);
      await(ncclCommSplit(all_, color, place, &made, &config), group.name, "ncclCommSplit");
    }
    if (count == 1) return std::make_unique<LoneCommunicator>(group.name, 0, 1);
    int members = 0, number = 0;
    check_nccl(ncclCommCount(made, &members), made, group.name, "ncclCommCount");
    check_nccl(ncclCommUserRank(made, &number), made, group.name, "ncclCommUserRank");
    LOCKSTEP_CHECK(members == count && number == place, "the group '", group.name, "' has ",
                   members, " ranks, and rank ", rank(), " is its number ", number, ", expected ",
                   count, " and ", place, ": do all ranks make the same groups in the same order?");
    return groups_.add(group, made, place, spent);
  }

  std::shared_ptr<std::byte> allocate(std::int64_t bytes) override {
    for (const auto& other : under_.exchange(std::to_string(bytes)))
      LOCKSTEP_CHECK(other == std::to_string(bytes), "a rank allocates ", other, " bytes, rank ",
                     rank(), " ", bytes);
    return groups_.allocate(bytes);
  }
  std::string costs_in_words() override { return groups_.costs_in_words(); }
  // Reports NCCL's words to the other ranks first, because an abort of NCCL may hang. With MPI that
  // does not return: the process ends.
  void abort(const std::string& error, int exit_code) noexcept override {
    under_.abort(error, exit_code);
    groups_.abort(all_);
  }

 private:
  static constexpr const char* kAll = "all";

  // Waits for a call that was started on the communicator of all ranks.
  void await(ncclResult_t code, const std::string& group, const char* call) {
    const auto deadline = Clock::now() + patience_;
    while (code == ncclInProgress) {
      if (Clock::now() > deadline)
        throw TransientError(
            str("NCCL in the group '", group, "': ", call, ": its ranks did not connect within ",
                static_cast<double>(patience_.count()) / 1000,
                " s; check that each rank runs and reaches the others over the network. "
                "Set NCCL_DEBUG=INFO for details"));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      made_progress();  // `patience` limits this wait, not the failure detector
      check_nccl(ncclCommGetAsyncError(all_, &code), all_, group, "ncclCommGetAsyncError");
    }
    check_nccl(code, all_, group, call);
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

  Device device_;
  std::chrono::milliseconds patience_;
  int exceptions_;  // exceptions in flight when the world was made
  ncclComm_t all_ = nullptr;
  std::deque<ncclComm_t> made_;  // NCCL writes to an element until its split is complete
  NcclGroups groups_;
};

}  // namespace

bool has_nccl() {
  return true;
}

std::string nccl_in_words() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), nullptr, "all", "ncclGetVersion");
  auto words = in_words(version);
  for (const char* name : {"NCCL_ALGO",
                           "NCCL_PROTO",
                           "NCCL_NTHREADS",
                           "NCCL_MIN_NCHANNELS",
                           "NCCL_MAX_NCHANNELS",
                           "NCCL_MIN_CTAS",
                           "NCCL_MAX_CTAS",
                           "NCCL_CTA_POLICY",
                           "NCCL_WIN_ENABLE",
                           "NCCL_CUMEM_ENABLE",
                           "NCCL_NVLS_ENABLE",
                           "NCCL_NVLS_NCHANNELS",
                           "NCCL_MNNVL_ENABLE",
                           "NCCL_COLLNET_ENABLE",
                           "NCCL_COLLNET_NODE_THRESHOLD",
                           "NCCL_BUFFSIZE",
                           "NCCL_LL_BUFFSIZE",
                           "NCCL_LL128_BUFFSIZE",
                           "NCCL_P2P_DISABLE",
                           "NCCL_P2P_LEVEL",
                           "NCCL_SHM_DISABLE",
                           "NCCL_CROSS_NIC",
                           "NCCL_NET",
                           "NCCL_NET_PLUGIN",
                           "NCCL_PAT_ENABLE",
                           "NCCL_TUNER_PLUGIN",
                           "NCCL_TUNER_CONFIG_FILE",
                           "NCCL_TOPO_FILE",
                           "NCCL_GRAPH_FILE",
                           "NCCL_CONF_FILE"})
    if (const char* value = std::getenv(name)) words += str(" ", name, "=", value);
  return words;
}

std::unique_ptr<World> make_nccl_world(World& host, Device device,
                                       std::chrono::milliseconds patience) {
  constexpr const char* kOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";
  if (const char* order = std::getenv(kOrder); order != nullptr && std::string_view(order) != "1")
    throw ConfigError(str(kOrder, "=", order,
                          ": collectives of several groups could deadlock; unset the variable"));
  setenv(kOrder, "1", /*overwrite=*/1);  // NCCL reads it once
  // PAT is NCCL's tree algorithm for groups of one rank per host. It saves at most 1 ms of a large
  // all-gather, but takes 160 MiB for each doubling of the hosts (dist/nccl_memory.h).
  setenv("NCCL_PAT_ENABLE", "0", /*overwrite=*/0);
  const auto driver = gpu::driver_version();
  if (std::stod(driver) < kOldestDriver)
    throw ConfigError(str("the NVIDIA driver supports CUDA up to ", driver,
                          "; runs on several GPUs need a driver for CUDA ", kOldestDriver,
                          " or later, because NCCL does not use copy engines with older ones"));
  int version = 0;
  check_nccl(ncclGetVersion(&version), nullptr, "all", "ncclGetVersion");
  if (version < kOldestVersion)
    throw ConfigError(str("NCCL is of version ", in_words(version), ", expected ",
                          in_words(kOldestVersion), " or later; install a newer libnccl2"));
  if (version > kNewestVersion && host.rank() == 0)
    log_warning("NCCL ", in_words(version), " is newer than ", in_words(kNewestVersion),
                ", the newest version that this program is written for: speed and memory of "
                "collectives may differ");
  auto world = std::make_unique<NcclWorld>(host, device, patience);
  world->start();
  return world;
}

}  // namespace lockstep
