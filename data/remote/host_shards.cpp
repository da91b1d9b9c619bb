#include "data/remote/host_shards.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "data/source.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostLocal = 256;
constexpr std::int64_t kMostPlainBytes = std::int64_t{1}
                                         << 30;  // fits a dataset.json of a million shards

std::string_view directory_name(std::string_view path) {
  return path.substr(0, path.rfind('/'));
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

Descriptor copy_of(const Descriptor& file, const std::string& path) {
  Descriptor copy(fcntl(file.number(), F_DUPFD_CLOEXEC, 0));
  if (!copy) fail_io(path, "cannot open", errno);
  return copy;
}

Descriptor in_memory(std::string_view text) {
  constexpr const char* kName = "a file in memory";
  Descriptor file(memfd_create("lockstep", MFD_CLOEXEC));
  if (!file) fail_io(kName, "cannot create", errno);
  while (!text.empty()) {
    const auto n = write(file.number(), text.data(), text.size());
    if (n < 0 && errno != EINTR) fail_io(kName, "cannot write", errno);
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return file;
}

}  // namespace

// A remote dataset.json: its text, and the place of each shard in it.
class HostShards::Directory {
 public:
  Directory(std::string address, const std::string& text)
      : address_(std::move(address)),
        text_(in_memory(text)),
        manifest_(Manifest::parse(text, address_ + '/' + kManifestName)),
        by_name_(manifest_.shards.size()) {
    std::iota(by_name_.begin(), by_name_.end(), 0);
    std::sort(by_name_.begin(), by_name_.end(), [&](auto a, auto b) { return stem(a) < stem(b); });
  }

  const Descriptor& text() const { return text_; }

  // Returns the cached shard of a name; nullopt if dataset.json does not list it.
  std::optional<CachedShard> find(std::string_view name) const {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const auto wanted = name.substr(0, dot);
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                                     [&](auto i, std::string_view text) { return stem(i) < text; });
    if (at == by_name_.end() || stem(*at) != wanted) return std::nullopt;
    const auto& shard = manifest_.shards[*at];
    const auto url = str(address_, '/', name);
    if (name.ends_with(".bin")) return CachedShard{url, shard.hash, tokens_bytes(shard)};
    if (name.ends_with(".ends")) return CachedShard{url, shard.ends_hash, 8 * shard.documents};
    if (name.ends_with(".mask") && !shard.mask_hash.empty())
      return CachedShard{url, shard.mask_hash, mask_bytes(shard)};
    return std::nullopt;
  }

  const Manifest& manifest() const { return manifest_; }

  // Returns the bytes in the cache of each shard with the files beside it; `name`: only that shard,
  // "": all.
  void add_rooms(std::string_view name, std::vector<std::int64_t>& rooms) const {
    for (const auto& shard : manifest_.shards) {
      if (!name.empty() && name != shard.file) continue;
      auto bytes = PartFile::file_bytes(tokens_bytes(shard));
      if (shard.documents > 0) bytes += PartFile::file_bytes(8 * shard.documents);
      if (!shard.mask_hash.empty()) bytes += PartFile::file_bytes(mask_bytes(shard));
      rooms.push_back(bytes);
    }
  }

 private:
  static std::int64_t mask_bytes(const Manifest::Shard& shard) { return (shard.tokens + 7) / 8; }
  std::string_view stem(std::uint32_t shard) const {
    const std::string_view name(manifest_.shards[shard].file);
    return name.substr(0, name.rfind('.'));
  }
  std::int64_t tokens_bytes(const Manifest::Shard& shard) const {
    return manifest_.format.header_bytes + shard.tokens * manifest_.format.token_bytes;
  }

  std::string address_;
  Descriptor text_;
  Manifest manifest_;
  std::vector<std::uint32_t> by_name_;  // shards sorted by name
};

HostShards::HostShards(const ShardCache::Config& cache, const Environment& environment,
                       const Patience& patience)
    : cache_config_(cache), environment_(environment), remote_(environment, patience) {
  allow_open_files(4 * kMostLocal);
}

HostShards::~HostShards() {
  stop();
}

std::filesystem::path HostShards::default_directory(const Environment& environment) {
  const auto variable = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::filesystem::path below("lockstep/shards");
  // A relative path is ignored, as the XDG Base Directory Specification requires.
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return cache / below;
  if (const auto home = variable("HOME"); !home.empty())
    return std::filesystem::path(home) / ".cache" / below;
  throw ConfigError("neither HOME nor XDG_CACHE_HOME is set; set data.cache_directory");
}

void HostShards::stop() {
  stop_ = true;
  const std::scoped_lock lock(mutex_);
  if (cache_) cache_->stop();
}

ShardCache::Counts HostShards::counts() const {
  const std::scoped_lock lock(mutex_);
  return cache_ ? cache_->counts() : ShardCache::Counts{};
}

ReadFile HostShards::open(const std::string& path) {
  return {open_descriptor(path).release(), path};
}

Descriptor HostShards::open_descriptor(const std::string& path) {
  return is_remote(path) ? open_remote(path) : open_local(path);
}

Descriptor HostShards::open_local(const std::string& path) {
  const std::scoped_lock lock(opening_);
  auto found = local_.find(path);
  if (found == local_.end()) {
    // O_NONBLOCK, as in ReadFile.
    Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
      const ReadFile again(path);  // throws the error with the reason
      throw StorageError(
          str(path, ": opening it failed once and then succeeded; rerun the command"));
    }
    ++opened_local_;
    if (local_.size() >= kMostLocal)
      local_.erase(std::min_element(local_.begin(), local_.end(), [](auto& a, auto& b) {
        return a.second.used < b.second.used;
      }));
    found = local_.emplace(path, Local{std::move(file), 0}).first;
  }
  found->second.used = ++uses_;
  return copy_of(found->second.file, path);
}

bool HostShards::has_cache() const {
  const std::scoped_lock lock(mutex_);
  return cache_ != nullptr;
}

ShardCache& HostShards::cache() {
  const std::scoped_lock making(making_);
  if (cache_) return *cache_;
  if (cache_config_.directory.empty()) cache_config_.directory = default_directory(environment_);
  auto made = std::make_unique<ShardCache>(cache_config_, remote_);
  const std::scoped_lock lock(mutex_);
  cache_ = std::move(made);
  if (stop_) cache_->stop();
  return *cache_;
}

// Reads it once, so that all ranks have the same dataset.json.
const HostShards::Directory& HostShards::directory_of(const std::string& path) {
  std::string address(directory_name(path));
  while (address.ends_with('/'))
    address.pop_back();
  const std::scoped_lock fetching(fetching_);
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = directories_.find(address); found != directories_.end())
      return *found->second;
  }
  const auto url = str(address, '/', kManifestName);
  auto directory = [&] {
    try {
      return std::make_unique<Directory>(
          address, RemoteReader(remote_, stop_).read_all(url, kMostPlainBytes));
    } catch (const AccessError&) {
      throw;
    } catch (const DataError& error) {
      throw DataError(
          str(error.what(), "; a dataset at an address needs its ", kManifestName,
              ", which `lockstep data pack` and `data convert` write; copy it with the shards"));
    }
  }();
  const std::scoped_lock lock(mutex_);
  return *(directories_[address] = std::move(directory));
}

Descriptor HostShards::open_remote(const std::string& path) {
  const auto& directory = directory_of(path);
  const auto name = file_name(path);
  if (name == kManifestName) return copy_of(directory.text(), path);
  const auto shard = directory.find(name);
  if (shard && shard->bytes > 0) return cache().open(*shard);
  if (shard) return in_memory("");  // an empty list of ends
  return in_memory(RemoteReader(remote_, stop_).read_all(path, kMostPlainBytes));
}

const Manifest* HostShards::manifest(const std::string& path) {
  return is_remote(path) ? &directory_of(path).manifest() : nullptr;
}

void HostShards::set_ahead(const void* reader, const std::vector<std::string>& paths) {
  try {
    std::vector<CachedShard> shards;
    for (const auto& path : paths) {
      if (!is_remote(path)) continue;
      auto shard = directory_of(path).find(file_name(path));
      if (shard && shard->bytes > 0) shards.push_back(std::move(*shard));
    }
    const std::scoped_lock lock(ahead_mutex_);
    if (shards.empty())
      ahead_.erase(reader);
    else
      ahead_[reader] = std::move(shards);
    std::size_t most = 0;
    for (const auto& [of, list] : ahead_)
      most = std::max(most, list.size());
    std::vector<CachedShard> ahead;
    for (std::size_t turn = 0; turn < most; ++turn)
      for (const auto& [of, list] : ahead_)
        if (turn < list.size()) ahead.push_back(list[turn]);
    if (!ahead.empty() || has_cache()) cache().set_ahead(ahead);
  } catch (const DataError& error) {
    log_own_warning("cannot prefetch the next shards: ", error.what());
  }
}

// Returns the sizes in descending order.
std::vector<std::int64_t> HostShards::rooms_of(const std::vector<std::string>& paths) {
  std::vector<std::int64_t> rooms;
  for (const auto& path : paths) {
    if (!is_remote(path)) continue;
    const bool is_shard = path.ends_with(".bin");
    directory_of(is_shard ? path : path + '/').add_rooms(is_shard ? file_name(path) : "", rooms);
  }
  std::sort(rooms.begin(), rooms.end(), std::greater<>());
  return rooms;
}

std::int64_t HostShards::room_of(const std::vector<std::string>& paths, std::int64_t shards) {
  const auto rooms = rooms_of(paths);
  const auto end = rooms.begin() + std::min(shards, std::ssize(rooms));
  return std::accumulate(rooms.begin(), end, std::int64_t{0});
}

void HostShards::need_room(const std::vector<Need>& needs) {
  std::string parts;
  std::int64_t bytes = 0;
  for (const auto& [paths, most] : needs) {
    const auto rooms = rooms_of(paths);
    if (rooms.empty()) continue;
    const auto shards = std::min(most, std::ssize(rooms));
    bytes += std::accumulate(rooms.begin(), rooms.begin() + shards, std::int64_t{0});
    parts += str(parts.empty() ? "" : ", ", joined(paths), ": ", shards,
                 shards == 1 ? " shard of up to " : " shards of up to ",
                 human_bytes(static_cast<double>(rooms.front())));
  }
  if (parts.empty() || bytes <= cache().directory().most_bytes()) return;
  const auto& path = cache().directory().path();
  throw ConfigError(str(parts, "; together they need ", human_bytes(static_cast<double>(bytes)),
                        " of the shard cache, but its limit is ",
                        human_bytes(static_cast<double>(cache().directory().most_bytes())), " in ",
                        path.string(),
                        "; raise data.cache_bytes, lower data.shuffle_shards (0 reads all shards "
                        "at a time), or pack smaller shards"));
}

}  // namespace lockstep
