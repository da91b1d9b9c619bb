#include "checkpoint/checkpoint_copier.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "checkpoint/ranges.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Json::Array json_of(const std::vector<std::string>& texts) {
  Json::Array all;
  for (const auto& text : texts)
    all.emplace_back(text);
  return all;
}

std::vector<std::string> texts_in(const Json& json) {
  std::vector<std::string> texts;
  for (const auto& text : json.as_array())
    texts.push_back(text.as_string());
  return texts;
}

// Exit code and text of an error, for rank 0.
Json failure_of(const DataError& error) {
  return Json::Array{error.exit_code(), error.what()};
}

}  // namespace

// Files of a checkpoint on one host. Two saves of the same step have different manifests.
struct CheckpointCopier::Holding {
  std::string manifest_hash;
  std::int64_t files_in_all = 0;
  std::vector<std::string> files;  // files on this host with the right sizes
  int leader = 0;                  // first rank of the host
  std::vector<int> ranks;          // ranks of the host
};

// Plan is rank 0's assignment of files to ranks.
class CheckpointCopier::Plan {
 public:
  // Uses the hosts that together have all files of one save; empty if there is no complete save.
  explicit Plan(const std::vector<Holding>& all) {
    std::map<std::string, std::vector<const Holding*>> by_manifest;
    for (const auto& holding : all)
      by_manifest[holding.manifest_hash].push_back(&holding);
    for (const auto& [hash, holders] : by_manifest) {
      std::map<std::string, std::vector<const Holding*>> found;
      for (const Holding* holding : holders)
        for (const auto& name : holding->files)
          found[name].push_back(holding);
      if (std::ssize(found) != holders.front()->files_in_all) continue;
      leader_ = holders.front()->leader;
      holders_ = std::move(found);
    }
    for (const auto& [name, holders] : holders_)
      todo_.push_back(name);
  }
  int leader() const { return leader_; }  // rank that has the manifest; -1: none

  // The files that each rank copies next. A file on several hosts goes to the host with the fewest
  // copies so far. "": no file is left.
  std::string next() {
    if (todo_.empty()) return "";
    std::map<int, std::vector<std::string>> of_rank;
    for (const auto& name : todo_) {
      auto& holders = holders_.at(name);
      const auto* chosen = *std::min_element(holders.begin(), holders.end(), [&](auto a, auto b) {
        return of_machine_[a->leader] < of_machine_[b->leader];
      });
      std::erase(holders, chosen);  // after a failure another host is chosen
      const auto number = static_cast<std::size_t>(of_machine_[chosen->leader]++);
      of_rank[chosen->ranks[number % chosen->ranks.size()]].push_back(name);
    }
    todo_.clear();
    Json::Object files;
    for (const auto& [rank, names] : of_rank)
      files.emplace_back(std::to_string(rank), json_of(names));
    return Json(std::move(files)).dump();
  }

  // Retries a file on another host. Throws `failure` (see failure_of()) if no other host has it.
  void failed(const std::string& name, const Json& failure) {
    const auto& why = failure.as_array().at(1).as_string();
    if (holders_.at(name).empty())
      throw_as(static_cast<int>(failure.as_array().at(0).as_integer()), why);
    log_warning("retrying with the copy on another host: ", why);
    todo_.push_back(name);
  }

 private:
  int leader_ = -1;
  std::map<std::string, std::vector<const Holding*>> holders_;  // untried hosts by file name
  std::map<int, std::int64_t> of_machine_;                      // number of copied files by leader
  std::vector<std::string> todo_;
};

CheckpointCopier::CheckpointCopier(World& world, fs::path from, CheckpointDirectory to,
                                   std::vector<int> machine)
    : ranks_(&world, "copies"),
      from_(std::move(from)),
      to_(std::move(to)),
      is_shared_(machine.empty()),
      machine_(std::move(machine)) {
  if (!is_shared_) return;
  machine_.resize(static_cast<std::size_t>(ranks_.size()));
  std::iota(machine_.begin(), machine_.end(), 0);
}

// Holdings of a step, without damaged checkpoints.
std::vector<CheckpointCopier::Holding> CheckpointCopier::holdings(std::int64_t step) const {
  const auto look = [&]() -> std::string {
    if (!leads()) return "[]";
    Json::Array found;
    const auto path = checkpoint_path(from_, step);
    if (path_exists(path)) {
      try {
        verify_checkpoint(path, Depth::sizes, /*from_disk=*/false, Held::some);
        const auto manifest = read_manifest(path);
        std::vector<std::string> names;
        for (const auto& file : manifest.files)
          if (path_exists(path / file.name)) names.push_back(file.name);
        Json::Array ranks;
        for (const int rank : machine_)
          ranks.emplace_back(rank);
        found.push_back(Json::Object{{"manifest", hash_of_file(path / kCheckpointManifestName)},
                                     {"files_in_all", std::ssize(manifest.files)},
                                     {"files", json_of(names)},
                                     {"ranks", std::move(ranks)}});
      } catch (const DataError& error) {
        log_own_warning("checkpoint skipped: ", error.what());
      }
    }
    return Json(std::move(found)).dump();
  };
  const auto said = ranks_.act(look);
  std::vector<Holding> all;
  if (!ranks_.is_first()) return all;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const Json found = Json::parse(said[rank], str("files of rank ", rank));
    for (const auto& json : found.as_array()) {
      Holding holding{.manifest_hash = json.at("manifest").as_string(),
                      .files_in_all = json.at("files_in_all").as_integer(),
                      .files = texts_in(json.at("files")),
                      .leader = static_cast<int>(rank),
                      .ranks = {}};
      for (const auto& other : json.at("ranks").as_array())
        holding.ranks.push_back(static_cast<int>(other.as_integer()));
      all.push_back(std::move(holding));
    }
  }
  return all;
}

void CheckpointCopier::copy(std::int64_t step, const Retention& retention,
                            const std::vector<std::int64_t>& keep, bool left_over) const {
  const auto all = holdings(step);
  Plan plan(all);
  const auto leader = std::stoi(ranks_.told(std::to_string(plan.leader())));
  if (leader < 0)
    throw DataError(str(checkpoint_path(from_, step).string(),
                        ": the hosts together do not have all files of this checkpoint"));
  const auto read = [&]() -> std::string {
    if (ranks_.rank() != leader) return "";
    return read_text(checkpoint_path(from_, step) / kCheckpointManifestName, kMostManifestBytes);
  };
  const auto texts = ranks_.act(read);
  std::optional<UnfinishedCheckpoint> unfinished;
  ranks_.act_first([&] { unfinished.emplace(to_, step); });
  for (;;) {
    const auto agreed = ranks_.told(ranks_.is_first() ? plan.next() : "");
    if (agreed.empty()) break;
    const Json files = Json::parse(agreed, "rank 0");
    const auto* mine = files.find(std::to_string(ranks_.rank()));
    const auto said = ranks_.act([&]() -> std::string {
      if (mine == nullptr) return "";
      return copy_files(UnfinishedCheckpoint::path_of(to_, step), step, texts_in(*mine));
    });
    ranks_.act_first([&] {
      for (std::size_t rank = 0; rank < said.size(); ++rank) {
        if (said[rank].empty()) continue;
        const Json failures = Json::parse(said[rank], str("copy errors of rank ", rank));
        for (const auto& [name, failure] : failures.as_object())
          plan.failed(name, failure);
      }
    });
  }
  ranks_.act_first([&] {
    using Later = UnfinishedCheckpoint::Later;
    unfinished->commit(texts[static_cast<std::size_t>(leader)], Held::all,
                       left_over ? Later::stay : Later::go);
  });
  if (retention.last > 0 && !left_over) prune_checkpoints(ranks_, {}, to_, step, retention, keep);
  ranks_.act_if(leads() && !is_shared_, [&] {
    if (path_exists(checkpoint_path(from_, step))) write_text(mark(step), "");
  });
}

// Path of the mark beside the manifest of a copied checkpoint.
fs::path CheckpointCopier::mark(std::int64_t step) const {
  return checkpoint_path(from_, step) / kCopiedMark;
}

// Copies files and verifies each range: first the header, then the slices. Returns the failed files
// by name with failure_of(), or "".
std::string CheckpointCopier::copy_files(const fs::path& into, std::int64_t step,
                                         const std::vector<std::string>& names) const {
  const auto path = checkpoint_path(from_, step);
  const auto manifest = read_manifest(path);
  const auto ranges = ranges_by_file(manifest);
  Json::Object failures;
  for (std::size_t f = 0; f < ranges.size(); ++f) {
    const auto& name = manifest.files[f].name;
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    try {
      copy_verified(path / name, into / name, ranges[f]);
    } catch (const DataError& error) {
      failures.emplace_back(name, failure_of(error));
    }
  }
  return failures.empty() ? "" : Json(std::move(failures)).dump();
}

}  // namespace lockstep
