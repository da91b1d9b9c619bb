// Hash computes XXH3-128, the checksum of all file formats here. It detects accidents, not attacks.
// Source: the xxHash specification, version 0.8; `xxh128sum` prints the same digits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Hasher hashes bytes that arrive in pieces of any size.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void add(std::span<const std::byte> bytes);
  std::string hex() const;  // 32 digits: hash of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::span<const std::byte> bytes);
std::string hash_hex(std::string_view text);
std::string hash_of_file(const std::filesystem::path& path);  // reads the file in pieces

}  // namespace lockstep
