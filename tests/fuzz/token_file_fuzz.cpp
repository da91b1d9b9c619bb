// Any file is rejected, or is a shard whose header matches its size and whose tokens and mask are
// readable.
#include <algorithm>

#include "data/loss_mask.h"
#include "data/token_file.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::token_file_fuzz {
constexpr std::int64_t kAny = std::int64_t{1} << 32;

std::string shard(std::int32_t magic, std::int32_t version, std::int32_t tokens, int token_bytes) {
  std::string bytes = raw(magic) + raw(version) + raw(tokens);
  bytes.resize(kShardHeaderBytes);
  for (std::int32_t i = 0; i < tokens * token_bytes; ++i)
    bytes.push_back(static_cast<char>(i * 37));
  return bytes;
}

std::string llmq_shard(std::int32_t version, std::int32_t tokens, std::int32_t has_masks) {
  std::string bytes =
      "BIN.TOK\n" + raw(std::vector<std::int32_t>{version, 4, tokens, 50'000, has_masks});
  bytes.resize(kShardHeaderBytes, '*');
  bytes.append(static_cast<std::size_t>(4 * tokens), '\1');
  return bytes + std::string(has_masks == 1 ? static_cast<std::size_t>((tokens + 7) / 8) : 0, '\0');
}

void check_mask(const TokenFile& file) {
  if (file.mask_offset() == 0) return;
  const LossMask mask(ReadFile(file.file().path()), file.mask_offset(), file.tokens(),
                      LossMask::Layout::bits);
  std::vector<std::uint8_t> all(static_cast<std::size_t>(file.tokens()));
  mask.read(all, 0);
  LOCKSTEP_CHECK(std::all_of(all.begin(), all.end(), [](auto bit) { return bit < 2; }), "no bit");
}

// The file was accepted, so a DataError may only be for a token out of range.
void check_reads(const TokenFile& file) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(file.tokens()));
  try {
    file.read(all, 0, kAny);
    for (std::int64_t first = 0; first < file.tokens(); first += 1 + file.tokens() / 7) {
      std::vector<std::int32_t> some(
          static_cast<std::size_t>(std::min<std::int64_t>(5, file.tokens() - first)));
      file.read(some, first, kAny);
      LOCKSTEP_CHECK(std::equal(some.begin(), some.end(), all.begin() + first),
                     "a window differs from the whole");
    }
  } catch (const DataError& error) {
    if (file.format().is_signed) return;  // a negative id
    LOCKSTEP_FAIL(error.what());
  }
  if (file.format().vocabulary == 0) return;
  file.read(all, 0, file.format().vocabulary);
  for (const auto token : all)
    LOCKSTEP_CHECK(0 <= token && token < file.format().vocabulary, "token ", token);
}

Seeds seeds() {
  return {shard(kShardMagicU16, kShardVersionU16, 40, 2),
          shard(kShardMagicU32, kShardVersionU32, 20, 4),
          shard(kShardMagicU16, kShardVersionU16, 1, 2), llmq_shard(2, 20, 1),
          llmq_shard(1, 8, 0x2a2a2a2a)};
}

void check_file(std::string_view bytes) {
  static const MemoryFile file;
  file.set(bytes);
  const TokenFile shard(file.path());
  const auto mask_bytes = shard.mask_offset() > 0 ? (shard.tokens() + 7) / 8 : 0;
  LOCKSTEP_CHECK(
      shard.tokens() > 0 && shard.offset_of(shard.tokens()) + mask_bytes == std::ssize(bytes),
      shard.tokens(), " tokens in ", bytes.size(), " bytes");
  check_mask(shard);
  check_reads(shard);
}

// Checks the input unchanged, and with the number of tokens of its size, which most mutations
// break.
void check(std::string_view input) {
  may_refuse([&] { check_file(input); });
  if (input.size() <= kShardHeaderBytes) return;
  std::string bytes(input);
  bytes.replace(8, 4, raw(static_cast<std::int32_t>((input.size() - kShardHeaderBytes) / 2)));
  check_file(bytes);
}

const Target target("token_file", seeds, check);

}  // namespace lockstep::fuzz::token_file_fuzz
