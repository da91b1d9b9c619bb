// GgufWriter writes the model files of llama.cpp: metadata, then tensors, each in one of three
// types. Source: ggml, docs/gguf.md, version 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace lockstep {

enum class GgufType : std::uint8_t {
  f32,
  f16,
  q8_0,  // blocks of 32 elements of a row: a scale in F16, then 32 integers of 8 bits
};
inline constexpr std::int64_t kGgufBlock = 32;  // elements of a block of q8_0

// Keys and values in order, as the file has them.
class GgufMetadata {
 public:
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }
  void set(std::string_view key, std::int64_t number);  // 32 bits without sign
  void set(std::string_view key, float number);
  void set(std::string_view key, bool flag);
  void set(std::string_view key, const std::vector<std::string>& texts);
  void set(std::string_view key, const std::vector<std::int32_t>& numbers);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void add_key(std::string_view key, std::uint32_t type);
  std::uint64_t count_ = 0;
  std::string bytes_;
};

struct GgufTensor {
  std::string name;
  Shape shape;  // [rows, elements of a row], or [elements]
  GgufType type = GgufType::f32;
};

class GgufWriter {
 public:
  // The row of a q8_0 tensor has whole blocks.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::vector<GgufTensor> tensors);

  // Writes the next elements of the tensors, in their order. A call has whole rows of one tensor.
  // Throws DataError for an element that the type cannot hold.
  void write(std::span<const float> elements);
  // The file exists after this. All tensors must be complete.
  void commit();

 private:
  WriteFile file_;
  std::vector<GgufTensor> tensors_;
  std::size_t tensor_ = 0;    // that is being written
  std::int64_t written_ = 0;  // elements of it
  std::string encoded_;
};

// Rounds to the nearest value of IEEE 754 binary16, ties to even.
std::uint16_t to_half(float value);

}  // namespace lockstep
