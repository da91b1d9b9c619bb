#include "core/hash.h"

#include <algorithm>
#include <array>
#include <vector>
#define XXH_INLINE_ALL  // avoids a shared library at run time
#include <xxhash.h>

#include "core/file.h"

namespace lockstep {

// The state is allocated with new, which keeps the 64-byte alignment that XXH3_state_t needs.
struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh3);
  XXH3_128bits_reset(&state_->xxh3);
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string Hasher::hex() const {
  XXH128_canonical_t canonical{};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char c : canonical.digest)
    text += {kHex[c >> 4], kHex[c & 15]};
  return text;
}

std::string hash_hex(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.add(bytes);
  return hasher.hex();
}

std::string hash_hex(std::string_view text) {
  return hash_hex(std::as_bytes(std::span(text)));
}

std::string hash_of_file(const std::filesystem::path& path) {
  const ReadFile file(path);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  Hasher hasher;
  for (std::int64_t at = 0; at < file.size_bytes();) {
    const auto left = static_cast<std::size_t>(file.size_bytes() - at);
    const auto bytes = std::span(piece).first(std::min(piece.size(), left));
    file.read(bytes, at);
    hasher.add(bytes);
    at += static_cast<std::int64_t>(bytes.size());
  }
  return hasher.hex();
}

}  // namespace lockstep
