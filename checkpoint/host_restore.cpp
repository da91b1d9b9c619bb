#include "checkpoint/host_restore.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "checkpoint/range_transfer.h"
#include "checkpoint/ranges.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/units.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kDamaged = 65;            // exit code of a DataError
constexpr std::int64_t kAllFiles = -1;  // the host itself is lost

template <class Values>
Json::Array json_of(const Values& values) {
  Json::Array all;
  for (const auto value : values)
    all.emplace_back(static_cast<std::int64_t>(value));
  return all;
}

// Files of one checkpoint in one directory, opened when they are needed.
class OpenFiles {
 public:
  OpenFiles(fs::path checkpoint, const CheckpointManifest& manifest)
      : checkpoint_(std::move(checkpoint)), manifest_(manifest), files_(manifest.files.size()) {}

  // As load_range() needs it; checks the hash of the manifest, which covers a whole slice.
  void load(const NeededRange& range, const StateSlice& target) {
    auto& file = files_[range.file()];
    if (!file) file.emplace(open_checked(checkpoint_, manifest_.files[range.file()]));
    const auto hash = load_range(
        range, target, [&](auto use) { reader_.read(*file, range.offset(), range.bytes(), use); });
    if (range.is_whole())
      check_hash(*file, range.offset(), range.tensor->name, range.slice->hash, hash);
  }

 private:
  fs::path checkpoint_;
  const CheckpointManifest& manifest_;
  std::vector<std::optional<ReadFile>> files_;
  PieceReader reader_;  // destroyed first
};

void load_from_stream(RangeStream& stream, const NeededRange& range, const StateSlice& target,
                      const std::string& file) {
  const auto receive = [&] {
    const auto place = place_of(range, target);
    if (place.empty()) return load_range(range, target, [&](auto use) { stream.next({}, use); });
    Hasher hasher;
    stream.next(place, [&](auto piece, std::int64_t) { hasher.add(piece); });
    return hasher.hex();
  };
  const auto hash = receive();
  if (range.is_whole() && hash != range.slice->hash)
    throw DataError(str(file, ": at byte ", range.offset(), ": ", range.tensor->name,
                        " is damaged: its XXH3-128 is ", hash, ", expected ", range.slice->hash));
}

}  // namespace

// A source that cannot be used.
struct HostRestore::Failure {
  int host = 0;
  std::int64_t file = kAllFiles;
  int exit_code = kDamaged;
  std::string why;
};

struct HostRestore::Loading {
  std::span<const StateSlice> state;
  RestorePlan plan;  // the same on all ranks, without the sources that failed
  CheckpointManifest manifest;
  std::vector<NeededRange> ranges;  // of this rank
  bool is_partial = false;          // some rank needs only a part of a slice
  std::vector<bool> done;           // slices of the state that are loaded
  std::optional<RangeServer> server;
  std::vector<Membership> servers;  // of each host; empty: none are open
  std::int64_t bytes = 0, remote_bytes = 0, shared_bytes = 0;
};

HostRestore::HostRestore(World& world, fs::path local, fs::path shared, const HostRanks& machine,
                         Milliseconds patience)
    : ranks_(&world, "restore"),
      local_(std::move(local)),
      shared_(std::move(shared)),
      machine_(machine),
      patience_(patience) {}

int HostRestore::here() const {
  const auto place = std::ranges::lower_bound(leaders_, machine_.ranks.front());
  return static_cast<int>(place - leaders_.begin());
}

// The saves in this host's directory, each with its files of the right sizes.
std::string HostRestore::look() const {
  if (!leads()) return "";
  Json::Array saves;
  for (const auto step : checkpoint_steps(local_)) {
    const auto path = checkpoint_path(local_, step);
    try {
      const auto manifest = manifest_of(path);
      const auto id = manifest_id(path);
      Json::Array files;
      for (std::size_t f = 0; f < manifest.files.size(); ++f) {
        if (!path_exists(path / manifest.files[f].name)) continue;
        try {
          open_checked(path, manifest.files[f]);
          files.emplace_back(static_cast<std::int64_t>(f));
        } catch (const DataError& error) {
          log_own_warning("file skipped: ", error.what());
        }
      }
      saves.push_back(Json::Array{step, id ? id->hash : "", std::ssize(manifest.files),
                                  path_exists(path / kCopiedMark), std::move(files)});
    } catch (const DataError& error) {
      log_own_warning("checkpoint skipped: ", error.what());
    }
  }
  return Json(std::move(saves)).dump();
}

std::vector<HostRestore::Found> HostRestore::find(std::span<const std::int64_t> shared_steps) {
  const auto said = ranks_.act([&] { return look(); });
  Json::Array leaders, saves;
  const auto plan = [&] {
    std::vector<HeldFiles> held;
    std::set<std::pair<std::int64_t, std::string>> shared;
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      if (said[rank].empty()) continue;
      const Json of_host = Json::parse(said[rank], str("files of rank ", rank));
      for (const auto& save : of_host.as_array()) {
        const auto& values = save.as_array();
        auto& files = held.emplace_back();
        files.host = static_cast<int>(leaders.size());
        files.step = values.at(0).as_integer();
        files.save = values.at(1).as_string();
        files.files_in_all = static_cast<std::size_t>(values.at(2).as_integer());
        files.was_copied = values.at(3).as_bool();
        for (const auto& file : values.at(4).as_array())
          files.files.push_back(static_cast<std::size_t>(file.as_integer()));
      }
      leaders.emplace_back(static_cast<std::int64_t>(rank));
    }
    for (const auto step : shared_steps)
      if (std::ranges::any_of(held, [&](const auto& files) { return files.step == step; }))
        if (const auto id = manifest_id(checkpoint_path(shared_, step)))
          shared.emplace(step, id->hash);
    plans_ = plan_restore(held, shared);
    for (const auto& found : plans_) {
      if (const auto missing = found.missing(); missing == 0)
        saves.push_back(Json::Array{found.step, found.save, found.was_copied, found.is_shared});
      else if (!found.was_copied)
        log_warning("step ", found.step, " in ", local_.string(),
                    " of each host is skipped: ", missing, " of ", found.holders.size(),
                    " files are missing");
    }
  };
  ranks_.act_first(plan);
  const Json agreed = Json::parse(
      ranks_.told(Json(Json::Array{std::move(leaders), std::move(saves)}).dump()), "rank 0");
  leaders_.clear();
  for (const auto& leader : agreed.as_array().at(0).as_array())
    leaders_.push_back(static_cast<int>(leader.as_integer()));
  std::vector<Found> all;
  for (const auto& save : agreed.as_array().at(1).as_array()) {
    const auto& values = save.as_array();
    all.push_back({values.at(0).as_integer(), values.at(1).as_string(), values.at(2).as_bool(),
                   values.at(3).as_bool()});
  }
  return all;
}

Json HostRestore::load(const Found& found, std::span<const StateSlice> state,
                       FunctionRef<void(const Json& about)> accept) {
  const auto begin = std::chrono::steady_clock::now();
  Loading loading;
  loading.state = state;
  loading.done.resize(state.size());
  agree(loading, found, accept);
  if (loading.is_partial) drop(loading, [&] { return verify_held(loading); });
  do
    open_server(loading);
  while (drop(loading, [&] { return load_missing(loading); }));
  log_loaded(loading,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return loading.manifest.about;
}

// All ranks get the plan and the manifest, and check that the state can be loaded.
void HostRestore::agree(Loading& loading, const Found& found,
                        FunctionRef<void(const Json& about)> accept) const {
  Json mine;
  if (ranks_.is_first()) {
    const auto plan = std::ranges::find_if(plans_, [&](const RestorePlan& of_save) {
      return of_save.step == found.step && of_save.save == found.save;
    });
    LOCKSTEP_CHECK(plan != plans_.end(), "no plan for step ", found.step);
    Json::Array holders;
    for (const auto& hosts : plan->holders)
      holders.emplace_back(json_of(hosts));
    mine = std::move(holders);
  }
  loading.plan = {.step = found.step,
                  .save = found.save,
                  .was_copied = found.was_copied,
                  .is_shared = found.is_shared,
                  .holders = {}};
  int first = RestorePlan::kNowhere;  // a host that has the manifest
  const Json agreed = Json::parse(ranks_.told(mine.dump()), "rank 0");
  for (const auto& hosts : agreed.as_array()) {
    auto& of_file = loading.plan.holders.emplace_back();
    for (const auto& host : hosts.as_array())
      of_file.push_back(static_cast<int>(host.as_integer()));
    if (first < 0 && !of_file.empty()) first = of_file.front();
  }
  const auto sender = first < 0 ? 0 : leaders_.at(static_cast<std::size_t>(first));
  const auto path = checkpoint_path(first < 0 ? shared_ : local_, found.step);
  auto texts = ranks_.act([&]() -> std::string {
    if (ranks_.rank() != sender) return "";
    return read_text(path / kCheckpointManifestName, kMostManifestBytes);
  });
  const auto text =
      ranks_.told(ranks_.is_first() ? texts.at(static_cast<std::size_t>(sender)) : "");
  const auto said = ranks_.act([&]() -> std::string {
    loading.manifest = CheckpointManifest::parse(text, path.string());
    if (loading.manifest.files.size() != loading.plan.holders.size())
      throw DataError(str(path.string(), ": its manifest changed while it was read"));
    accept(loading.manifest.about);
    loading.ranges = needed_ranges(path.string(), loading.manifest, loading.state, Match::exact);
    return std::ranges::all_of(loading.ranges, &NeededRange::is_whole) ? "" : "partial";
  });
  const bool some = std::ranges::find(said, "partial") != said.end();
  loading.is_partial = !ranks_.told(some ? "partial" : "").empty();
}

// Removes from the plan the sources that failed in an action of the ranks. Returns whether there
// are any. Throws if a file has no source left.
bool HostRestore::drop(Loading& loading, FunctionRef<std::vector<Failure>()> act) const {
  const auto failed = [&] {
    Json::Array failures;
    for (const auto& failure : act())
      failures.push_back(Json::Array{failure.host, failure.file, failure.exit_code, failure.why});
    return failures.empty() ? std::string() : Json(std::move(failures)).dump();
  };
  Json::Array all;
  for (const auto& text : ranks_.act(failed, [&] { ranks_.world()->exchange(""); }))
    if (!text.empty()) {
      const Json of_rank = Json::parse(text, "sources that failed");
      all.insert(all.end(), of_rank.as_array().begin(), of_rank.as_array().end());
    }
  const Json agreed = Json::parse(ranks_.told(Json(std::move(all)).dump()), "rank 0");
  int exit_code = kDamaged;
  std::set<std::pair<std::int64_t, std::string>> reasons;  // with the file
  for (const auto& failure : agreed.as_array()) {
    const auto& values = failure.as_array();
    const auto host = static_cast<int>(values.at(0).as_integer());
    const auto file = values.at(1).as_integer();
    if (file == kAllFiles)
      loading.plan.drop(host);
    else
      loading.plan.drop(host, static_cast<std::size_t>(file));
    exit_code = std::max(exit_code, static_cast<int>(values.at(2).as_integer()));
    reasons.emplace(file, values.at(3).as_string());
  }
  if (reasons.empty()) return false;
  const auto missing = loading.plan.missing();
  if (missing > 0)  // of the other files there are copies
    std::erase_if(reasons, [&](const auto& reason) {
      return reason.first != kAllFiles &&
             loading.plan.source_of(static_cast<std::size_t>(reason.first), 0) !=
                 RestorePlan::kNowhere;
    });
  std::string why;
  for (const auto& [file, reason] : reasons)
    why += str(why.empty() ? "" : "; ", reason);
  if (missing > 0)
    throw_as(exit_code, str("step ", loading.plan.step, " in ", local_.string(),
                            " of each host: no usable copy of ", missing, " of ",
                            loading.plan.holders.size(), " files: ", why));
  log_warning("step ", loading.plan.step, ": other copies are used, because ", why);
  return true;
}

// Each rank verifies some of the files that its host may be asked for a part of.
std::vector<HostRestore::Failure> HostRestore::verify_held(const Loading& loading) const {
  const auto ranges = ranges_by_file(loading.manifest);
  const auto me = std::ranges::find(machine_.ranks, ranks_.rank()) - machine_.ranks.begin();
  std::vector<Failure> failures;
  for (std::size_t f = 0, held = 0; f < ranges.size(); ++f) {
    const auto& hosts = loading.plan.holders[f];
    const bool is_here = std::ranges::binary_search(hosts, here());
    const bool is_mine =
        is_here ? static_cast<std::ptrdiff_t>(held++ % machine_.ranks.size()) == me
                : hosts.empty() && static_cast<int>(f) % ranks_.size() == ranks_.rank();
    if (!is_mine) continue;
    const auto path = checkpoint_path(is_here ? local_ : shared_, loading.plan.step);
    try {
      const auto file = open_checked(path, loading.manifest.files[f]);
      PieceReader reader;
      for (const auto& range : ranges[f])
        reader.verify(file, range);
    } catch (const DataError& error) {
      failures.push_back({is_here ? here() : RestorePlan::kShared, static_cast<std::int64_t>(f),
                          error.exit_code(), error.what()});
    }
  }
  return failures;
}

// Opens the servers of the hosts, if some rank needs files of another host.
void HostRestore::open_server(Loading& loading) const {
  if (!loading.servers.empty()) return;
  const auto said = ranks_.act([&]() -> std::string {
    for (const auto& range : loading.ranges) {
      const int source = loading.plan.source_of(range.file(), here());
      if (source >= 0 && source != here()) return "remote";
    }
    return "";
  });
  const bool some = std::ranges::find(said, "remote") != said.end();
  const auto secret = ranks_.told(some ? Secret::draw().hex() : "");
  if (secret.empty()) return;
  const auto opened = ranks_.act([&]() -> std::string {
    if (!leads()) return "";
    loading.server.emplace(Secret::from_hex(secret), checkpoint_path(local_, loading.plan.step),
                           loading.manifest);
    Json::Array addresses;
    for (const auto& address : ranks_.world()->addresses())
      addresses.emplace_back(address);
    return Json(Json::Array{loading.server->port(), std::move(addresses)}).dump();
  });
  Json::Array places;
  for (const auto& place : opened)
    if (!place.empty()) places.push_back(Json::parse(place, "the address of a host"));
  const Json agreed = Json::parse(ranks_.told(Json(std::move(places)).dump()), "rank 0");
  for (std::size_t host = 0; host < leaders_.size(); ++host) {
    const auto& place = agreed.as_array().at(host).as_array();
    Membership to{.rank = ranks_.rank(),
                  .ranks = ranks_.size(),
                  .addresses = {},
                  .port = static_cast<std::uint16_t>(place.at(0).as_integer()),
                  .secret = Secret::from_hex(secret),
                  .listener = leaders_[host]};
    for (const auto& address : place.at(1).as_array())
      to.addresses.push_back(address.as_string());
    loading.servers.push_back(std::move(to));
  }
}

// Loads the slices that are not loaded yet. All hosts send at the same time; slices are filled one
// after the other, because they may share a buffer.
std::vector<HostRestore::Failure> HostRestore::load_missing(Loading& loading) const {
  std::vector<Failure> failures;
  const auto& manifest = loading.manifest;
  const auto fail = [&](int host, std::int64_t file, int exit_code, const std::string& why) {
    const auto is_same = [&](const Failure& known) {
      return known.host == host && known.file == file;
    };
    if (std::ranges::none_of(failures, is_same)) failures.push_back({host, file, exit_code, why});
  };
  std::map<int, std::vector<FileRange>> requests;
  for (const auto& range : loading.ranges)
    if (const int source = loading.plan.source_of(range.file(), here());
        !loading.done[range.target] && source >= 0 && source != here())
      requests[source].push_back({range.file(), static_cast<std::uint64_t>(range.offset()),
                                  static_cast<std::uint64_t>(range.bytes()),
                                  range.is_whole() ? 1U : 0U});
  std::map<int, RangeStream> streams;
  for (const auto& [host, ranges] : requests)
    try {
      streams.try_emplace(host, loading.servers[static_cast<std::size_t>(host)], ranges, patience_);
    } catch (const Error& error) {
      fail(host, kAllFiles, kDamaged, error.what());
    }
  allow_open_files(manifest.files.size());
  OpenFiles own(checkpoint_path(local_, loading.plan.step), manifest);
  OpenFiles shared(checkpoint_path(shared_, loading.plan.step), manifest);

  // A range of a stream is received even if its slice has failed, because the next one follows it.
  const auto load = [&](const NeededRange& range) {
    const int source = loading.plan.source_of(range.file(), here());
    const auto& target = loading.state[range.target];
    try {
      if (source == here()) {
        own.load(range, target);
      } else if (source == RestorePlan::kShared) {
        shared.load(range, target);
        loading.shared_bytes += range.bytes();
      } else {
        const auto stream = streams.find(source);
        if (stream == streams.end()) return false;
        load_from_stream(stream->second, range, target, manifest.files[range.file()].name);
        loading.remote_bytes += range.bytes();
      }
      loading.bytes += range.bytes();
      return true;
    } catch (const DataError& error) {
      fail(source, static_cast<std::int64_t>(range.file()), error.exit_code(),
           source < 0 || source == here()
               ? error.what()
               : str("rank ", leaders_[static_cast<std::size_t>(source)], ": ", error.what()));
    } catch (const TransientError& error) {
      fail(source, kAllFiles, kDamaged, error.what());
      streams.erase(source);
    }
    return false;
  };
  auto range = loading.ranges.begin();
  for (std::size_t t = 0; t < loading.state.size(); ++t) {
    bool is_whole = true;
    for (; range != loading.ranges.end() && range->target == t; ++range)
      if (!loading.done[t]) is_whole = load(*range) && is_whole;
    if (loading.done[t] || !is_whole) continue;
    loading.done[t] = true;
    if (loading.state[t].put) loading.state[t].put();
  }
  return failures;
}

void HostRestore::log_loaded(const Loading& loading, double seconds) const {
  const auto said = ranks_.act([&] {
    return Json(Json::Array{loading.bytes, loading.remote_bytes, loading.shared_bytes}).dump();
  });
  double bytes = 0, remote = 0, shared = 0;
  for (const auto& of_rank : said) {
    const Json json = Json::parse(of_rank, "bytes of a rank");
    bytes += static_cast<double>(json.as_array().at(0).as_integer());
    remote += static_cast<double>(json.as_array().at(1).as_integer());
    shared += static_cast<double>(json.as_array().at(2).as_integer());
  }
  if (ranks_.is_first())
    log_info("loaded step ", loading.plan.step, " from ", local_.string(), " of each host in ",
             human_seconds(seconds), ": ", human_bytes(bytes), ", of which ", human_bytes(remote),
             " came from other hosts",
             shared > 0 ? str(" and ", human_bytes(shared), " from ", shared_.string()) : "");
}

}  // namespace lockstep
