// Safetensors stores named arrays in one file, the format of checkpoints and Hugging Face models.
// A file is u64 N; N bytes of JSON; data. The JSON names each tensor's type, shape and byte range,
// counted from byte 8 + N. Source: huggingface/safetensors, README.md, "Format".
//
// The reader checks that the ranges cover the data from byte 0 to the end of the file without gaps
// or overlaps. It also checks that the length of each range matches its type and shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace lockstep {

enum class StoredType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64
};

const char* name(StoredType type);  // "F32"
StoredType stored_type(DType type);
std::int64_t bytes_per_element(StoredType type);
bool is_float(StoredType type);  // F64, F32, BF16 or F16

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  // at most 8 dimensions; empty: one element
  std::int64_t offset = 0;          // offset of the first byte in the file
  std::int64_t bytes = 0;

  std::int64_t elements() const { return bytes / bytes_per_element(type); }
};

using StoredMetadata = std::vector<std::pair<std::string, std::string>>;

class SafetensorsFile {
 public:
  // Throws DataError with the file and the offset or tensor if the file violates a rule above.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const ReadFile& file() const { return file_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of the data
  const StoredTensor* find(std::string_view name) const;                 // nullptr if absent
  const StoredMetadata& metadata() const { return metadata_; }

  // Fills `out`, in host memory, with the elements [first, first + out.elements()) of `tensor`.
  // F64, F32, BF16 and F16 convert to fp32, and fp32 to bf16, each rounding to nearest even; other
  // types must be equal. Throws DataError for an F64 value beyond the range of fp32.
  void read(const StoredTensor& tensor, std::int64_t first, Tensor out) const;
  // Fills `out` with elements as numbers, starting at `first`. Converts any type except F8. Rounds
  // integers beyond 2^53.
  void read(const StoredTensor& tensor, std::int64_t first, std::span<double> out) const;

 private:
  void parse(std::string_view header, std::int64_t data_begin);
  static void check_range(const StoredTensor& tensor, std::int64_t first, std::int64_t count);
  void read_floats(const StoredTensor& tensor, std::int64_t first, std::span<float> out) const;

  ReadFile file_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;
  StoredMetadata metadata_;
};

// Sets offsets and sizes of tensors with given names, types and shapes, for a file that holds them
// in this order. Returns the bytes of the file before the first tensor.
std::string lay_out_safetensors(std::vector<StoredTensor>& tensors, const StoredMetadata& metadata);

class SafetensorsWriter {
 public:
  // Writes the header from name, type and shape of `tensors`. Their data follow in this order.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<StoredTensor> tensors,
                    const StoredMetadata& metadata = {});

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // with offsets
  const std::string& header() const { return header_; }  // all bytes before the data

  void write(std::span<const std::byte> bytes);  // data in pieces of any size
  void commit();  // gives the file its name; throws if data are missing

 private:
  std::vector<StoredTensor> tensors_;
  std::string header_;
  WriteFile file_;
};

}  // namespace lockstep
