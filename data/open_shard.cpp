#include "data/open_shard.h"

#include <array>
#include <span>

namespace lockstep {
namespace {

using Header = std::array<std::int32_t, kShardHeaderBytes / 4>;

Header header_of(std::int64_t tokens, int token_bytes) {
  const auto count = static_cast<std::int32_t>(tokens);
  if (token_bytes == 2) return {kShardMagicU16, kShardVersionU16, count};
  return {kShardMagicU32, kShardVersionU32, count};
}

HashedFile tokens_file(const std::filesystem::path& path, const ShardLayout& layout,
                       std::int64_t kept_tokens) {
  const auto header = header_of(layout.shard_tokens, layout.token_bytes);
  return {path, std::as_bytes(std::span(header)),
          kept_tokens == 0 ? 0 : kShardHeaderBytes + layout.token_bytes * kept_tokens};
}

}  // namespace

OpenShard::OpenShard(const std::filesystem::path& directory, const std::string& name,
                     const ShardLayout& layout, std::int64_t kept_tokens,
                     std::int64_t kept_documents)
    : tokens(tokens_file(directory / name, layout, kept_tokens)),
      ends(directory / ends_name(name), {}, 8 * kept_documents),
      token_bytes_(layout.token_bytes) {
  about.file = name;
  if (layout.masked)
    mask.emplace(directory / mask_name(name), std::span<const std::byte>{}, kept_tokens / 8);
}

void OpenShard::flush() {
  tokens.flush();
  ends.flush();
  if (mask) mask->flush();
}

void OpenShard::sync() const {
  ends.sync();
  if (mask) mask->sync();
  tokens.sync();
}

void OpenShard::commit() {
  ends.commit();
  if (mask) mask->commit();
  tokens.commit();
}

void OpenShard::write_header(std::int64_t count) {
  const auto header = header_of(count, token_bytes_);
  tokens.write_header(std::as_bytes(std::span(header)));
}

}  // namespace lockstep
