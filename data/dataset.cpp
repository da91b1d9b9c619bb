#include "data/dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fnmatch.h>
#include <sys/resource.h>

#include "core/hash.h"
#include "data/manifest.h"

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
  if (!fs::exists(status))
    throw DataError(str(path.string(), ": ", error ? error.message() : "no such file or directory",
                        "; datasets are made by `lockstep data pack`"));
  if (!fs::is_directory(status)) return {parent, {last}};
  Selection selection{path, names_in(path)};
  if (std::binary_search(selection.names.begin(), selection.names.end(), kManifestName))
    return {path, {}};
  std::erase_if(selection.names, [](const std::string& name) { return !name.ends_with(".bin"); });
  if (selection.names.empty())
    throw DataError(str(path.string(), ": holds neither dataset.json nor *.bin shards"));
  refuse_mixed_splits(path, selection.names);
  return selection;
}

// A shard stays open: reading it later must not depend on what the path then names.
void allow_open_files(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(count) + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);  // where it does not help, opening says what is wrong
}

void check_same_format(const TokenFormat& a, const TokenFile& shard) {
  const TokenFormat& b = shard.format();
  if (a.name == b.name && a.vocabulary == b.vocabulary && a.boundary == b.boundary &&
      a.boundary_token == b.boundary_token && a.token_bytes == b.token_bytes)
    return;
  throw DataError(str(shard.file().path().string(), ": ", b.name, " tokens of vocabulary ",
                      b.vocabulary, ", but the shards before it are ", a.name, " of vocabulary ",
                      a.vocabulary));
}

Shard open_shard(const fs::path& directory, const Manifest& manifest,
                 const Manifest::Shard& entry) {
  const auto path = directory / entry.file;
  TokenFile file(path, manifest.format);
  if (file.tokens() != entry.tokens)
    file.file().fail(8, str("the header says ", file.tokens(), " tokens, ", kManifestName, " says ",
                            entry.tokens));
  DocumentEnds ends(directory / ends_name(entry.file), entry.documents, entry.tokens);
  return {std::move(file), std::move(ends)};
}

std::string describe(const Shard& shard) {
  const auto& file = shard.file.file();
  return str(file.path().filename().string(), ' ', file.size_bytes(), '\n');
}

}  // namespace

Dataset::Dataset(const std::vector<std::string>& paths) {
  if (paths.empty()) throw DataError("a dataset of no paths");
  std::string fingerprints;
  for (const auto& path : paths) {
    fingerprint_ = open(path);
    fingerprints += fingerprint_ + '\n';
  }
  if (paths.size() > 1) fingerprint_ = hash_hex(fingerprints);
  for (const auto& shard : shards_) {
    check_same_format(format(), shard.file);
    starts_.push_back(tokens() + shard.file.tokens());
  }
}

std::string Dataset::open(const fs::path& path) {
  const auto [directory, names] = select(path);
  const auto manifest = directory / kManifestName;
  std::error_code error;
  if (fs::exists(manifest, error)) return open_listed(manifest, names);
  allow_open_files(shards_.size() + names.size());
  std::string about;
  for (const auto& name : names) {
    shards_.push_back({TokenFile(directory / name), {}});
    about += describe(shards_.back());
  }
  return hash_hex(about);
}

std::string Dataset::open_listed(const fs::path& path, const std::vector<std::string>& names) {
  const auto text = read_text(path, kMostManifestBytes);
  const auto manifest = Manifest::parse(text, path.string());
  allow_open_files(2 * (shards_.size() + manifest.shards.size()));
  std::string about = text;
  std::size_t taken = 0;
  for (const auto& entry : manifest.shards) {
    if (!names.empty() && !std::binary_search(names.begin(), names.end(), entry.file)) continue;
    shards_.push_back(open_shard(path.parent_path(), manifest, entry));
    if (!names.empty()) about += describe(shards_.back());
    ++taken;
  }
  if (taken == 0)
    throw DataError(str((path.parent_path() / names.front()).string(), ": not a shard that ",
                        kManifestName, " beside it lists"));
  return hash_hex(about);
}

std::size_t Dataset::shard_of(std::int64_t token) const {
  const auto above = std::upper_bound(starts_.begin(), starts_.end(), token);
  return static_cast<std::size_t>(above - starts_.begin()) - 1;
}

void Dataset::read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const {
  const auto count = static_cast<std::int64_t>(out.size());
  LOCKSTEP_CHECK(0 <= first && first <= tokens() - count, "tokens ", first, "+", count, " of ",
                 tokens());
  constexpr auto kAny = std::int64_t{1} << 32;
  const auto own = format().vocabulary == 0 ? kAny : format().vocabulary;
  const auto limit = vocabulary == 0 ? own : std::min(own, vocabulary);
  for (auto shard = shard_of(first); !out.empty(); ++shard) {
    const auto here =
        std::min<std::int64_t>(starts_[shard + 1] - first, static_cast<std::int64_t>(out.size()));
    shards_[shard].file.read(out.first(static_cast<std::size_t>(here)), first - starts_[shard],
                             limit);
    out = out.subspan(static_cast<std::size_t>(here));
    first += here;
  }
}

void Dataset::find_documents(std::span<std::int32_t> document_start,
                             std::span<const std::int32_t> tokens, std::int64_t first) const {
  std::fill(document_start.begin(), document_start.end(), 0);
  if (format().boundary == Boundary::listed) {
    mark_listed_documents(document_start, first);
  } else {
    const std::size_t behind = format().boundary == Boundary::behind ? 1 : 0;
    for (std::size_t i = 1; i < tokens.size(); ++i)
      if (tokens[i - behind] == format().boundary_token)
        document_start[i] = static_cast<std::int32_t>(i);
  }
  std::int32_t start = 0;
  for (auto& s : document_start)
    start = s = std::max(s, start);
}

void Dataset::mark_listed_documents(std::span<std::int32_t> document_start,
                                    std::int64_t first) const {
  const auto last = first + static_cast<std::int64_t>(document_start.size());
  for (auto shard = shard_of(first); shard < shards_.size() && starts_[shard] < last; ++shard) {
    const auto& ends = *shards_[shard].ends;
    const auto local = std::max<std::int64_t>(first - starts_[shard], 0);
    for (auto i = ends.first_after(local); i < ends.count(); ++i) {
      const auto at = starts_[shard] + ends.end(i) - first;
      if (at < 0) ends.file().fail(8 * i, "the ends of documents do not rise");
      if (at >= last - first) break;
      document_start[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(at);
    }
  }
}

}  // namespace lockstep
