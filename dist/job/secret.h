// Secret: 32 bytes that only the ranks of one job have. Both ends of a connection prove that they
// have them, without sending them: HMAC-SHA256 (RFC 2104, FIPS 180-4) over random numbers of both
// sides.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "core/error.h"

namespace lockstep {

using Bytes32 = std::array<std::byte, 32>;

Bytes32 random_bytes();  // random bytes of the system, fit for keys

class Secret {
 public:
  explicit Secret(const Bytes32& bytes) : bytes_(bytes) {}
  static Secret draw() { return Secret(random_bytes()); }
  // Reads 64 hexadecimal digits, the form of LOCKSTEP_SECRET. Otherwise throws ConfigError, which
  // does not quote the text.
  static Secret from_hex(const std::string& text);

  std::string hex() const;
  std::span<const std::byte> bytes() const { return bytes_; }  // to send to other ranks over MPI
  Bytes32 sign(std::span<const std::byte> text) const;
  // Compares in constant time, so the time does not reveal where the two differ.
  bool signed_by(std::span<const std::byte> text, std::span<const std::byte> signature) const;

 private:
  Bytes32 bytes_;
};

}  // namespace lockstep
