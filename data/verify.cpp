#include "data/verify.h"

#include <algorithm>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "data/progress.h"
#include "data/shard_list.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // tokens

void check_tokens(const TokenFile& file, Progress& progress) {
  const auto& format = file.format();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(kPiece, file.tokens())));
  for (std::int64_t at = 0; at < file.tokens(); at += kPiece) {
    const auto count = std::min(kPiece, file.tokens() - at);
    file.read(std::span(tokens).first(static_cast<std::size_t>(count)), at,
              format.vocabulary == 0 ? std::int64_t{1} << 32 : format.vocabulary);
    progress.advance(count * format.token_bytes);
  }
}

void check_hash(const ReadFile& file, const std::string& expected) {
  const auto found = hash_of_file(file.path());
  if (found != expected)
    throw DataError(str(file.path().string(), ": the XXH3-128 of its bytes is ", found, ", ",
                        kManifestName, " says ", expected));
}

template <class Check>
void note(std::vector<std::string>& damages, const Check& check) {
  try {
    check();
  } catch (const DataError& error) {
    damages.emplace_back(error.what());
  }
}

// The tokenizer that lies beside a dataset is the one that made it.
void check_tokenizer(const std::filesystem::path& path) {
  const auto tokenizer = path / "tokenizer.json";
  if (!path_exists(path / kManifestName) || !path_exists(tokenizer)) return;
  const auto text = read_text(path / kManifestName, std::int64_t{1} << 30);
  check_hash(ReadFile(tokenizer), Manifest::parse(text, kManifestName).tokenizer_hash);
}

}  // namespace

Verification verify(const std::filesystem::path& path) {
  const auto list = list_shards(path);
  Verification result;
  std::int64_t total_bytes = 0;
  for (const auto& shard : list.shards) {
    std::error_code missing;
    const auto bytes = std::filesystem::file_size(shard.path, missing);
    if (!missing) total_bytes += static_cast<std::int64_t>(bytes);
  }
  note(result.damages, [&] { check_tokenizer(path); });
  Progress progress("verify", total_bytes);
  for (const auto& listed : list.shards) {
    ++result.shards;
    result.hashed = listed.about.has_value();
    note(result.damages, [&] {
      const Shard shard = open_shard(listed);
      result.tokens += shard.file.tokens();
      note(result.damages, [&] {
        check_tokens(shard.file, progress);
        if (listed.about) check_hash(shard.file.file(), listed.about->hash);
      });
      if (!shard.ends) return;
      shard.ends->for_each([](std::int64_t) {});  // refuses what does not rise
      check_hash(shard.ends->file(), listed.about->ends_hash);
      if (listed.about->mask_hash.empty()) return;
      check_hash(ReadFile(listed.path.parent_path() / mask_name(listed.about->file)),
                 listed.about->mask_hash);
    });
  }
  return result;
}

}  // namespace lockstep
