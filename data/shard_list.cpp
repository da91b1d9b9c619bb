#include "data/shard_list.h"

#include <algorithm>
#include <fnmatch.h>

#include "core/file.h"
#include "core/hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostManifestBytes = 100'000'000;

// Throws DataError where the directory cannot be read.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error)
    throw DataError(str(directory.string(), ": cannot read the directory: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// nanoGPT and llm.c keep both splits in one directory: taken as one dataset, a run would train on
// what it is judged by.
void refuse_mixed_splits(const fs::path& directory, const std::vector<std::string>& names) {
  const auto has = [&](const char* part) {
    return std::any_of(names.begin(), names.end(), [&](auto& n) { return contains(n, part); });
  };
  if (has("train") && has("val"))
    throw DataError(str(directory.string(),
                        ": holds shards of training and of validation; name one "
                        "split by a pattern, as in \"",
                        (directory / "*train*.bin").string(), '"'));
}

// The directory and the names of shards in it that a path means; no names: what its dataset.json
// lists.
struct Selection {
  fs::path directory;
  std::vector<std::string> names;
};

Selection select(const fs::path& path) {
  const std::string last = path.filename().string();
  const auto parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (contains(last, "*")) {
    Selection selection{parent, names_in(parent)};
    std::erase_if(selection.names, [&](const std::string& name) {
      return fnmatch(last.c_str(), name.c_str(), FNM_PERIOD) != 0;
    });
    if (selection.names.empty())
      throw DataError(str(path.string(), ": no file matches the pattern"));
    return selection;
  }
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    std::error_code unknown;
    const auto here = path.is_relative() ? str(" in ", fs::current_path(unknown).string()) : "";
    throw DataError(str(path.string(), ": ", error ? error.message() : "no such file or directory",
                        here, "; datasets are made by `lockstep data pack`"));
  }
  if (!fs::is_directory(status)) return {parent, {last}};
  Selection selection{path, names_in(path)};
  if (std::binary_search(selection.names.begin(), selection.names.end(), kManifestName))
    return {path, {}};
  std::erase_if(selection.names, [](const std::string& name) { return !name.ends_with(".bin"); });
  if (selection.names.empty()) {
    const bool split = fs::exists(path / "train" / kManifestName, error);
    throw DataError(str(path.string(), ": holds neither dataset.json nor *.bin shards",
                        split ? str("; did you mean ", (path / "train").string(), "?") : ""));
  }
  refuse_mixed_splits(path, selection.names);
  return selection;
}

// The manifest's shards, or those of them that are named.
ShardList list_of_manifest(const fs::path& path, const std::vector<std::string>& names) {
  const auto text = read_text(path, kMostManifestBytes);
  const auto manifest = Manifest::parse(text, path.string());
  ShardList list;
  std::string chosen;
  for (const auto& shard : manifest.shards) {
    if (!names.empty() && !std::binary_search(names.begin(), names.end(), shard.file)) continue;
    list.shards.push_back({path.parent_path() / shard.file, shard, manifest.format});
    if (!names.empty()) chosen += shard.file + '\n';
  }
  if (list.shards.empty())
    throw DataError(str((path.parent_path() / names.front()).string(), ": not a shard that ",
                        kManifestName, " beside it lists"));
  list.fingerprint = hash_hex(text + chosen);
  list.tokenizer_hash = manifest.tokenizer_hash;
  return list;
}

// Of a shard that no manifest describes: its size and its first, middle and last 64 KiB. All of it
// would be terabytes at every start. Another text differs there; a few tokens changed elsewhere are
// not seen.
std::string fingerprint_of(const fs::path& path) {
  constexpr std::int64_t kSample = 1 << 16;
  const ReadFile file(path);
  const auto size = file.size_bytes(), length = std::min(size, kSample);
  std::vector<std::byte> sample(static_cast<std::size_t>(3 * length));
  const std::span<std::byte> all(sample);
  const auto count = static_cast<std::size_t>(length);
  for (const int k : {0, 1, 2})
    file.read(all.subspan(static_cast<std::size_t>(k) * count, count), k * (size - length) / 2);
  return str(size, ' ', hash_hex(sample));
}

}  // namespace

ShardList list_shards(const fs::path& path) {
  const auto [directory, names] = select(path);
  std::error_code error;
  if (fs::exists(directory / kManifestName, error))
    return list_of_manifest(directory / kManifestName, names);
  ShardList list;
  std::string about;
  for (const auto& name : names) {
    list.shards.push_back({directory / name, {}, {}});
    about += str(name, ' ', fingerprint_of(directory / name), '\n');
  }
  list.fingerprint = hash_hex(about);
  return list;
}

Shard open_shard(const ListedShard& shard) {
  if (!shard.about) return {TokenFile(shard.path), {}};
  TokenFile file(shard.path, shard.format);
  const auto& about = *shard.about;
  if (file.tokens() != about.tokens)
    file.file().fail(8, str("the header says ", file.tokens(), " tokens, ", kManifestName, " says ",
                            about.tokens));
  const auto ends = shard.path.parent_path() / ends_name(about.file);
  return {std::move(file), DocumentEnds(ends, about.documents, about.tokens)};
}

}  // namespace lockstep
