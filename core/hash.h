// Hash: XXH3-128, the checksum of every file format here. It finds accidents, not attackers.
// Source: the xxHash specification, version 0.8; `xxh128sum` prints the same digits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Of bytes that arrive in pieces; how they are cut does not matter.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void add(std::span<const std::byte> bytes);
  std::string hex() const;  // 32 digits, of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::span<const std::byte> bytes);
std::string hash_hex(std::string_view text);
std::string hash_of_file(const std::filesystem::path& path);  // of all its bytes, a piece at a time

}  // namespace lockstep
