#include <algorithm>
#include <limits>
#include <new>
#include <zlib.h>

#include "core/error.h"
#include "data/pack/decompress.h"

namespace lockstep {
namespace {

class Gzip final : public Decompressor {
 public:
  Gzip() {
    constexpr int kOfGzip = 16;  // added to the window bits: gzip header and checksum
    if (inflateInit2(&stream_, MAX_WBITS + kOfGzip) != Z_OK) throw std::bad_alloc();
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&stream_); }

  Step step(std::span<const char> in, std::span<char> out) override {
    if (behind_member_ && !in.empty() && (padded_ || in.front() == 0)) return skip_padding(in);
    behind_member_ = false;
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    // The type is that of zlib, which does not write there.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(std::min(in.size(), kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kMost));
    const auto given = stream_.avail_in, room = stream_.avail_out;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    const bool damaged = code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR;
    if (damaged && room == stream_.avail_out)  // else first the output, then the error
      throw DataError(str("damaged gzip: ", stream_.msg != nullptr ? stream_.msg : "no header"));
    const Step step{given - stream_.avail_in, room - stream_.avail_out, code == Z_STREAM_END};
    if (step.ended) inflateReset(&stream_);
    behind_member_ = step.ended;
    return step;
  }

 private:
  // Skips zeros that fill the last block of a tape, as gzip does.
  Step skip_padding(std::span<const char> in) {
    const auto zeros = static_cast<std::size_t>(
        std::find_if(in.begin(), in.end(), [](char c) { return c != 0; }) - in.begin());
    if (zeros == 0) throw DataError("damaged gzip: expected only zero bytes after the first one");
    padded_ = true;
    return {zeros, 0, true};
  }

  bool behind_member_ = false, padded_ = false;
  z_stream stream_{};
};

}  // namespace

std::unique_ptr<Decompressor> gzip_decompressor() {
  return std::make_unique<Gzip>();
}

}  // namespace lockstep
