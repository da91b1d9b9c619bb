#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "checkpoint/convert.h"
#include "core/git_lfs.h"
#include "core/json.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::int64_t kMostHeaderBytes = 100'000'000;
constexpr std::size_t kMostDimensions = 8;
constexpr int kMostNesting = 4;
constexpr std::int64_t kPiece = 65536;  // elements converted at a time; fits a CPU cache
constexpr std::string_view kMetadata = "__metadata__";

struct TypeRow {
  const char* name;
  std::int64_t bytes;
};
constexpr std::array<TypeRow, 15> kTypes = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E4M3", 1},
                                             {"F8_E5M2", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"I64", 8},
                                             {"U64", 8},
                                             {"F64", 8}}};

const TypeRow& row(StoredType type) {
  return kTypes[static_cast<std::size_t>(type)];
}

StoredType parse_type(const std::string& text) {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (text == kTypes[i].name) return static_cast<StoredType>(i);
  throw DataError(str("unknown dtype \"", text, "\""));
}

// Bytes of a tensor; nullopt on overflow or for a negative size.
std::optional<std::int64_t> checked_bytes(const StoredTensor& tensor) {
  std::int64_t bytes = bytes_per_element(tensor.type);
  for (const auto size : tensor.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

std::vector<std::int64_t> parse_dimensions(const Json& json) {
  const auto& sizes = json.as_array();
  if (sizes.size() > kMostDimensions)
    throw DataError(str("expected at most ", kMostDimensions, " dimensions, found ", sizes.size()));
  std::vector<std::int64_t> shape;
  for (const auto& size : sizes) {
    if (size.as_integer() < 0) throw DataError(str("invalid dimension size ", size.as_integer()));
    shape.push_back(size.as_integer());
  }
  return shape;
}

// The offset is relative to the first byte of data, as in the header.
StoredTensor parse_tensor(const std::string& name, const Json& json) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = parse_type(json.at("dtype").as_string());
  tensor.shape = parse_dimensions(json.at("shape"));
  const auto& offsets = json.at("data_offsets").as_array();
  if (offsets.size() != 2) throw DataError(str("expected 2 data_offsets, found ", offsets.size()));
  const std::int64_t begin = offsets[0].as_integer(), end = offsets[1].as_integer();
  if (begin < 0 || end < begin)
    throw DataError(str("invalid data_offsets [", begin, ", ", end, "]"));
  const auto expected = checked_bytes(tensor);
  if (!expected || *expected != end - begin)
    throw DataError(str("dtype and shape give ", expected ? str(*expected) : "more than 2^63",
                        " bytes, data_offsets give ", end - begin));
  tensor.offset = begin;
  tensor.bytes = end - begin;
  return tensor;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa x 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

struct Half {
  std::uint16_t bits;
};

template <class Stored>
void copy_numbers(std::span<const std::byte> from, std::span<double> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored value{};
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    if constexpr (std::is_same_v<Stored, Half>)
      to[i] = static_cast<double>(half_to_float(value.bits));
    else if constexpr (std::is_same_v<Stored, BFloat16>)
      to[i] = static_cast<double>(to_float(value));
    else
      to[i] = static_cast<double>(value);
  }
}

// Converts elements to numbers; returns false if the type is F8.
bool to_numbers(StoredType type, std::span<const std::byte> from, std::span<double> to) {
  switch (type) {
    case StoredType::boolean:
    case StoredType::u8: copy_numbers<std::uint8_t>(from, to); return true;
    case StoredType::i8: copy_numbers<std::int8_t>(from, to); return true;
    case StoredType::i16: copy_numbers<std::int16_t>(from, to); return true;
    case StoredType::u16: copy_numbers<std::uint16_t>(from, to); return true;
    case StoredType::i32: copy_numbers<std::int32_t>(from, to); return true;
    case StoredType::u32: copy_numbers<std::uint32_t>(from, to); return true;
    case StoredType::i64: copy_numbers<std::int64_t>(from, to); return true;
    case StoredType::u64: copy_numbers<std::uint64_t>(from, to); return true;
    case StoredType::f16: copy_numbers<Half>(from, to); return true;
    case StoredType::bf16: copy_numbers<BFloat16>(from, to); return true;
    case StoredType::f32: copy_numbers<float>(from, to); return true;
    case StoredType::f64: copy_numbers<double>(from, to); return true;
    case StoredType::f8_e4m3:
    case StoredType::f8_e5m2: break;
  }
  return false;
}

std::string build_header(const std::vector<StoredTensor>& tensors, const StoredMetadata& metadata) {
  Json::Object all;
  if (!metadata.empty()) {
    Json::Object texts;
    for (const auto& [key, value] : metadata)
      texts.emplace_back(key, value);
    all.emplace_back(kMetadata, std::move(texts));
  }
  for (const auto& tensor : tensors) {
    Json::Object entry;
    entry.emplace_back("dtype", name(tensor.type));
    entry.emplace_back("shape", Json::Array(tensor.shape.begin(), tensor.shape.end()));
    entry.emplace_back("data_offsets", Json::Array{tensor.offset, tensor.offset + tensor.bytes});
    all.emplace_back(tensor.name, std::move(entry));
  }
  std::string json = Json(std::move(all)).dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = json.size();
  std::string header(sizeof size, '\0');
  std::memcpy(header.data(), &size, sizeof size);
  return header + json;
}

void check_names(const std::vector<StoredTensor>& tensors) {
  std::vector<std::string_view> names;
  for (const auto& tensor : tensors)
    names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  LOCKSTEP_CHECK(twice == names.end(), "duplicate tensor name ", *twice);
  LOCKSTEP_CHECK(!std::binary_search(names.begin(), names.end(), kMetadata),
                 "reserved tensor name ", kMetadata);
}

}  // namespace

const char* name(StoredType type) {
  return row(type).name;
}

std::int64_t bytes_per_element(StoredType type) {
  return row(type).bytes;
}

bool is_float(StoredType type) {
  return type == StoredType::f64 || type == StoredType::f32 || type == StoredType::bf16 ||
         type == StoredType::f16;
}

StoredType stored_type(DType type) {
  switch (type) {
    case DType::fp32: return StoredType::f32;
    case DType::bf16: return StoredType::bf16;
    case DType::fp8_e4m3: return StoredType::f8_e4m3;
    case DType::fp8_e5m2: return StoredType::f8_e5m2;
    case DType::int32: return StoredType::i32;
    case DType::uint8: return StoredType::u8;
  }
  LOCKSTEP_FAIL("no safetensors type for ", name(type));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  std::uint64_t length = 0;
  if (file_.size_bytes() < 8)
    file_.fail(0, str("expected a safetensors file, found ", file_.size_bytes(), " bytes"));
  file_.read(std::as_writable_bytes(std::span(&length, 1)), 0);
  if (std::memcmp(&length, kGitLfsPointer.data(), sizeof length) == 0)
    file_.fail(0, str("expected a safetensors file, ", kGitLfsAdvice));
  if (length > kMostHeaderBytes)
    file_.fail(0, str("expected a header of at most ", kMostHeaderBytes, " bytes, found ", length,
                      "; is this a safetensors file?"));
  const auto data_begin = static_cast<std::int64_t>(8 + length);
  if (data_begin > file_.size_bytes())
    file_.fail(8, str("the header has ", length, " bytes, but the file ", file_.size_bytes(),
                      "; is it truncated?"));
  std::string header(length, '\0');
  file_.read(std::as_writable_bytes(std::span(header)), 8);
  if (header.empty() || header.front() != '{') file_.fail(8, "the header does not start with '{'");
  parse(header, data_begin);
}

void SafetensorsFile::parse(std::string_view header, std::int64_t data_begin) {
  const Json json = Json::parse(header, str(file_.path().string(), ": header"), kMostNesting);
  const std::int64_t data_bytes = file_.size_bytes() - data_begin;
  for (const auto& [key, value] : json.as_object()) {
    const auto add = [&, &key = key, &value = value] {
      if (key != kMetadata) {
        tensors_.push_back(parse_tensor(key, value));
        return;
      }
      for (const auto& [name, text] : value.as_object())
        metadata_.emplace_back(name, text.as_string());
    };
    in_context(add, file_.path().string(), ": ", key);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  std::int64_t end = 0;
  for (auto& tensor : tensors_) {
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset)
      file_.fail(file_.size_bytes(),
                 str("the file ends before the end of ", tensor.name, ", bytes ", tensor.offset,
                     " to ", tensor.offset + tensor.bytes, " of the data; is it truncated?"));
    if (tensor.offset != end)
      file_.fail(data_begin + end,
                 str(tensor.name, ": ", tensor.offset > end ? "gap before" : "overlap with",
                     " this tensor, whose data starts at byte ", data_begin + tensor.offset));
    end += tensor.bytes;
    tensor.offset += data_begin;
  }
  if (end != data_bytes)
    file_.fail(data_begin + end, str(data_bytes - end, " bytes after the last tensor"));
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    index_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const StoredTensor& tensor, std::int64_t first, Tensor out) const {
  LOCKSTEP_CHECK(out.device.kind == Device::Kind::cpu, "expected a tensor in host memory");
  check_range(tensor, first, out.elements());
  const std::int64_t step = bytes_per_element(tensor.type);
  if (stored_type(out.dtype) == tensor.type) {
    file_.read({out.data, static_cast<std::size_t>(out.bytes())}, tensor.offset + first * step);
    return;
  }
  if (!is_float(tensor.type) || (out.dtype != DType::fp32 && out.dtype != DType::bf16))
    file_.fail(tensor.offset, str(tensor.name, ": expected ", lockstep::name(out.dtype), ", found ",
                                  lockstep::name(tensor.type)));
  const bool is_direct = tensor.type == StoredType::bf16 || tensor.type == StoredType::f32;
  const DType from = tensor.type == StoredType::bf16 ? DType::bf16 : DType::fp32;
  const auto most = static_cast<std::size_t>(std::min(kPiece, out.elements()));
  std::vector<std::byte> piece(is_direct ? most * static_cast<std::size_t>(step) : 0);
  std::vector<float> floats(is_direct ? 0 : most);
  for (std::int64_t done = 0; done < out.elements(); done += kPiece) {
    const auto count = std::min(kPiece, out.elements() - done);
    if (is_direct)
      file_.read(std::span(piece).first(static_cast<std::size_t>(count * step)),
                 tensor.offset + (first + done) * step);
    else
      read_floats(tensor, first + done, std::span(floats).first(static_cast<std::size_t>(count)));
    convert_elements(is_direct ? piece.data() : std::as_bytes(std::span(floats)).data(), from,
                     out.data + done * bytes_per_element(out.dtype), out.dtype, count);
  }
}

void SafetensorsFile::read(const StoredTensor& tensor, std::int64_t first,
                           std::span<double> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  check_range(tensor, first, count);
  const std::int64_t step = bytes_per_element(tensor.type);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, count) * step));
  for (std::int64_t done = 0; done < count; done += kPiece) {
    const auto now = static_cast<std::size_t>(std::min(kPiece, count - done));
    const auto bytes = std::span(piece).first(now * static_cast<std::size_t>(step));
    file_.read(bytes, tensor.offset + (first + done) * step);
    if (!to_numbers(tensor.type, bytes, out.subspan(static_cast<std::size_t>(done), now)))
      file_.fail(tensor.offset,
                 str(tensor.name, ": cannot read ", lockstep::name(tensor.type), " values"));
  }
}

void SafetensorsFile::read_floats(const StoredTensor& tensor, std::int64_t first,
                                  std::span<float> out) const {
  std::vector<double> numbers(out.size());
  read(tensor, first, numbers);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(numbers[i]);
    if (std::isinf(out[i]) && !std::isinf(numbers[i]))
      file_.fail(tensor.offset,
                 str(tensor.name, ": element ", first + static_cast<std::int64_t>(i), " is ",
                     numbers[i], "; expected at most 3.4e38, the largest fp32 value"));
  }
}

void SafetensorsFile::check_range(const StoredTensor& tensor, std::int64_t first,
                                  std::int64_t count) {
  LOCKSTEP_CHECK(0 <= first && first <= tensor.elements() - count, tensor.name, ": cannot read ",
                 count, " elements from element ", first, " of ", tensor.elements());
}

std::string lay_out_safetensors(std::vector<StoredTensor>& tensors,
                                const StoredMetadata& metadata) {
  check_names(tensors);
  std::int64_t end = 0;
  for (auto& tensor : tensors) {
    const auto bytes = checked_bytes(tensor);
    LOCKSTEP_CHECK(bytes && tensor.shape.size() <= kMostDimensions, tensor.name, ": invalid shape");
    tensor.offset = end;
    tensor.bytes = *bytes;
    end += tensor.bytes;
  }
  auto header = build_header(tensors, metadata);
  for (auto& tensor : tensors)
    tensor.offset += static_cast<std::int64_t>(header.size());
  return header;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<StoredTensor> tensors,
                                     const StoredMetadata& metadata)
    : tensors_(std::move(tensors)), header_(lay_out_safetensors(tensors_, metadata)), file_(path) {
  file_.write(std::as_bytes(std::span(header_)));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  const std::int64_t expected = tensors_.empty() ? static_cast<std::int64_t>(header_.size())
                                                 : tensors_.back().offset + tensors_.back().bytes;
  LOCKSTEP_CHECK(file_.size_bytes() == expected, "safetensors file: wrote ", file_.size_bytes(),
                 " bytes, expected ", expected);
  file_.commit();
}

}  // namespace lockstep
