#include "data/pack/verify.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "data/manifest.h"
#include "data/pack/progress.h"
#include "data/remote/remote.h"
#include "data/shard_list.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // tokens, or bytes

void check_tokens(const TokenFile& file, Progress& progress) {
  const auto& format = file.format();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(kPiece, file.tokens())));
  for (std::int64_t at = 0; at < file.tokens(); at += kPiece) {
    const auto count = std::min(kPiece, file.tokens() - at);
    file.read(std::span(tokens).first(static_cast<std::size_t>(count)), at,
              format.vocabulary == 0 ? std::int64_t{1} << 31 : format.vocabulary);
    progress.advance(count * format.token_bytes);
  }
}

void check_mask(const LossMask& mask, std::int64_t tokens) {
  std::vector<std::uint8_t> piece(static_cast<std::size_t>(std::min(kPiece, tokens)));
  for (std::int64_t at = 0; at < tokens; at += kPiece)
    mask.read(std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, tokens - at))), at);
}

void check_hash(const ReadFile& file, const std::string& expected) {
  Hasher hasher;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, file.size_bytes())));
  for (std::int64_t at = 0; at < file.size_bytes(); at += kPiece) {
    const auto part =
        std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, file.size_bytes() - at)));
    file.read(part, at);
    hasher.add(part);
  }
  if (const auto found = hasher.hex(); found != expected)
    throw DataError(str(file.path().string(), ": the XXH3-128 of its bytes is ", found, ", ",
                        kManifestName, " specifies ", expected));
}

template <class Check>
void note(std::vector<std::string>& damages, const Check& check) {
  try {
    check();
  } catch (const AccessError&) {  // not a fault of the bytes
    throw;
  } catch (const DataError& error) {
    damages.emplace_back(error.what());
  }
}

// Returns the entries of dataset.json with the hashes, in the order of the list.
std::vector<Manifest::Shard> hashes_of(const ShardList& list, ShardFiles& files) {
  constexpr std::int64_t kMostBytes = 1'000'000'000;
  const auto path = (list.directory / kManifestName).string();
  std::vector<Manifest::Shard> hashes;
  Manifest::parse(read_text(files.open(path), kMostBytes), path, [&](Manifest::Shard&& shard) {
    if (hashes.size() < list.shards.size() && list.shards[hashes.size()].name == shard.file)
      hashes.push_back(std::move(shard));
  });
  if (hashes.size() != list.shards.size())
    throw DataError(str(path, ": changed while it was read"));
  return hashes;
}

// about: the entry of dataset.json, if there is one.
void verify_shard(const Shard& shard, const Manifest::Shard* about, Progress& progress,
                  std::vector<std::string>& damages) {
  note(damages, [&] {
    check_tokens(shard.file, progress);
    if (about != nullptr) check_hash(shard.file.file(), about->hash);
  });
  if (shard.ends)
    note(damages, [&] {
      shard.ends->for_each([](std::int64_t) {});  // throws if the ends do not increase
      if (about != nullptr) check_hash(shard.ends->file(), about->ends_hash);
    });
  if (shard.mask)
    note(damages, [&] {
      check_mask(*shard.mask, shard.file.tokens());
      if (about != nullptr) check_hash(shard.mask->file(), about->mask_hash);
    });
}

// The tokenizer beside a dataset must be the one that made it.
void check_tokenizer(const ShardList& list, ShardFiles& files) {
  if (list.tokenizer_hash.empty() || list.tokenizer_hash == ByteTokenizer().about().hash) return;
  std::string why;
  bool refused = false;
  for (const char* name : kTokenizers) {
    const auto path = list.directory / name;
    const bool remote = is_remote(path.string());
    // S3 also refuses if an object does not exist.
    const bool may_hide = remote && !path.string().starts_with("file:");
    if (!remote && !path_exists(path)) continue;
    std::optional<ReadFile> file;
    try {
      file.emplace(files.open(path.string()));
    } catch (const RefusedError&) {
      if (!may_hide) throw;
      refused = true;
    } catch (const AccessError&) {
      throw;
    } catch (const DataError& error) {
      if (why.empty()) why = str(", or cannot be read (", error.what(), ")");
    }
    if (file) return check_hash(*file, list.tokenizer_hash);
  }
  if (refused) return;
  throw DataError(str((list.directory / kTokenizers[0]).string(), ": is missing", why, "; ",
                      kManifestName, " names the tokenizer ", list.format.name, " (",
                      list.tokenizer_hash, "); copy its file there"));
}

void look_at(const std::filesystem::path& path, ShardFiles& files, Verification& result) {
  const auto list = list_shards(path, files, &result.damages);
  result.shards = std::ssize(result.damages);
  std::int64_t total_bytes = 0;
  for (const auto& shard : list.shards)
    total_bytes += shard.tokens * list.format.token_bytes;
  result.hashed = list.kind == ShardKind::lockstep;
  const auto hashes = result.hashed ? hashes_of(list, files) : std::vector<Manifest::Shard>();
  note(result.damages, [&] { check_tokenizer(list, files); });
  Progress progress("verify", total_bytes);
  for (std::size_t i = 0; i < list.shards.size(); ++i) {
    note(result.damages, [&] {
      const Shard shard = open_shard(list, list.shards[i], files);
      verify_shard(shard, result.hashed ? &hashes[i] : nullptr, progress, result.damages);
      result.tokens += shard.file.tokens();
    });
    ++result.shards;
  }
}

}  // namespace

Verification verify(const std::filesystem::path& path, ShardFiles* files) {
  LocalFiles local;
  Verification result;
  try {
    look_at(path, files == nullptr ? local : *files, result);
  } catch (const AccessError&) {
    result.ended = std::current_exception();
  }
  return result;
}

}  // namespace lockstep
