#include "train/interop/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/integer.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "a GGUF file is little-endian");

constexpr std::uint32_t kVersion = 3;
constexpr std::int64_t kAlignment = 32;  // of each tensor's data; the default of the format

// Types of values and of tensors, as numbers in the file.
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kArray = 9;
constexpr std::uint32_t kTensorTypes[] = {0, 1, 8};  // of GgufType

template <class Number>
void append(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  out += text;
}

std::int64_t bytes_of(const GgufTensor& tensor) {
  const auto elements = tensor.shape.elements();
  switch (tensor.type) {
    case GgufType::f32: return 4 * elements;
    case GgufType::f16: return 2 * elements;
    case GgufType::q8_0: return elements / kGgufBlock * (2 + kGgufBlock);
  }
  LOCKSTEP_FAIL("no such type");
}

std::int64_t padding(std::int64_t bytes) {
  return round_up(bytes, kAlignment) - bytes;
}

void append_half(std::string& out, float value, const GgufTensor& tensor) {
  const auto half = to_half(value);
  if ((half & 0x7c00u) == 0x7c00u)
    throw DataError(str(tensor.name, ": ", value, " is beyond the range of F16; export as F32"));
  append(out, half);
}

// As llama.cpp quantizes: the largest element of a block becomes 127 or -127.
void append_block(std::string& out, std::span<const float> block, const GgufTensor& tensor) {
  float most = 0;
  for (const float value : block)
    most = std::max(most, std::abs(value));
  const float scale = most / 127;
  append_half(out, scale, tensor);
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (const float value : block)
    append(out, static_cast<std::int8_t>(std::round(value * inverse)));
}

}  // namespace

std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float size = std::abs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (size < 0x1p-14f)  // subnormal: a multiple of 2^-24; nearbyint rounds ties to even
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint16_t>(std::nearbyint(size * 0x1p24f)));
  const auto magnitude = bits & 0x7fffffffu;
  const auto rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // 13 bits are dropped
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - ((127u - 15u) << 10)));
}

void GgufMetadata::add_key(std::string_view key, std::uint32_t type) {
  append_text(bytes_, key);
  append(bytes_, type);
  ++count_;
}

void GgufMetadata::set(std::string_view key, std::string_view text) {
  add_key(key, kText);
  append_text(bytes_, text);
}

void GgufMetadata::set(std::string_view key, std::int64_t number) {
  LOCKSTEP_CHECK(number >= 0 && number <= UINT32_MAX, key, ": ", number);
  add_key(key, kU32);
  append(bytes_, static_cast<std::uint32_t>(number));
}

void GgufMetadata::set(std::string_view key, float number) {
  add_key(key, kF32);
  append(bytes_, number);
}

void GgufMetadata::set(std::string_view key, bool flag) {
  add_key(key, kBool);
  append(bytes_, static_cast<std::uint8_t>(flag ? 1 : 0));
}

void GgufMetadata::set(std::string_view key, const std::vector<std::string>& texts) {
  add_key(key, kArray);
  append(bytes_, kText);
  append(bytes_, std::uint64_t{texts.size()});
  for (const auto& text : texts)
    append_text(bytes_, text);
}

void GgufMetadata::set(std::string_view key, const std::vector<std::int32_t>& numbers) {
  add_key(key, kArray);
  append(bytes_, kI32);
  append(bytes_, std::uint64_t{numbers.size()});
  for (const auto number : numbers)
    append(bytes_, number);
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufTensor> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  std::string header = "GGUF";
  append(header, kVersion);
  append(header, std::uint64_t{tensors_.size()});
  append(header, metadata.count());
  header += metadata.bytes();
  std::int64_t offset = 0;
  for (const auto& tensor : tensors_) {
    const auto rank = tensor.shape.rank;
    LOCKSTEP_CHECK(tensor.type != GgufType::q8_0 || tensor.shape[rank - 1] % kGgufBlock == 0,
                   tensor.name, ": rows of ", tensor.shape[rank - 1]);
    append_text(header, tensor.name);
    append(header, static_cast<std::uint32_t>(rank));
    for (int dim = rank; dim-- > 0;)  // the elements of a row first
      append(header, static_cast<std::uint64_t>(tensor.shape[dim]));
    append(header, kTensorTypes[static_cast<std::size_t>(tensor.type)]);
    append(header, static_cast<std::uint64_t>(offset));
    offset += round_up(bytes_of(tensor), kAlignment);
  }
  header.resize(static_cast<std::size_t>(round_up(std::ssize(header), kAlignment)), '\0');
  file_.write(std::as_bytes(std::span(header)));
}

void GgufWriter::write(std::span<const float> elements) {
  const auto& tensor = tensors_.at(tensor_);
  encoded_.clear();
  switch (tensor.type) {
    case GgufType::f32:
      encoded_.append(reinterpret_cast<const char*>(elements.data()), elements.size_bytes());
      break;
    case GgufType::f16:
      for (const float value : elements)
        append_half(encoded_, value, tensor);
      break;
    case GgufType::q8_0:
      for (std::size_t i = 0; i < elements.size(); i += kGgufBlock)
        append_block(encoded_, elements.subspan(i, kGgufBlock), tensor);
      break;
  }
  written_ += std::ssize(elements);
  LOCKSTEP_CHECK(written_ <= tensor.shape.elements(), tensor.name, ": too many elements");
  if (written_ == tensor.shape.elements()) {
    encoded_.append(static_cast<std::size_t>(padding(bytes_of(tensor))), '\0');
    ++tensor_;
    written_ = 0;
  }
  file_.write(std::as_bytes(std::span(encoded_)));
}

void GgufWriter::commit() {
  LOCKSTEP_CHECK(tensor_ == tensors_.size(), "tensor ", tensor_, " of ", tensors_.size());
  file_.commit();
}

}  // namespace lockstep
