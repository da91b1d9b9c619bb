#include <new>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/error.h"
#include "data/pack/decompress.h"

namespace lockstep {
namespace {

class Zstd final : public Decompressor {
 public:
  Zstd() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
    const auto most = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound;
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, most);
  }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;
  ~Zstd() override { ZSTD_freeDCtx(context_); }

  Step step(std::span<const char> in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer into{out.data(), out.size(), 0};
    const auto left = ZSTD_decompressStream(context_, &into, &from);
    if (ZSTD_getErrorCode(left) == ZSTD_error_dictionary_wrong)
      throw DataError(
          "zstd with a dictionary, which is not in the file; decompress it first: zstd -D "
          "DICTIONARY -dc FILE | lockstep data pack - ...");
    if (ZSTD_isError(left) != 0) throw DataError(str("damaged zstd: ", ZSTD_getErrorName(left)));
    return {from.pos, into.pos, left == 0};
  }

 private:
  ZSTD_DCtx* context_;
};

}  // namespace

std::unique_ptr<Decompressor> zstd_decompressor() {
  return std::make_unique<Zstd>();
}

}  // namespace lockstep
