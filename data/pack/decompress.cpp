#include "data/pack/decompress.h"

namespace lockstep {

std::unique_ptr<Decompressor> decompressor_for(std::string_view first_bytes) {
  using namespace std::string_view_literals;
  const auto begins_with = [&](std::string_view magic) { return first_bytes.starts_with(magic); };
  if (begins_with("\x1f\x8b"sv)) return gzip_decompressor();
  // A frame, or a skippable one: 0x184d2a50 to 5f.
  const bool skippable = first_bytes.size() >= kMagicBytes && (first_bytes[0] & '\xf0') == '\x50' &&
                         first_bytes.substr(1).starts_with("\x2a\x4d\x18"sv);
  if (begins_with("\x28\xb5\x2f\xfd"sv) || skippable) return zstd_decompressor();
  return nullptr;
}

}  // namespace lockstep
