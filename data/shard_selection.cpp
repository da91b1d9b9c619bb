#include "data/shard_selection.h"

#include <algorithm>
#include <fnmatch.h>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "core/file.h"
#include "data/manifest.h"
#include "data/source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMakeDataset =
    "; make a dataset with `lockstep data pack` (docs/packing.md), or follow the first lines of "
    "the configuration";

// Throws DataError if the directory cannot be read.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error == std::errc::no_such_file_or_directory)
    throw DataError(str(directory.string(), ": no such directory", kMakeDataset));
  if (error) fail_io(directory, "cannot read the directory", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

// Replaces the ending `end` of `name` by `other`.
std::string with_end(const std::string& name, std::string_view end, std::string_view other) {
  return name.substr(0, name.size() - end.size()).append(other);
}

// Returns the file of tokens of the shard that a file belongs to.
std::string tokens_name(const std::string& name) {
  for (const std::string_view end : {".idx", ".ends", ".mask"})
    if (name.ends_with(end)) return with_end(name, end, ".bin");
  for (const std::string_view end : {".ds.index", ".ds.metadata", ".ds.loss"})
    if (name.ends_with(end)) return with_end(name, end, ".ds");
  return name;
}

// Whether a name is of a shard of any format, by endings that have no other use.
bool is_of_shard(const std::string& name) {
  if (name.starts_with('.') || name.ends_with(".ends") || name.ends_with(".mask")) return false;
  const auto tokens = tokens_name(name);
  return tokens.ends_with(".bin") || tokens.ends_with(".ds");
}

bool is_letter(char c) {
  return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
}

// Whether `name` contains one of `words`, not as part of another word: "val" in "x_val_01.bin", but
// not in "medieval.bin".
bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
  for (std::size_t first = 0, end = 0; first < name.size(); first = end + 1) {
    for (end = first; end < name.size() && is_letter(name[end]);)
      ++end;
    if (std::ranges::count(words, name.substr(first, end - first)) > 0) return true;
  }
  return false;
}

// nanoGPT and llm.c keep both splits in one directory. As one dataset, a run would train on its
// validation data.
void refuse_mixed_splits(const fs::path& directory, const std::vector<std::string>& names) {
  const auto has = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(names, [&](const auto& name) { return has_word(name, words); });
  };
  if (has({"train", "training"}) && has({"val", "valid", "validation", "eval"}))
    throw DataError(
        str(directory.string(),
            ": has training and validation shards; select one split with a pattern such as \"",
            (directory / "*train*").string(), fs::path(names.front()).extension().string(), '"'));
}

// Keeps one name for several files of a shard.
void to_tokens(std::vector<std::string>& names) {
  for (auto& name : names)
    name = tokens_name(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

// Whether a path is an address; throws DataError for an unsupported scheme.
bool is_elsewhere(const fs::path& path) {
  if (is_remote(path.string())) return true;
  if (path.string().find("://") != std::string::npos)
    throw DataError(str(path.string(), ": expected a path, or s3://, https://, http:// or file:"));
  return false;
}

[[noreturn]] void fail_missing(const fs::path& path, const std::error_code& error) {
  std::error_code unknown;
  const auto here = path.is_relative() ? str(" in ", fs::current_path(unknown).string()) : "";
  const auto reason = error ? error : std::make_error_code(std::errc::no_such_file_or_directory);
  throw_io_error(reason.value(), str(path.string(), ": ", reason.message(), here, kMakeDataset));
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    text += str(i == 0 ? "" : ", ", names[i]);
  return names.empty() ? "nothing" : text + (names.size() > kMost ? ", ..." : "");
}

bool is_described(const std::vector<std::string>& names) {
  return std::binary_search(names.begin(), names.end(), kManifestName);
}

ShardSelection select_pattern(const fs::path& parent, const std::string& pattern) {
  ShardSelection selection{.directory = parent, .names = {}, .beside = names_in(parent)};
  selection.described = is_described(selection.beside);
  for (const auto& name : selection.beside)
    if (fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0) selection.names.push_back(name);
  if (selection.names.empty())
    throw DataError(str((parent / pattern).string(), ": no file matches the pattern"));
  to_tokens(selection.names);
  return selection;
}

ShardSelection select_directory(const fs::path& path) {
  ShardSelection selection{.directory = path, .names = {}, .beside = names_in(path)};
  selection.described = is_described(selection.beside);
  if (selection.described) return selection;
  std::ranges::copy_if(selection.beside, std::back_inserter(selection.names), is_of_shard);
  to_tokens(selection.names);
  if (selection.names.empty()) {
    std::error_code unknown;
    const bool split = fs::exists(path / "train" / kManifestName, unknown);
    throw DataError(str(path.string(), ": has no dataset.json, *.bin or *.ds; found ",
                        some_of(selection.beside),
                        split ? str("; did you mean ", (path / "train").string(), "?") : ""));
  }
  refuse_mixed_splits(path, selection.names);
  return selection;
}

ShardSelection select_file(const fs::path& parent, const std::string& name) {
  return {.directory = parent,
          .described = path_exists(parent / kManifestName),
          .names = {tokens_name(name)},
          .beside = {}};
}

}  // namespace

ShardSelection select_shards(const fs::path& path) {
  const std::string last = path.filename().string();
  const auto parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_elsewhere(path)) {
    if (last.ends_with(".bin")) return {parent, /*described=*/true, {last}, {}};
    return {path, /*described=*/true, {}, {}};
  }
  if (last.find('*') != std::string::npos) return select_pattern(parent, last);
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    std::error_code unknown;
    if (!last.empty() && fs::exists(parent / (last + ".idx"), unknown))  // as Megatron names it
      return select_file(parent, last + ".bin");
    fail_missing(path, error);
  }
  if (fs::is_directory(status)) return select_directory(path);
  return select_file(parent, last);
}

std::string index_name(const std::string& tokens) {
  return with_end(tokens, ".bin", ".idx");
}

}  // namespace lockstep
