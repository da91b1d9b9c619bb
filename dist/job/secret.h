// Secret: 32 bytes that every rank of one job knows and nobody else. Whoever connects proves that
// it knows them, and is shown the same, without saying them: HMAC-SHA256 (RFC 2104, FIPS 180-4)
// over random numbers of both sides.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "core/error.h"

namespace lockstep {

using Bytes32 = std::array<std::byte, 32>;

Bytes32 random_bytes();  // from the system, for keys

class Secret {
 public:
  explicit Secret(const Bytes32& bytes) : bytes_(bytes) {}
  static Secret draw() { return Secret(random_bytes()); }
  // 64 hexadecimal digits, as LOCKSTEP_SECRET has them; ConfigError otherwise, without the text.
  static Secret from_hex(const std::string& text);

  std::string hex() const;
  std::span<const std::byte> bytes() const { return bytes_; }  // to hand it to other ranks
  Bytes32 sign(std::span<const std::byte> text) const;
  // In a time that says nothing of where the two differ.
  bool signed_by(std::span<const std::byte> text, std::span<const std::byte> signature) const;

 private:
  Bytes32 bytes_;
};

}  // namespace lockstep
