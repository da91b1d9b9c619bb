#include "core/zstd.h"

#include <new>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr int kLevel = 1;  // the fastest

}  // namespace

std::vector<std::byte> zstd_compressed(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  const auto size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  LOCKSTEP_CHECK(ZSTD_isError(size) == 0, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::vector<std::byte> zstd_decompressed(std::span<const std::byte> bytes, std::size_t most) {
  const auto size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most)
    throw DataError("a compressed message is damaged or too large");
  std::vector<std::byte> out(size);
  const auto made = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  if (made != size) throw DataError("a compressed message is damaged");
  return out;
}

struct ZstdReader::Context {
  Context() : decoder(ZSTD_createDCtx()) {
    if (decoder == nullptr) throw std::bad_alloc();
    const auto most = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound;
    ZSTD_DCtx_setParameter(decoder, ZSTD_d_windowLogMax, most);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeDCtx(decoder); }

  ZSTD_DCtx* decoder;
};

ZstdReader::ZstdReader() : context_(std::make_unique<Context>()) {}
ZstdReader::~ZstdReader() = default;

ZstdReader::Step ZstdReader::step(std::span<const char> in, std::span<char> out) {
  ZSTD_inBuffer from{in.data(), in.size(), 0};
  ZSTD_outBuffer into{out.data(), out.size(), 0};
  const auto left = ZSTD_decompressStream(context_->decoder, &into, &from);
  if (ZSTD_getErrorCode(left) == ZSTD_error_dictionary_wrong)
    throw DataError(
        "zstd with a dictionary, which is not in the file; decompress it first: zstd -D DICTIONARY "
        "-dc FILE | lockstep data pack - ...");
  if (ZSTD_isError(left) != 0) throw DataError(str("damaged zstd: ", ZSTD_getErrorName(left)));
  return {from.pos, into.pos, left == 0};
}

}  // namespace lockstep
