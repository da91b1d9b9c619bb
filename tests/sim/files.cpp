#include "tests/sim/files.h"

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/rename_probe.h"

namespace lockstep::sim {
namespace {

Files* files = nullptr;
constexpr std::string_view kPrefix = "/sim/";

int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

struct Files::Node {
  struct Name {                      // a change of a directory
    std::string from = {}, to = {};  // "": none
    int node = 0;
    int move = 0;  // number of a rename between two directories; 0: none
    void apply(std::map<std::string, int>& names) const {
      if (!from.empty()) names.erase(from);
      if (!to.empty()) names[to] = node;
    }
  };
  struct Bytes {  // a change of a file
    int host = 0;
    std::int64_t at = 0;
    std::string bytes{};
    bool truncates = false;
    void apply(std::string& file) const {
      const auto begin = static_cast<std::size_t>(at);
      if (truncates) return file.resize(begin);
      file.resize(std::max(file.size(), begin + bytes.size()));
      file.replace(begin, bytes.size(), bytes);
    }
  };
  bool is_directory = false, removed = false;
  std::string bytes{}, synced_bytes{};
  std::map<std::string, int> names{}, synced_names{};
  std::vector<Bytes> unsynced{};
  std::vector<Name> unsynced_names{};
};

class Files::Disk {
 public:
  Disk(std::string path, bool shared) : root(std::move(path)), is_shared(shared) { clear(); }

  void clear() {
    nodes.clear();
    nodes.push_back({.is_directory = true});
  }
  Node& at(int node) { return nodes[static_cast<std::size_t>(node)]; }
  int child(int directory, const std::string& name) {
    const auto& names = at(directory).names;
    const auto found = names.find(name);
    return found == names.end() ? -1 : found->second;
  }
  void name(int directory, const Node::Name& change) {
    change.apply(at(directory).names);
    at(directory).unsynced_names.push_back(change);
  }
  int add(int directory, const std::string& its_name, bool is_directory) {
    const int node = static_cast<int>(nodes.size());
    nodes.push_back({.is_directory = is_directory});
    name(directory, {.to = its_name, .node = node});
    return node;
  }
  void sync(int node) {
    auto& n = at(node);
    for (const auto& change : n.unsynced_names)
      if (!change.to.empty()) moved.insert(change.move);
    n.synced_bytes = n.bytes;
    n.synced_names = n.names;
    n.unsynced.clear();
    // A rename to another directory is durable only after a sync of that one.
    std::erase_if(n.unsynced_names, [&](const auto& change) {
      if (change.move == 0 || moved.contains(change.move)) return true;
      n.synced_names[change.from] = change.node;
      return false;
    });
  }
  // host: -1: all unsynced changes may be lost; else the bytes that this host wrote.
  void lose(Random& random, int host) {
    const double share = 1.4 * random.share() - 0.2;
    // A rename between two directories is kept or lost as a whole.
    std::map<int, bool> kept;
    const auto is_kept = [&](const Node::Name& change) {
      if (change.move == 0) return random.share() < share;
      if (moved.contains(change.move)) return true;
      return kept.try_emplace(change.move, random.share() < share).first->second;
    };
    for (auto& n : nodes) {
      if (host < 0) {
        for (const auto& change : n.unsynced_names)
          if (is_kept(change)) change.apply(n.synced_names);
        n.names = n.synced_names;
        n.unsynced_names.clear();
        n.removed = false;
      }
      if (n.unsynced.empty()) continue;
      for (auto change : n.unsynced) {
        const bool stays = (host >= 0 && change.host != host) || random.share() < share;
        if (!stays && random.chance(0.5)) change.bytes.resize(change.bytes.size() / 2);
        if (stays || !change.bytes.empty()) change.apply(n.synced_bytes);
      }
      n.bytes = n.synced_bytes;
      n.unsynced.clear();
    }
  }

  std::string root;
  bool is_shared;
  std::vector<Node> nodes;
  int moves = 0;        // renames between two directories
  std::set<int> moved;  // those that a sync of the second directory made durable
};

struct Files::Open {
  Disk* disk = nullptr;
  int node = 0;
  std::string path{};
  int flags = 0;
  // While a directory is listed:
  bool is_listed = false;
  std::vector<std::pair<std::string, bool>> entries{};  // name, is a directory
  std::size_t next = 0;
  dirent entry{};
};

Files::Files(Kernel& kernel, Fibers& fibers, int hosts) : kernel_(kernel), fibers_(fibers) {
  LOCKSTEP_CHECK(files == nullptr, "one simulation of files at a time");
  disks_[kShared] = std::make_unique<Disk>(kShared, true);
  for (int host = 0; host < hosts; ++host)
    disks_[disk_of(host)] = std::make_unique<Disk>(disk_of(host), false);
  files = this;
}

Files::~Files() {
  files = nullptr;
}

Files* Files::instance() {
  return files;
}

Files::Place Files::find(const std::string& path) {
  const auto end = path.find('/', kPrefix.size());
  const auto found = disks_.find(path.substr(0, end));
  if (found == disks_.end()) return {};
  Place place{.disk = found->second.get(), .parent = 0, .node = 0};
  for (auto begin = end; begin < path.size();) {
    const auto next = std::min(path.find('/', begin + 1), path.size());
    auto name = path.substr(begin + 1, next - begin - 1);
    begin = next;
    if (name.empty() || name == ".") continue;
    place.parent = place.node;
    place.name = std::move(name);
    const bool is_within = place.parent >= 0 && place.disk->at(place.parent).is_directory;
    place.node = is_within ? place.disk->child(place.parent, place.name) : -1;
    if (!is_within) place.parent = -1;
  }
  return place;
}

std::string Files::whole(int directory, const char* path) {
  if (path[0] == '/' || !has(directory)) return path;
  return at(directory)->path + "/" + path;
}

Files::Open* Files::at(int descriptor) {
  return opened_.at(static_cast<std::size_t>(descriptor - kFirst)).get();
}
int Files::add(Open open) {
  const auto free = std::find(opened_.begin(), opened_.end(), nullptr);
  const auto number = free - opened_.begin();
  auto made = std::make_unique<Open>(std::move(open));
  if (free == opened_.end())
    opened_.push_back(std::move(made));
  else
    *free = std::move(made);
  return kFirst + static_cast<int>(number);
}
void Files::remove(int descriptor) {
  opened_.at(static_cast<std::size_t>(descriptor - kFirst)).reset();
}

Micros Files::latency(bool is_shared) {
  const auto usual =
      is_shared ? kernel_.random.between(low_, high_) : kernel_.random.between(5, 50);
  return is_shared ? std::max(usual, hangs_until_ - kernel_.now()) : usual;
}

int Files::look(const Operation& operation, bool is_shared) {
  auto* process = Fibers::current();
  if (process == nullptr) return 0;
  if (!process->dead) {
    ++process->operations;
    if (const int error = before(*process, operation)) return error;
    fibers_.sleep(latency(is_shared));
  }
  return process->dead ? EIO : 0;
}

std::optional<int> Files::begin(const Operation& operation, bool is_shared) {
  auto* process = Fibers::current();
  if (process == nullptr) return std::nullopt;
  if (process->dead) return fail(EIO);
  ++process->operations;
  kernel_.note(mix64(static_cast<std::uint64_t>(process->number) << 8 |
                     static_cast<std::uint64_t>(operation.call)) +
               std::hash<std::string>()(operation.path));
  kernel_.trace("process ", process->number, " (host ", process->host, ") ",
                std::array{"opens", "creates", "makes", "writes", "syncs", "renames", "removes",
                           "looks at"}[static_cast<std::size_t>(operation.call)],
                " ", operation.path, operation.to.empty() ? "" : " to ", operation.to);
  if (const int error = before(*process, operation)) return fail(error);
  if (process->paused) fibers_.sleep(0);  // until it continues
  if (process->dead) return fail(EIO);
  if (skips(operation)) return 0;
  const bool takes_room = operation.call == Call::create ||
                          operation.call == Call::make_directory || operation.call == Call::write;
  if (is_shared && full_ && takes_room) return fail(ENOSPC);
  return std::nullopt;
}

int Files::carry_out(Operation operation, bool is_shared, std::function<int()> act) {
  auto* process = Fibers::current();
  if (process == nullptr) return act();
  operation.issued = kernel_.now();
  if (operation.call == Call::write) return act();  // into the memory of the host
  struct Result {
    int value = -1, error = EIO;
  };
  auto result = std::make_shared<Result>();
  const auto late = delays_.extract(process->number);
  const auto time = latency(is_shared);
  const auto under_way = late.empty() ? time / 2 : late.mapped();
  kernel_.after(under_way, [this, process, operation, is_shared, result, act = std::move(act),
                            ticket = fibers_.ticket(), rest = time - time / 2] {
    // Calls of a killed process may still arrive at a remote file system.
    if (process->dead && (!is_shared || kernel_.random.chance(0.5))) return;
    errno = 0;
    result->value = act();
    result->error = errno;
    if (operation.call == Call::rename && result->value == 0) renamed(*process, operation);
    kernel_.after(rest, [this, ticket] { fibers_.wake(ticket); });
  });
  fibers_.block();
  if (process->dead) return fail(EIO);
  errno = result->error;
  return result->value;
}

void Files::lose_power(int host) {
  disks_.at(disk_of(host))->lose(kernel_.random, -1);
  disks_.at(kShared)->lose(kernel_.random, host);
}
void Files::lose_shared_power() {
  disks_.at(kShared)->lose(kernel_.random, -1);
}
void Files::lose_disk(int host) {
  disks_.at(disk_of(host))->clear();
}

namespace {

using Call = Files::Call;

template <class F>
F* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  LOCKSTEP_CHECK(found != nullptr, "there is no ", name);
  return reinterpret_cast<F*>(found);
}

bool is_simulated(const char* path) {
  return files != nullptr && std::string_view(path).starts_with(kPrefix);
}
bool is_simulated(int descriptor) {
  return files != nullptr && files->has(descriptor);
}

int open_simulated(const std::string& path, int flags) {
  auto place = files->find(path);
  if (place.disk == nullptr) return fail(ENOENT);
  const bool writes = (flags & O_CREAT) != 0;
  if (!writes) {
    if (const int error = files->look({Call::open, path}, place.disk->is_shared))
      return fail(error);
    place = files->find(path);
    if (place.node < 0) return fail(ENOENT);
    const bool is_directory = place.disk->at(place.node).is_directory;
    if ((flags & O_DIRECTORY) != 0 && !is_directory) return fail(ENOTDIR);
    return files->add({.disk = place.disk, .node = place.node, .path = path, .flags = flags});
  }
  const Files::Operation operation{Call::create, path};
  if (const auto done = files->begin(operation, place.disk->is_shared))
    return *done < 0 ? -1 : fail(EIO);
  place = files->find(path);
  if (place.parent < 0) return fail(ENOENT);
  const auto create = [place, path, flags, host = Fibers::current() ? Fibers::current()->host : 0] {
    auto& disk = *place.disk;
    if (disk.at(place.parent).removed) return fail(ENOENT);
    int node = disk.child(place.parent, place.name);
    if (node >= 0 && disk.at(node).is_directory) return fail(EISDIR);
    if (node < 0) {
      node = disk.add(place.parent, place.name, false);
    } else if ((flags & O_TRUNC) != 0) {
      Files::Node::Bytes change{.host = host, .truncates = true};
      change.apply(disk.at(node).bytes);
      disk.at(node).unsynced.push_back(std::move(change));
    }
    return node;
  };
  const int node = files->carry_out(operation, place.disk->is_shared, create);
  if (node < 0) return -1;
  return files->add({.disk = place.disk, .node = node, .path = path, .flags = flags});
}

int make_simulated(const std::string& path) {
  auto place = files->find(path);
  if (place.disk == nullptr) return fail(ENOENT);
  const Files::Operation operation{Call::make_directory, path};
  if (const auto done = files->begin(operation, place.disk->is_shared)) return *done;
  place = files->find(path);
  if (place.parent < 0) return fail(ENOENT);
  return files->carry_out(operation, place.disk->is_shared, [place] {
    auto& disk = *place.disk;
    if (disk.at(place.parent).removed) return fail(ENOENT);
    if (place.node == 0 || disk.child(place.parent, place.name) >= 0) return fail(EEXIST);
    disk.add(place.parent, place.name, true);
    return 0;
  });
}

// The directories are found when the process calls, and the names when the rename arrives.
int rename_simulated(const std::string& from, const std::string& to) {
  const auto* disk_of_both = files->find(from).disk;
  if (disk_of_both == nullptr) return fail(ENOENT);
  const Files::Operation operation{Call::rename, from, to};
  if (const auto done = files->begin(operation, disk_of_both->is_shared)) return *done;
  const auto a = files->find(from), b = files->find(to);
  if (a.parent < 0 || b.parent < 0) return fail(ENOENT);
  if (a.disk != b.disk) return fail(EXDEV);
  return files->carry_out(operation, a.disk->is_shared, [a, b] {
    auto& disk = *a.disk;
    const int node = disk.child(a.parent, a.name), target = disk.child(b.parent, b.name);
    if (node < 0 || disk.at(a.parent).removed || disk.at(b.parent).removed) return fail(ENOENT);
    if (target >= 0) {
      if (disk.at(node).is_directory != disk.at(target).is_directory)
        return fail(disk.at(node).is_directory ? ENOTDIR : EISDIR);
      if (!disk.at(target).names.empty()) return fail(ENOTEMPTY);
      disk.at(target).removed = true;
    }
    if (a.parent == b.parent) {
      disk.name(a.parent, {.from = a.name, .to = b.name, .node = node});
    } else {
      const int move = ++disk.moves;
      disk.name(b.parent, {.to = b.name, .node = node, .move = move});
      disk.name(a.parent, {.from = a.name, .node = node, .move = move});
    }
    return 0;
  });
}

int remove_simulated(const std::string& path, bool is_directory, bool is_file) {
  auto place = files->find(path);
  if (place.disk == nullptr) return fail(ENOENT);
  const Files::Operation operation{Call::remove, path};
  if (const auto done = files->begin(operation, place.disk->is_shared)) return *done;
  place = files->find(path);
  if (place.parent < 0) return fail(ENOENT);
  return files->carry_out(operation, place.disk->is_shared, [place, is_directory, is_file] {
    auto& disk = *place.disk;
    const int node = disk.child(place.parent, place.name);
    if (node < 0) return fail(ENOENT);
    auto& n = disk.at(node);
    if (n.is_directory && !is_directory) return fail(EISDIR);
    if (!n.is_directory && !is_file) return fail(ENOTDIR);
    if (!n.names.empty()) return fail(ENOTEMPTY);
    n.removed = true;
    disk.name(place.parent, {.from = place.name});
    return 0;
  });
}

int stat_node(Files::Disk& disk, int node, struct stat* out) {
  const auto& n = disk.at(node);
  *out = {};
  out->st_mode = n.is_directory ? S_IFDIR | 0755u : S_IFREG | 0644u;
  out->st_size = static_cast<off_t>(n.bytes.size());
  out->st_ino = static_cast<ino_t>(node + 1);
  out->st_nlink = 1;
  return 0;
}

int stat_simulated(const std::string& path, struct stat* out) {
  auto place = files->find(path);
  if (place.disk == nullptr) return fail(ENOENT);
  if (const int error = files->look({Call::look, path}, place.disk->is_shared)) return fail(error);
  place = files->find(path);
  return place.node < 0 ? fail(ENOENT) : stat_node(*place.disk, place.node, out);
}

ssize_t write_simulated(int file, const void* bytes, std::size_t count, std::int64_t at) {
  auto* open = files->at(file);
  Files::Node::Bytes change{.host = Fibers::current() ? Fibers::current()->host : 0,
                            .at = at,
                            .bytes = {static_cast<const char*>(bytes), count}};
  const Files::Operation operation{Call::write, open->path};
  if (const auto done = files->begin(operation, open->disk->is_shared))
    return *done < 0 ? -1 : static_cast<ssize_t>(count);
  files->carry_out(operation, open->disk->is_shared,
                   [disk = open->disk, node = open->node, change = std::move(change)] {
                     auto& n = disk->at(node);
                     change.apply(n.bytes);
                     n.unsynced.push_back(change);
                     return 0;
                   });
  return static_cast<ssize_t>(count);
}

int sync_simulated(int file) {
  auto* open = files->at(file);
  const Files::Operation operation{Call::sync, open->path};
  if (const auto done = files->begin(operation, open->disk->is_shared)) return *done;
  return files->carry_out(operation, open->disk->is_shared, [disk = open->disk, node = open->node] {
    disk->sync(node);
    return 0;
  });
}

void list(Files::Open& open) {
  open.is_listed = true;
  for (const auto& [name, node] : open.disk->at(open.node).names)
    open.entries.emplace_back(name, open.disk->at(node).is_directory);
}

// A DIR of ours is the address of its Open. They are told apart by a search, as there are few.
int descriptor_of(const DIR* directory) {
  return files == nullptr ? -1 : files->descriptor_of(directory);
}

}  // namespace

}  // namespace lockstep::sim

// The file system renames as epochs need, and the check would start threads.
void lockstep::check_renames(const std::filesystem::path& /*place*/,
                             const std::filesystem::path& /*shown*/) {}

namespace lockstep::sim {

int Files::descriptor_of(const void* open) const {
  for (std::size_t i = 0; i < opened_.size(); ++i)
    if (opened_[i].get() == open) return kFirst + static_cast<int>(i);
  return -1;
}

}  // namespace lockstep::sim

using namespace lockstep::sim;  // NOLINT(google-build-using-namespace)
using lockstep::str;

// An error of the simulation ends the process.
// NOLINTBEGIN(bugprone-exception-escape)
extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return is_simulated(path) ? open_simulated(path, flags) : real(path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return is_simulated(path) || is_simulated(directory)
             ? open_simulated(files->whole(directory, path), flags)
             : real(directory, path, flags, mode);
}

int close(int file) {
  static const auto real = next<int(int)>("close");
  if (!is_simulated(file)) return real(file);
  files->remove(file);
  return 0;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  return is_simulated(path) ? make_simulated(path) : real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  return is_simulated(from) ? rename_simulated(from, to) : real(from, to);
}

int remove(const char* path) noexcept {
  static const auto real = next<int(const char*)>("remove");
  return is_simulated(path) ? remove_simulated(path, true, true) : real(path);
}

int unlink(const char* path) noexcept {
  static const auto real = next<int(const char*)>("unlink");
  return is_simulated(path) ? remove_simulated(path, false, true) : real(path);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  static const auto real = next<int(int, const char*, int)>("unlinkat");
  if (!is_simulated(path) && !is_simulated(directory)) return real(directory, path, flags);
  const bool is_directory = (flags & AT_REMOVEDIR) != 0;
  return remove_simulated(files->whole(directory, path), is_directory, !is_directory);
}

int stat(const char* path, struct stat* out) noexcept {
  static const auto real = next<int(const char*, struct stat*)>("stat");
  return is_simulated(path) ? stat_simulated(path, out) : real(path, out);
}

int lstat(const char* path, struct stat* out) noexcept {
  static const auto real = next<int(const char*, struct stat*)>("lstat");
  return is_simulated(path) ? stat_simulated(path, out) : real(path, out);
}

int fstat(int file, struct stat* out) noexcept {
  static const auto real = next<int(int, struct stat*)>("fstat");
  if (!is_simulated(file)) return real(file, out);
  return stat_node(*files->at(file)->disk, files->at(file)->node, out);
}

ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  static const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  if (!is_simulated(file)) return real(file, bytes, count, offset);
  if (const auto* process = Fibers::current(); process != nullptr && process->dead)
    return fail(EIO);
  const auto& all = files->at(file)->disk->at(files->at(file)->node).bytes;
  const auto begin = std::min(static_cast<std::size_t>(offset), all.size());
  const auto done = std::min(count, all.size() - begin);
  std::memcpy(bytes, all.data() + begin, done);
  return static_cast<ssize_t>(done);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return is_simulated(file) ? write_simulated(file, bytes, count, offset)
                            : real(file, bytes, count, offset);
}

// Log lines of simulated processes are not shown.
ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  const bool is_log = file == STDERR_FILENO && Fibers::current() != nullptr;
  return is_log ? static_cast<ssize_t>(count) : real(file, bytes, count);
}

int fsync(int file) {
  static const auto real = next<int(int)>("fsync");
  return is_simulated(file) ? sync_simulated(file) : real(file);
}

int fdatasync(int file) {
  static const auto real = next<int(int)>("fdatasync");
  return is_simulated(file) ? sync_simulated(file) : real(file);
}

int posix_fadvise(int file, off_t offset, off_t count, int advice) noexcept {
  static const auto real = next<int(int, off_t, off_t, int)>("posix_fadvise");
  return is_simulated(file) ? 0 : real(file, offset, count, advice);
}

int fcntl(int file, int command, ...) {
  static const auto real = next<int(int, int, ...)>("fcntl");
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return is_simulated(file) ? (command == F_GETFL ? files->at(file)->flags : 0)
                            : real(file, command, argument);
}

DIR* fdopendir(int file) {
  static const auto real = next<DIR*(int)>("fdopendir");
  if (!is_simulated(file)) return real(file);
  list(*files->at(file));
  return reinterpret_cast<DIR*>(files->at(file));
}

struct dirent* readdir(DIR* directory) {
  static const auto real = next<struct dirent*(DIR*)>("readdir");
  const int file = descriptor_of(directory);
  if (file < 0) return real(directory);
  auto& open = *files->at(file);
  if (open.next == open.entries.size()) return nullptr;
  const auto& [name, is_directory] = open.entries[open.next++];
  open.entry.d_type = is_directory ? DT_DIR : DT_REG;
  std::strncpy(open.entry.d_name, name.c_str(), sizeof open.entry.d_name - 1);
  return &open.entry;
}

int dirfd(DIR* directory) noexcept {
  static const auto real = next<int(DIR*)>("dirfd");
  const int file = descriptor_of(directory);
  return file < 0 ? real(directory) : file;
}

int closedir(DIR* directory) {
  static const auto real = next<int(DIR*)>("closedir");
  const int file = descriptor_of(directory);
  return file < 0 ? real(directory) : close(file);
}

pid_t getpid() noexcept {
  static const auto real = next<pid_t()>("getpid");
  const auto* process = Fibers::current();
  return process == nullptr ? real() : process->number;
}

int gethostname(char* name, size_t size) noexcept {
  static const auto real = next<int(char*, size_t)>("gethostname");
  const auto* process = Fibers::current();
  if (process == nullptr) return real(name, size);
  std::strncpy(name, str("h", process->host).c_str(), size);
  return 0;
}

// std::random_device::_M_getval
unsigned int _ZNSt13random_device9_M_getvalEv(void* device) {
  static const auto real = next<unsigned int(void*)>("_ZNSt13random_device9_M_getvalEv");
  return Fibers::current() == nullptr ? real(device) : files->draw();
}

}  // extern "C"
// NOLINTEND(bugprone-exception-escape)
