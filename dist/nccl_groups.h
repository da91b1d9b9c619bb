// NcclGroups owns the NCCL groups of one rank and the memory that they send from and receive into.
// A thread watches the groups for errors that NCCL detects later.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dist/comms.h"

struct ncclComm;  // NCCL's own handle types
struct ncclWindow_vidmem;

namespace lockstep {

// GPU memory and time that NCCL took.
struct NcclCosts {
  std::int64_t bytes = 0;
  double seconds = 0;
};
// Adds to `costs` what NCCL takes during the lifetime of this object.
class NcclMeter {
 public:
  explicit NcclMeter(NcclCosts& costs);
  NcclMeter(const NcclMeter&) = delete;
  NcclMeter& operator=(const NcclMeter&) = delete;
  ~NcclMeter();

 private:
  NcclCosts& costs_;
  std::int64_t free_bytes_;
  std::chrono::steady_clock::time_point begin_;
};

class NcclGroups {
 public:
  using OnError = std::function<void(const std::string& why)>;

  NcclGroups(Device device, OnError on_error);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  ~NcclGroups();

  // Adds a group and takes ownership of `comm`, a blocking communicator, whose split took `spent`.
  // All ranks of the group add it at the same time.
  std::unique_ptr<Communicator> add(const GroupConfig& config, ncclComm* comm, int rank,
                                    const NcclCosts& spent);

  // See World::allocate() and World::costs_in_words().
  std::shared_ptr<std::byte> allocate(std::int64_t bytes);
  std::string costs_in_words();

  // Aborts the communicators of all groups, and `all` if it is not null, so that no GPU waits for a
  // collective any more. Does nothing if another call of NCCL does not return within two seconds.
  void abort(ncclComm* all) noexcept;
  // All ranks call it. Enqueued work is done first. Returns false if abort() was called.
  bool destroy() noexcept;

 private:
  friend class NcclCommunicator;
  struct Group {
    std::string name;
    ncclComm* comm;
    bool wants_windows;
    int domains;              // NVLink domains of its ranks
    std::int64_t most_bytes;  // its memory, by dist/nccl_memory.h
    NcclCosts costs;
    bool has_windows = false;
    std::set<std::string_view> called{};
  };
  struct Block {
    std::byte* base;
    std::int64_t bytes;
    std::vector<std::pair<ncclComm*, ncclWindow_vidmem*>> windows;
  };

  template <class Act>
  void call(Group& group, const char* name, Act&& act);
  void add_window(Group& group, Block& block);
  void release(std::byte* base) noexcept;
  static std::string path_in_words(const Group& group);
  void watch();
  std::optional<std::string> found();

  Device device_;
  OnError on_error_;
  std::timed_mutex calls_;  // held during calls of NCCL, and while another thread reads or writes
                            // the next three; abort() therefore runs beside no call
  std::deque<Group> groups_;
  std::vector<Block> blocks_;
  bool aborted_ = false;
  std::mutex ending_mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread watcher_;
};

// Throws the error that `result`, an ncclResult_t, stands for; returns on success. `call` was made
// in the group of that name.
void check_nccl(int result, ncclComm* comm, const std::string& group, const char* call);

}  // namespace lockstep
