// NcclGroups: the groups of NCCL that one rank is in, the memory that they send from and receive
// into, and a thread that watches them for errors that NCCL finds later.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/comms.h"

struct ncclComm;  // NCCL's own handle types
struct ncclWindow_vidmem;

namespace lockstep {

class NcclGroups {
 public:
  using OnError = std::function<void(const std::string& why)>;

  NcclGroups(Device device, OnError on_error);
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;
  ~NcclGroups();

  // A group, of which `comm`, a blocking communicator, is this one's from now on. All its ranks add
  // it at once.
  std::unique_ptr<Communicator> add(const GroupConfig& config, ncclComm* comm, int rank);

  // See World::allocate().
  std::shared_ptr<std::byte> allocate(std::int64_t bytes);

  // What GPUs wait for in them ends. A call that hangs is not waited for.
  void abort() noexcept;
  // All ranks: what they were given is done first.
  void destroy() noexcept;

 private:
  friend class NcclCommunicator;
  struct Group {
    std::string name;
    ncclComm* comm;
  };
  struct Block {
    std::byte* base;
    std::int64_t bytes;
    std::vector<std::pair<ncclComm*, ncclWindow_vidmem*>> windows;
  };

  template <class Act>
  void call(const Group& group, const char* name, Act&& act);
  void release(std::byte* base) noexcept;
  void watch();
  std::optional<std::string> found();

  Device device_;
  OnError on_error_;
  std::timed_mutex calls_;  // of the next three; one call at a time: none is on its way in an abort
  std::deque<Group> groups_;
  std::vector<Block> blocks_;
  bool aborted_ = false;
  std::mutex ending_mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread watcher_;
};

// Throws what a result of NCCL's, an ncclResult_t, means: `call` made in a group of that name;
// nothing where it was a success.
void check_nccl(int result, ncclComm* comm, const std::string& group, const char* call);

}  // namespace lockstep
