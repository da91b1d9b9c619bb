#include "dist/job/compression.h"

#include <zstd.h>

namespace lockstep {
namespace {

constexpr int kLevel = 1;  // the fastest; the texts of ranks repeat

}  // namespace

Bytes compressed(std::span<const std::byte> bytes) {
  Bytes out(ZSTD_compressBound(bytes.size()));
  const auto size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  LOCKSTEP_CHECK(ZSTD_isError(size) == 0, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Bytes decompressed(std::span<const std::byte> bytes, std::size_t most) {
  const auto size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most)
    throw DataError("a compressed message is damaged or too large");
  Bytes out(size);
  const auto got = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  if (got != size) throw DataError("a compressed message is damaged");
  return out;
}

}  // namespace lockstep
