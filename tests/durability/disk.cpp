#include "tests/durability/disk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Action = Disk::Action;

std::atomic<Disk*> watching = nullptr;

thread_local std::size_t calls_of_thread = 0, deadly_call = SIZE_MAX;
thread_local Disk::Death death = Disk::Death::before;
std::atomic<Disk::Rename> rename_kind = Disk::Rename::correct;
thread_local std::size_t interrupted_call = SIZE_MAX;
thread_local std::function<void()> interruption;
std::size_t calls_of_process = 0, deadly_call_of_process = SIZE_MAX;  // guarded by the disk's mutex
Disk::Death death_of_process = Disk::Death::before;
thread_local std::size_t most_bytes = SIZE_MAX;  // the limit of a write

// Tree holds the names and bytes of a directory tree, as a process sees them and as the disk must
// keep them.
class Tree {
 public:
  void apply(const Disk::Call& call) {
    const auto node = find(call.path);
    switch (call.action) {
      case Action::create: add(call.path, false); break;
      case Action::make_directory: add(call.path, true); break;
      case Action::write: write(nodes_.at(node), call); break;
      case Action::truncate:
        change(nodes_.at(node), {nullptr, static_cast<std::size_t>(call.offset)});
        break;
      case Action::sync: sync(nodes_.at(node)); break;
      case Action::failed_sync: nodes_.at(node).unsyncable = true; break;
      case Action::remove:
        nodes_.at(node).removed = true;
        rename(parent_of(call.path), {.from = last(call.path)});
        break;
      case Action::rename:
        if (fs::path(call.path).parent_path() == fs::path(call.to).parent_path()) {
          rename(parent_of(call.to), {last(call.path), last(call.to), node});
        } else {
          rename(parent_of(call.to), {.to = last(call.to), .node = node});
          rename(parent_of(call.path), {.from = last(call.path)});
        }
        break;
      default: break;
    }
  }

  // The kept part of unsynced data becomes synced.
  void keep_some(std::mt19937_64& random) {
    // The share may be all, nothing, or between.
    const double share = std::uniform_real_distribution(-0.3, 1.3)(random);
    const auto kept = [&] { return std::uniform_real_distribution()(random) < share; };
    for (auto& node : nodes_) {
      for (const auto& change : node.unsynced_names)
        if (kept()) change.apply(node.synced_names);
      for (const auto& change : node.unsynced) {
        if (kept())
          change.apply(node.synced_bytes);
        else if (random() % 2 == 0)
          change.tear(node.synced_bytes, random() % 2 == 0 ? 512 : 4096, random() % 2 == 0, kept);
      }
    }
  }

  void add_rest(Disk::Loss loss, const std::string& path, Disk::Rest& rest,
                std::size_t node = 0) const {
    const Node& n = nodes_.at(node);
    if (!n.is_directory) {
      rest[path] = loss == Disk::Loss::nothing ? n.bytes : n.synced_bytes;
      return;
    }
    rest[path] = std::nullopt;
    const bool synced = loss == Disk::Loss::all || loss == Disk::Loss::order;
    for (const auto& [name, child] : synced ? n.synced_names : n.names)
      if (loss != Disk::Loss::order || !nodes_.at(child).removed)
        add_rest(loss, str(path, "/", name), rest, child);
  }

 private:
  struct NameChange {
    std::string from = {}, to = {};  // "": none
    std::size_t node = 0;            // gets the name `to`

    void apply(std::map<std::string, std::size_t>& names) const {
      if (!to.empty()) names[to] = node;
      names.erase(from);
    }
  };
  struct Change {                // of a file's bytes
    const std::string* written;  // nullptr: truncated
    std::size_t at;              // the offset, or the new size

    void apply(std::string& file) const {
      if (written == nullptr)
        file.resize(at);
      else
        put(file, at, *written);
    }
    // Only some blocks of the disk are written.
    template <class Kept>
    void tear(std::string& file, std::size_t block, bool zeros, const Kept& kept) const {
      if (written == nullptr) return;
      const auto end = at + written->size();
      for (auto begin = at; begin < end;) {
        const auto next = std::min(end, (begin / block + 1) * block);
        if (kept())
          put(file, begin, std::string_view(*written).substr(begin - at, next - begin));
        else if (zeros)
          put(file, begin, std::string(next - begin, '\0'));
        begin = next;
      }
    }
    static void put(std::string& file, std::size_t at, std::string_view bytes) {
      file.resize(std::max(file.size(), at + bytes.size()));
      file.replace(at, bytes.size(), bytes);
    }
  };
  struct Node {
    bool is_directory = false;
    bool removed = false;
    bool unsyncable = false;  // its sync failed: the kernel reports lost bytes as written
    std::string bytes = {}, synced_bytes = {};
    std::map<std::string, std::size_t> names = {}, synced_names = {};
    std::vector<Change> unsynced = {};
    std::vector<NameChange> unsynced_names = {};
  };

  static std::string last(const fs::path& path) { return path.filename().string(); }
  static constexpr std::size_t kAbsent = SIZE_MAX;

  std::size_t find(const fs::path& path) const {
    std::size_t node = 0;
    for (const auto& name : path) {
      if (name == ".") continue;
      const auto& names = nodes_.at(node).names;
      const auto found = names.find(name.string());
      if (found == names.end()) return kAbsent;
      node = found->second;
    }
    return node;
  }
  Node& parent_of(const fs::path& path) { return nodes_.at(find(path.parent_path())); }
  static void rename(Node& directory, NameChange change) {
    change.apply(directory.names);
    directory.unsynced_names.push_back(std::move(change));
  }
  void add(const fs::path& path, bool is_directory) {
    rename(parent_of(path), {.to = last(path), .node = nodes_.size()});
    nodes_.push_back({.is_directory = is_directory});
  }
  static void change(Node& node, const Change& change) {
    change.apply(node.bytes);
    node.unsynced.push_back(change);
  }
  static void write(Node& node, const Disk::Call& call) {
    const auto at = call.offset < 0 ? node.bytes.size() : static_cast<std::size_t>(call.offset);
    change(node, {&call.bytes, at});
  }
  static void sync(Node& node) {
    if (!node.unsyncable) {
      node.synced_bytes = node.bytes;
      node.unsynced.clear();
    }
    node.synced_names = node.names;
    node.unsynced_names.clear();
  }

  std::vector<Node> nodes_ = {{.is_directory = true}};
};

// The function of the C library that a definition here hides.
template <class F>
F* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  LOCKSTEP_CHECK(found != nullptr, "there is no ", name);
  return reinterpret_cast<F*>(found);
}

std::string path_of(int descriptor) {
  std::string path(4096, '\0');
  const auto link = str("/proc/self/fd/", descriptor);
  const auto size = readlink(link.c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return path;
}

// Runs act(). If the call is about a file of the watched disk, the disk records it.
template <class Act>
auto observed(const fs::path& path, Disk::Call call, const Act& act) {
  Disk* disk = watching;
  if (disk == nullptr) return act();
  call.path = disk->relative(path);
  return call.path.empty() ? act() : disk->run(std::move(call), act);
}
template <class Act>
auto observed(int descriptor, Disk::Call call, const Act& act) {
  return watching == nullptr ? act() : observed(path_of(descriptor), std::move(call), act);
}

}  // namespace

Disk::Disk(const fs::path& root) : root_(fs::canonical(root)) {
  LOCKSTEP_CHECK(watching == nullptr, "one disk is watched at a time");
  watching = this;
}

Disk::~Disk() {
  watching = nullptr;
  interruption = nullptr;
}

void Disk::fail(std::size_t call, int error, bool stays) {
  failing_ = call;
  error_ = error;
  stays_ = stays;
}

void Disk::mend() {
  failing_ = SIZE_MAX;
}

void Disk::kill_at(std::size_t call, Death how) {
  deadly_call = call;
  death = how;
}

void Disk::kill_process_at(std::size_t call, Death how) {
  calls_of_process = 0;
  deadly_call_of_process = call;
  death_of_process = how;
}

void Disk::interrupt_at(std::size_t call, std::function<void()> act) {
  interrupted_call = calls_of_thread + call;
  interruption = std::move(act);
}

void Disk::set_rename(Rename rename) {
  rename_kind = rename;
}

std::size_t Disk::calls_of_this_thread() {
  return calls_of_thread;
}

Disk::Rest Disk::rest(std::size_t calls, Loss loss) const {
  Tree tree;
  for (std::size_t i = 0; i < calls; ++i)
    tree.apply(calls_.at(i));
  Rest rest;
  tree.add_rest(loss, "", rest);
  return rest;
}

Disk::Rest Disk::rest(std::size_t calls, std::mt19937_64& random) const {
  Tree tree;
  for (std::size_t i = 0; i < calls; ++i)
    tree.apply(calls_.at(i));
  tree.keep_some(random);
  Rest rest;
  tree.add_rest(Loss::all, "", rest);
  return rest;
}

void write_rest(const Disk::Rest& rest, const fs::path& into) {
  fs::remove_all(into);
  for (const auto& [path, bytes] : rest) {
    if (bytes)
      std::ofstream(into.string() + path, std::ios::binary)
          .write(bytes->data(), std::ssize(*bytes));
    else
      fs::create_directory(into.string() + path);
  }
}

std::string Disk::relative(const fs::path& path) const {
  const auto relative = fs::absolute(path).lexically_normal().lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") return "";
  return relative.has_filename() ? relative.string() : relative.parent_path().string();
}

// Calls run one after the other, so that they are in the order of the list.
template <class Act>
auto Disk::run(Call call, const Act& act) {
  if (interruption && calls_of_thread == interrupted_call) std::exchange(interruption, nullptr)();
  const std::lock_guard lock(mutex_);
  const auto act_on_half = [&] {
    most_bytes = (call.bytes.size() + 1) / 2;
    const auto done = act();
    most_bytes = SIZE_MAX;
    return done;
  };
  const bool thread_dies = calls_of_thread++ == deadly_call;
  if (calls_of_process++ == deadly_call_of_process || thread_dies) {
    if ((thread_dies ? death : death_of_process) == Death::within) act_on_half();
    raise(SIGKILL);
  }
  const bool fails = stays_ ? calls_.size() >= failing_ : calls_.size() == failing_;
  decltype(act()) result = -1;
  if (fails && error_ == kShortWrite) {
    result = act_on_half();
  } else if (fails) {
    if (call.action == Action::close) act();  // a failed close also releases the descriptor
    call.action = call.action == Action::sync ? Action::failed_sync : Action::failed;
    errno = error_;
  } else {
    result = act();
  }
  const int error = errno;
  if (result < 0 && call.action != Action::failed_sync) call.action = Action::failed;
  if (call.action == Action::write) call.bytes.resize(static_cast<std::size_t>(result));
  if (call.action == Action::read) call.count = static_cast<std::int64_t>(result);
  calls_.push_back(std::move(call));
  errno = error;
  return result;
}

}  // namespace lockstep::testing

using lockstep::testing::Disk;
using lockstep::testing::most_bytes;
using lockstep::testing::next;
using lockstep::testing::observed;
using lockstep::testing::path_of;
using Action = lockstep::testing::Disk::Action;

// An error of the record ends the process.
// NOLINTBEGIN(bugprone-exception-escape)
extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const bool creates = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
  const bool empties = !creates && (flags & O_TRUNC) != 0;
  const auto action = creates ? Action::create : empties ? Action::truncate : Action::open;
  return observed(path, {action, ""}, [&] { return real(path, flags, mode); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  return observed(path, {Action::make_directory, ""}, [&] { return real(path, mode); });
}

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  // A write without an offset appends to its file.
  Disk::Call call{Action::write, "", "", -1, {static_cast<const char*>(bytes), count}};
  return observed(file, std::move(call),
                  [&] { return real(file, bytes, std::min(count, most_bytes)); });
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  Disk::Call call{Action::write, "", "", offset, {static_cast<const char*>(bytes), count}};
  return observed(file, std::move(call),
                  [&] { return real(file, bytes, std::min(count, most_bytes), offset); });
}

ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  static const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return observed(file, {Action::read, ""}, [&] { return real(file, bytes, count, offset); });
}

int posix_fadvise(int file, off_t offset, off_t count, int advice) noexcept {
  static const auto real = next<int(int, off_t, off_t, int)>("posix_fadvise");
  return observed(file, {Action::drop_cache, ""},
                  [&] { return real(file, offset, count, advice); });
}

int ftruncate(int file, off_t size) noexcept {
  static const auto real = next<int(int, off_t)>("ftruncate");
  return observed(file, {Action::truncate, "", "", size}, [&] { return real(file, size); });
}

int fsync(int file) {
  static const auto real = next<int(int)>("fsync");
  // The real disk is not synced, because tests read only the list.
  return lockstep::testing::watching == nullptr
             ? real(file)
             : observed(file, {Action::sync, ""}, [&] { return 0; });
}

int fdatasync(int file) {
  static const auto real = next<int(int)>("fdatasync");
  return lockstep::testing::watching == nullptr
             ? real(file)
             : observed(file, {Action::sync, ""}, [&] { return 0; });
}

int close(int file) {
  static const auto real = next<int(int)>("close");
  return observed(file, {Action::close, ""}, [&] { return real(file); });
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  const auto kind = lockstep::testing::rename_kind.load();
  std::error_code ignored;
  if (kind == Disk::Rename::overwrites && std::filesystem::is_directory(to, ignored))
    std::filesystem::remove_all(to, ignored);
  if (kind == Disk::Rename::removes_first && unlink(to) == 0) usleep(3000);
  Disk* disk = lockstep::testing::watching;
  Disk::Call call{Action::rename, "", disk == nullptr ? "" : disk->relative(to)};
  return observed(from, std::move(call), [&] { return real(from, to); });
}

int remove(const char* path) noexcept {
  static const auto real = next<int(const char*)>("remove");
  return observed(path, {Action::remove, ""}, [&] { return real(path); });
}

int unlink(const char* path) noexcept {
  static const auto real = next<int(const char*)>("unlink");
  return observed(path, {Action::remove, ""}, [&] { return real(path); });
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  static const auto real = next<int(int, const char*, int)>("unlinkat");
  const auto whole = directory == AT_FDCWD ? std::filesystem::path(path)
                                           : std::filesystem::path(path_of(directory)) / path;
  return observed(whole, {Action::remove, ""}, [&] { return real(directory, path, flags); });
}

}  // extern "C"
// NOLINTEND(bugprone-exception-escape)
