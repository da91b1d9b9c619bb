#include "data/shard_list.h"

#include <algorithm>
#include <sys/stat.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/datatrove.h"
#include "data/manifest.h"
#include "data/megatron.h"
#include "data/shard_selection.h"
#include "data/source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostManifestBytes = 1'000'000'000;  // millions of shards

// Missing finds missing files of a dataset.json, but only local ones, which costs little. Missing
// remote files are found when they are opened.
class Missing {
 public:
  explicit Missing(const ShardSelection& selection)
      : selection_(selection),
        is_distant_(is_remote(selection.directory.string())),
        next_(selection.beside.begin()) {}

  void look_for(const std::string& name) {
    if (is_distant_ || is_there(name)) return;
    if (count_++ == 0) first_ = name;
  }
  void refuse(const std::string& manifest) const {
    if (count_ == 0) return;
    throw DataError(
        str(manifest, ": ", count_,
            count_ == 1 ? " listed file is missing: " : " listed files are missing, the first is ",
            first_, "; copy the whole directory"));
  }

 private:
  // Names in order are found without a search, because millions of searches take seconds.
  bool is_there(const std::string& name) {
    const auto& all = selection_.beside;
    if (all.empty()) return path_exists(selection_.directory / name);
    if (next_ == all.end() || *next_ != name)
      next_ = std::lower_bound(all.begin(), all.end(), name);
    if (next_ == all.end() || *next_ != name) return false;
    ++next_;
    return true;
  }

  const ShardSelection& selection_;
  bool is_distant_;
  std::vector<std::string>::const_iterator next_;
  std::int64_t count_ = 0;
  std::string first_;
};

// Returns all shards of the manifest, or only the selected ones. thorough: their files must exist.
ShardList list_of_manifest(const ShardSelection& selection, ShardFiles& files, bool thorough) {
  const auto path = (selection.directory / kManifestName).string();
  const auto text = read_text(files.open(path), kMostManifestBytes);
  const auto* known = files.manifest(path);
  ShardList list{.directory = selection.directory,
                 .kind = ShardKind::lockstep,
                 .format = {},
                 .tokenizer_hash = {},
                 .shards = {},
                 .fingerprint = {}};
  std::string chosen;
  Missing missing(selection);
  const auto& names = selection.names;
  const auto add = [&](const Manifest::Shard& shard) {
    if (!names.empty() && !std::binary_search(names.begin(), names.end(), shard.file)) return;
    if (!names.empty()) chosen += shard.file + '\n';
    list.has_masks = !shard.mask_hash.empty();
    if (thorough) {
      missing.look_for(shard.file);
      missing.look_for(ends_name(shard.file));
      if (list.has_masks) missing.look_for(mask_name(shard.file));
    }
    list.shards.push_back({shard.file, shard.tokens, shard.documents, {}});
  };
  Manifest parsed;
  if (known == nullptr)
    parsed = Manifest::parse(text, path, [&](const Manifest::Shard& shard) { add(shard); });
  else
    std::for_each(known->shards.begin(), known->shards.end(), add);
  const auto& manifest = known == nullptr ? parsed : *known;
  if (list.shards.empty())
    throw DataError(str((selection.directory / names.front()).string(), ": ", kManifestName,
                        " in the same directory does not list this shard"));
  missing.refuse(path);
  list.format = manifest.format;
  list.fingerprint = hash_hex(text + chosen);
  list.tokenizer_hash = manifest.tokenizer_hash;
  return list;
}

// Fingerprint of a file without a manifest: its size and its first, middle and last 64 KiB. Reading
// all of it could mean terabytes at every start. Another text differs there; a few changed tokens
// elsewhere are not detected.
std::string fingerprint_of(const ReadFile& file) {
  constexpr std::int64_t kSample = 1 << 16;
  const auto size = file.size_bytes(), length = std::min(size, kSample);
  std::vector<std::byte> sample(static_cast<std::size_t>(3 * length));
  const std::span<std::byte> all(sample);
  const auto count = static_cast<std::size_t>(length);
  for (const int k : {0, 1, 2})
    file.read(all.subspan(static_cast<std::size_t>(k) * count, count), k * (size - length) / 2);
  return str(size, ' ', hash_hex(sample));
}

ShardKind kind_of(const fs::path& directory, const std::string& name) {
  if (name.ends_with(".ds")) return ShardKind::datatrove;
  const bool pair = name.ends_with(".bin") && path_exists(directory / index_name(name));
  return pair ? ShardKind::megatron : ShardKind::plain;
}

Shard open_lockstep(const ShardList& list, const ListedShard& about, ShardFiles& files) {
  TokenFile file(files.open(list.path(about).string()), list.format);
  if (file.tokens() != about.tokens)
    file.file().fail(8, str("the header specifies ", file.tokens(), " tokens, ", kManifestName,
                            " specifies ", about.tokens));
  Shard shard{std::move(file), std::make_unique<EndsList>(open_ends(list, about, files)), {}};
  if (list.has_masks)
    shard.mask.emplace(files.open((list.directory / mask_name(about.name)).string()), 0,
                       about.tokens, LossMask::Layout::bits);
  return shard;
}

Shard open_plain(const fs::path& path, ShardFiles& files) {
  Shard shard{TokenFile(files.open(path.string())), nullptr, {}};
  if (const auto offset = shard.file.mask_offset(); offset > 0)
    shard.mask.emplace(files.open(path.string()), offset, shard.file.tokens(),
                       LossMask::Layout::bits);
  return shard;
}

// thorough: checks the whole index, which a dataset does once.
Shard open_megatron(const fs::path& path, ShardFiles& files, bool thorough) {
  auto index = std::make_unique<MegatronIndex>(files.open(index_name(path.string())));
  Shard shard{TokenFile(files.open(path.string()), index->format()), nullptr, {}};
  if (shard.file.tokens() != index->tokens())
    index->file().fail(index->offset_of(0),
                       str("the last sequence ends at token ", index->tokens(), ", but ",
                           path.filename().string(), " has ", shard.file.tokens(), " tokens"));
  if (thorough) index->check();
  shard.ends = std::move(index);
  return shard;
}

Shard open_datatrove(const fs::path& path, ShardFiles& files) {
  const auto name = path.string();
  auto tokens = files.open(name);
  auto index = files.open(name + ".index");
  const auto format = datatrove_format(tokens.size_bytes(), index);
  Shard shard{TokenFile(std::move(tokens), format), nullptr, {}};
  const auto count = shard.file.tokens(), ends = index.size_bytes() / 8;
  shard.ends = std::make_unique<EndsList>(std::move(index), ends, count, EndsList::Empty::left_out);
  if (path_exists(name + ".metadata"))
    check_datatrove_metadata(files.open(name + ".metadata"), format, count);
  if (path_exists(name + ".loss"))
    shard.mask.emplace(files.open(name + ".loss"), 0, count, LossMask::Layout::bytes);
  return shard;
}

Shard open_unlisted(ShardKind kind, const fs::path& path, ShardFiles& files, bool thorough) {
  if (kind == ShardKind::megatron) return open_megatron(path, files, thorough);
  if (kind == ShardKind::datatrove) return open_datatrove(path, files);
  return open_plain(path, files);
}

[[noreturn]] void fail_other_format(const std::string& path, const TokenFormat& a,
                                    const TokenFormat& b) {
  const auto words = [](const TokenFormat& format) {
    return str(format.name, " tokens of ", format.token_bytes,
               format.token_bytes == 1 ? " byte" : " bytes",
               format.vocabulary == 0 ? "" : str(" and vocabulary ", format.vocabulary));
  };
  throw DataError(str(path, ": has ", words(b), ", but the shards before it have ", words(a)));
}

bool same(const TokenFormat& a, const TokenFormat& b) {
  return a.name == b.name && a.vocabulary == b.vocabulary && a.boundary == b.boundary &&
         a.boundary_token == b.boundary_token && a.token_bytes == b.token_bytes;
}

// datatrove writes empty files for tasks without documents.
bool is_empty_datatrove(const fs::path& path) {
  std::error_code unknown;
  return path.extension() == ".ds" && fs::file_size(path, unknown) == 0;
}

// Opens a shard and adds it to the list; `about` collects the input of the fingerprint.
void list_file(ShardList& list, const std::string& name, ShardFiles& files, std::string& about) {
  const auto path = list.directory / name;
  const auto identity = FileIdentity::of(path);
  const auto kind = kind_of(list.directory, name);
  const auto shard = open_unlisted(kind, path, files, /*thorough=*/true);
  if (list.shards.empty()) {
    list.kind = kind;
    list.format = shard.file.format();
    list.has_masks = shard.mask.has_value();
  }
  if (!same(list.format, shard.file.format()))
    fail_other_format(path.string(), list.format, shard.file.format());
  if (list.has_masks != shard.mask.has_value())
    throw DataError(str(path.string(), ": has ", shard.mask ? "a" : "no",
                        " loss mask, unlike the shards before it"));
  about += str(name, ' ', fingerprint_of(shard.file.file()), '\n');
  if (shard.ends) about += str(fingerprint_of(shard.ends->file()), '\n');
  if (kind == ShardKind::datatrove && shard.mask)
    about += str(fingerprint_of(shard.mask->file()), '\n');
  list.shards.push_back({name, shard.file.tokens(), 0, identity});
}

// Lockstep shards have the bytes of llm.c. If they were read as llm.c, masks and document ends
// would be lost.
void refuse_undescribed(const ShardSelection& selection) {
  const auto is_there = [&](const std::string& name) {
    return selection.beside.empty()
               ? path_exists(selection.directory / name)
               : std::binary_search(selection.beside.begin(), selection.beside.end(), name);
  };
  for (const auto& name : selection.names) {
    if (!name.ends_with(".bin")) continue;
    for (const auto& own : {ends_name(name), mask_name(name)})
      if (is_there(own))
        throw DataError(str((selection.directory / name).string(), ": a Lockstep shard with ", own,
                            " beside it, but ", kManifestName,
                            " is missing: copy it with the shards"));
  }
}

ShardList list_of_files(const ShardSelection& selection, ShardFiles& files,
                        std::vector<std::string>* damages) {
  ShardList list{.directory = selection.directory,
                 .format = {},
                 .tokenizer_hash = {},
                 .shards = {},
                 .fingerprint = {}};
  std::string about;
  for (const auto& name : selection.names) {
    if (selection.names.size() > 1 && is_empty_datatrove(list.directory / name)) continue;
    try {
      list_file(list, name, files, about);
    } catch (const AccessError&) {
      throw;
    } catch (const DataError& error) {
      if (damages == nullptr) throw;
      damages->emplace_back(error.what());
    }
  }
  if (list.shards.empty() && (damages == nullptr || damages->empty()))
    throw DataError(str(list.directory.string(), ": the shards hold no tokens"));
  list.fingerprint = hash_hex(about);
  return list;
}

std::string boundary_in_words(const TokenFormat& format) {
  switch (format.boundary) {
    case Boundary::front: return str("the token ", format.boundary_token, " before each");
    case Boundary::behind: return str("the token ", format.boundary_token, " after each");
    case Boundary::listed: return "a list of document ends";
    case Boundary::none: break;
  }
  return "no token or list";
}

}  // namespace

FileIdentity FileIdentity::of(const fs::path& path) {
  constexpr std::int64_t kBillion = 1'000'000'000;
  struct stat status {};
  if (path.string().find("://") != std::string::npos || stat(path.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_mtim.tv_sec * kBillion + status.st_mtim.tv_nsec};
}

ShardList list_shards(const fs::path& path, ShardFiles& files, std::vector<std::string>* damages) {
  const auto selection = select_shards(path);
  if (selection.described)
    return list_of_manifest(selection, files, /*thorough=*/damages == nullptr);
  refuse_undescribed(selection);
  return list_of_files(selection, files, damages);
}

void check_same_format(const ShardList& a, const ShardList& b) {
  const auto refuse = [&](const std::string& of_a, const std::string& of_b, const char* remedy) {
    throw DataError(str(b.path(b.shards.front()).string(), ": ", of_b, ", but in ",
                        a.path(a.shards.front()).string(), ' ', of_a, "; ", remedy));
  };
  const auto& x = a.format;
  const auto& y = b.format;
  if (!a.tokenizer_hash.empty() && !b.tokenizer_hash.empty() &&
      a.tokenizer_hash != b.tokenizer_hash)
    refuse(str("it is ", x.name, " (", a.tokenizer_hash, ")"),
           str("the tokenizer is ", y.name, " (", b.tokenizer_hash, ")"),
           "pack both with one tokenizer");
  if (x.boundary != y.boundary || x.boundary_token != y.boundary_token)
    refuse("by " + boundary_in_words(x), str("documents are separated by ", boundary_in_words(y)),
           "give each its own [[data.source]] table, or run `lockstep data convert` on each "
           "separately");
}

std::vector<std::string> files_of(const ShardList& list, const ListedShard& shard) {
  std::vector<std::string> names{shard.name, ends_name(shard.name)};
  if (list.has_masks) names.push_back(mask_name(shard.name));
  for (auto& name : names)
    name = (list.directory / name).string();
  return names;
}

EndsList open_ends(const ShardList& list, const ListedShard& shard, ShardFiles& files) {
  return {files.open((list.directory / ends_name(shard.name)).string()), shard.documents,
          shard.tokens};
}

Shard open_shard(const ShardList& list, const ListedShard& about, ShardFiles& files) {
  if (list.kind == ShardKind::lockstep) return open_lockstep(list, about, files);
  auto shard = open_unlisted(list.kind, list.path(about), files, /*thorough=*/false);
  const bool as_it_was = shard.file.tokens() == about.tokens &&
                         same(list.format, shard.file.format()) &&
                         shard.mask.has_value() == list.has_masks;
  if (!as_it_was)
    shard.file.file().fail(0, str("the shard changed since the start of the run, when it had ",
                                  about.tokens, " tokens"));
  return shard;
}

}  // namespace lockstep
