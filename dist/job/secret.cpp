#include "dist/job/secret.h"

#include <cerrno>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/random.h>

namespace lockstep {
namespace {

int digit(char c) {
  if ('0' <= c && c <= '9') return c - '0';
  if ('a' <= c && c <= 'f') return c - 'a' + 10;
  if ('A' <= c && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Bytes32 random_bytes() {
  Bytes32 bytes;
  // Requests of up to 256 bytes are answered completely, or fail if a signal came first: random(7).
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    LOCKSTEP_CHECK(errno == EINTR, "the system provides no random numbers");
  return bytes;
}

Secret Secret::from_hex(const std::string& text) {
  Bytes32 bytes{};
  bool fine = text.size() == 2 * bytes.size();
  for (std::size_t i = 0; fine && i < bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    fine = high >= 0 && low >= 0;
    bytes[i] = static_cast<std::byte>(16 * high + low);
  }
  if (!fine)
    throw ConfigError(
        str("LOCKSTEP_SECRET: expected 64 hexadecimal digits, got ", text.size(),
            " characters; create one: export LOCKSTEP_SECRET=$(openssl rand -hex 32)"));
  return Secret(bytes);
}

std::string Secret::hex() const {
  std::string text;
  for (const auto byte : bytes_)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[std::to_integer<int>(byte) >> shift & 15];
  return text;
}

Bytes32 Secret::sign(std::span<const std::byte> text) const {
  Bytes32 signature;
  unsigned int bytes = 0;
  const auto* done = HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(signature.data()), &bytes);
  LOCKSTEP_CHECK(done != nullptr && bytes == signature.size(), "HMAC-SHA256 is not available");
  return signature;
}

bool Secret::signed_by(std::span<const std::byte> text,
                       std::span<const std::byte> signature) const {
  const auto expected = sign(text);
  return signature.size() == expected.size() &&
         CRYPTO_memcmp(signature.data(), expected.data(), expected.size()) == 0;
}

}  // namespace lockstep
