// Files simulates file systems: /sim/shared, which all hosts see, and /sim/host-N, the disk of host
// N. files.cpp defines the calls of the C library for paths and files; those of other paths go to
// the C library. A call of a fiber takes virtual time. Its process may be stopped, killed or lose
// power before or during the call. A call that is under way may take effect later, as on a remote
// file system.
//
// A change is safe from a power loss once it is synced: bytes by fsync of the file, names by fsync
// of the directory. Any part of the other changes may be lost.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/fiber.h"

namespace lockstep::sim {

class Files {
 public:
  static constexpr const char* kShared = "/sim/shared";
  static std::string disk_of(int host) { return str("/sim/host-", host); }

  // At most one object exists at a time.
  Files(Kernel& kernel, Fibers& fibers, int hosts);
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files();

  enum class Call : std::uint8_t {
    open,
    create,
    make_directory,
    write,
    sync,
    rename,
    remove,
    look
  };
  struct Operation {
    Call call;
    std::string path, to = {};  // `to`: of a rename
    Micros issued = 0;          // when the process began it
  };

  // Called before each operation of a process. It may pause or kill the process. Returns an errno
  // to fail with, or 0.
  std::function<int(Process& process, const Operation& operation)> before =
      [](Process&, const Operation&) { return 0; };
  // Called when a rename was carried out.
  std::function<void(Process& process, const Operation& operation)> renamed =
      [](Process&, const Operation&) {};
  // For mutations: operations that return success and do nothing.
  std::function<bool(const Operation& operation)> skips = [](const Operation&) { return false; };

  // Time of an operation on the shared file system: [low, high].
  void set_latency(Micros low, Micros high) {
    low_ = low;
    high_ = high;
  }
  // The next operation of the process takes effect after this time.
  void delay_next(Process& process, Micros time) { delays_[process.number] = time; }
  void hang(Micros until) { hangs_until_ = until; }  // the shared file system does not respond
  void fill(bool full) { full_ = full; }             // ENOSPC on the shared file system

  void lose_power(int host);  // it loses its unsynced changes, on both file systems
  void lose_shared_power();   // the same for the shared file system
  void lose_disk(int host);   // its disk is replaced by an empty one

  struct Node;
  class Disk;
  struct Open;

  // For files.cpp.
  static Files* instance();
  struct Place {
    Disk* disk = nullptr;
    int parent = -1, node = -1;  // -1: does not exist
    std::string name{};
  };
  Place find(const std::string& path);
  std::string whole(int directory, const char* path);
  bool has(int descriptor) const { return descriptor >= kFirst; }
  Open* at(int descriptor);
  int add(Open open);
  void remove(int descriptor);
  int descriptor_of(const void* open) const;  // -1: none
  unsigned int draw() { return static_cast<unsigned int>(kernel_.random.next()); }
  // Called before an operation; may stop or kill the process. Returns the result of an operation
  // that is not carried out. For others, carry_out() calls act(), which returns the result or -1
  // and errno. act() may run later, after the process has ended.
  std::optional<int> begin(const Operation& operation, bool is_shared);
  int carry_out(Operation operation, bool is_shared, std::function<int()> act);
  // Before reading: waits, and returns an errno or 0.
  int look(const Operation& operation, bool is_shared);

 private:
  static constexpr int kFirst = 1 << 28;
  Micros latency(bool is_shared);

  Kernel& kernel_;
  Fibers& fibers_;
  std::map<std::string, std::unique_ptr<Disk>> disks_;  // by path
  std::vector<std::unique_ptr<Open>> opened_;
  Micros low_ = 200, high_ = 2'000, hangs_until_ = 0;
  bool full_ = false;
  std::map<int, Micros> delays_;
};

}  // namespace lockstep::sim
