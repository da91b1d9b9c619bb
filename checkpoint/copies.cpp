#include "checkpoint/copies.h"

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

}  // namespace

// What one machine has of a checkpoint. Two saves of the same step have other manifests.
struct CheckpointCopies::Holding {
  std::int64_t step = 0;
  std::string manifest_hash;
  std::int64_t files_in_all = 0;
  std::vector<std::string> files;  // here, in their sizes
  int leader = 0;                  // the first rank of the machine
  std::vector<int> ranks;          // of the machine
};

CheckpointCopies::CheckpointCopies(World& world, fs::path from, fs::path to,
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

// Of one step, or of all; damaged ones are left out.
std::vector<CheckpointCopies::Holding> CheckpointCopies::holdings(
    std::optional<std::int64_t> of_step) const {
  const auto look = [&]() -> std::string {
    if (!leads()) return "[]";
    Json::Array found;
    for (const auto step : checkpoint_steps(from_)) {
      if (of_step ? step != *of_step : path_exists(mark(step))) continue;
      const auto path = checkpoint_path(from_, step);
      try {
        verify_checkpoint(path, Depth::sizes, /*from_disk=*/false, Held::some);
        const auto manifest = read_manifest(path);
        std::vector<std::string> names;
        for (const auto& file : manifest.files)
          if (path_exists(path / file.name)) names.push_back(file.name);
        Json::Array ranks;
        for (const int rank : machine_)
          ranks.emplace_back(rank);
        found.push_back(Json::Object{{"step", step},
                                     {"manifest", hash_of_file(path / kCheckpointManifestName)},
                                     {"files_in_all", std::ssize(manifest.files)},
                                     {"files", json_of(names)},
                                     {"ranks", std::move(ranks)}});
      } catch (const DataError& error) {
        log_own_warning("not used: ", error.what());
      }
    }
    return Json(std::move(found)).dump();
  };
  const auto said = ranks_.act(look);
  std::vector<Holding> all;
  if (!ranks_.is_first()) return all;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const Json found = Json::parse(said[rank], str("what rank ", rank, " holds"));
    for (const auto& json : found.as_array()) {
      Holding holding{.step = json.at("step").as_integer(),
                      .manifest_hash = json.at("manifest").as_string(),
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

std::optional<std::int64_t> CheckpointCopies::newest() const {
  std::map<std::pair<std::int64_t, std::string>, std::set<std::string>> files;
  std::int64_t newest = -1;
  for (const auto& holding : holdings(std::nullopt)) {
    auto& found = files[{holding.step, holding.manifest_hash}];
    found.insert(holding.files.begin(), holding.files.end());
    if (std::ssize(found) == holding.files_in_all) newest = std::max(newest, holding.step);
  }
  const auto agreed = std::stoll(ranks_.told(std::to_string(newest)));
  return agreed < 0 ? std::nullopt : std::optional<std::int64_t>(agreed);
}

void CheckpointCopies::copy(std::int64_t step, const Retention& retention,
                            const std::vector<std::int64_t>& keep) const {
  const auto all = holdings(step);
  // Who copies which files, and from whose directory the manifest comes.
  Json plan(Json::Object{});
  std::map<std::string, std::vector<const Holding*>> by_manifest;
  for (const auto& holding : all)
    by_manifest[holding.manifest_hash].push_back(&holding);
  for (const auto& [hash, holders] : by_manifest) {
    // A file may be on several machines: the one that copies the fewest so far does it.
    std::map<std::string, std::vector<std::size_t>> found;
    for (std::size_t h = 0; h < holders.size(); ++h)
      for (const auto& name : holders[h]->files)
        found[name].push_back(h);
    if (std::ssize(found) != holders.front()->files_in_all) continue;
    std::vector<std::size_t> of_machine(holders.size());
    std::map<int, std::vector<std::string>> of_rank;
    for (const auto& [name, machines] : found) {
      const auto h = *std::min_element(machines.begin(), machines.end(), [&](auto a, auto b) {
        return of_machine[a] < of_machine[b];
      });
      const auto& ranks = holders[h]->ranks;
      of_rank[ranks[of_machine[h]++ % ranks.size()]].push_back(name);
    }
    Json::Object files;
    for (const auto& [rank, names] : of_rank)
      files.emplace_back(std::to_string(rank), json_of(names));
    plan.set("leader", holders.front()->leader);
    plan.set("files", std::move(files));
  }
  const Json agreed = Json::parse(ranks_.told(plan.dump()), "rank 0");
  if (agreed.find("files") == nullptr)
    throw DataError(str(checkpoint_path(from_, step).string(),
                        ": no machine or not every machine has its files of it"));
  const auto read = [&]() -> std::string {
    if (ranks_.rank() != agreed.at("leader").as_integer()) return "";
    return read_text(checkpoint_path(from_, step) / kCheckpointManifestName, kMostManifestBytes);
  };
  const auto texts = ranks_.act(read);
  std::optional<UnfinishedCheckpoint> unfinished;
  ranks_.act_if(ranks_.is_first(), [&] { unfinished.emplace(to_, step); });
  const auto* mine = agreed.at("files").find(std::to_string(ranks_.rank()));
  ranks_.act_if(mine != nullptr, [&] {
    copy_files(UnfinishedCheckpoint::path_of(to_, step), step, texts_in(*mine));
  });
  ranks_.act_if(ranks_.is_first(), [&] {
    unfinished->commit(texts[static_cast<std::size_t>(agreed.at("leader").as_integer())],
                       Held::all);
    if (retention.last > 0) prune_checkpoints(to_, retention, keep);
  });
  ranks_.act_if(leads() && !is_shared_, [&] {
    if (path_exists(checkpoint_path(from_, step))) write_text(mark(step), "");
  });
}

// Beside the manifest of one that was copied.
fs::path CheckpointCopies::mark(std::int64_t step) const {
  return checkpoint_path(from_, step) / "copied";
}

// Each range of a file with its hash, in their order: header, then slices.
void CheckpointCopies::copy_files(const fs::path& into, std::int64_t step,
                                  const std::vector<std::string>& names) const {
  const auto path = checkpoint_path(from_, step);
  const auto manifest = read_manifest(path);
  const auto ranges = ranges_by_file(manifest);
  for (std::size_t f = 0; f < ranges.size(); ++f) {
    const auto& file = manifest.files[f];
    if (std::find(names.begin(), names.end(), file.name) == names.end()) continue;
    const ReadFile in(path / file.name);
    RangeWriter out(into / file.name, into / file.name, RangeWriter::Way::direct,
                    RangeWriter::Start::empty);
    PieceReader reader;
    for (const auto& range : ranges[f])
      reader.verify(in, range, [&](std::span<const std::byte> bytes) { out.write(bytes); });
    out.commit();
  }
}

}  // namespace lockstep
