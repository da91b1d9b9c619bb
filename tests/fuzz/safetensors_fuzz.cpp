// Any file is refused, or every byte behind its header belongs to one tensor that can be read.
#include <cstring>

#include "checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + header + data;
}

void check_tensor(const SafetensorsFile& file, const StoredTensor& tensor) {
  LOCKSTEP_CHECK(file.find(tensor.name) == &tensor, "found otherwise: ", tensor.name);
  LOCKSTEP_CHECK(tensor.shape.size() <= 8, "rank of ", tensor.name);
  std::int64_t bytes = bytes_per_element(tensor.type);
  for (const auto size : tensor.shape) {
    LOCKSTEP_CHECK(size >= 0, "size of ", tensor.name);
    bytes *= size;
  }
  LOCKSTEP_CHECK(bytes == tensor.bytes, "bytes of ", tensor.name);
  const bool is_float = tensor.type == StoredType::f32 || tensor.type == StoredType::f16 ||
                        tensor.type == StoredType::bf16;
  if (!is_float) return;
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  file.read(tensor, 0,
            {reinterpret_cast<std::byte*>(values.data()), {tensor.elements()}, DType::fp32, {}});
}

void check(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const auto& tensors = file.tensors();
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check_tensor(file, tensors[i]);
      const auto end = i + 1 < tensors.size() ? tensors[i + 1].offset : file.file().size_bytes();
      LOCKSTEP_CHECK(tensors[i].offset + tensors[i].bytes == end, "not next to one another");
    }
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {file_of(R"({"__metadata__":{"format":"pt"},)"
                  R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})",
                  "0123456789abcd"),
          file_of(R"({"h":{"dtype":"F16","shape":[],"data_offsets":[0,2]},)"
                  R"("z":{"dtype":"I64","shape":[0,4],"data_offsets":[2,2]}}    )",
                  "hh"),
          file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                  R"("c":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                  "012345"),
          file_of("{}", "")};
}

}  // namespace lockstep::fuzz

namespace {

using lockstep::fuzz::MemoryFile;

void run(const std::string& bytes) {
  static const MemoryFile file;
  file.set(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  try {
    lockstep::fuzz::check(file.path());
  } catch (const lockstep::DataError&) {
  }
}

}  // namespace

// As it is; and with the length that its JSON has, which most mutations spoil.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  run(bytes);
  const auto brace = bytes.rfind('}');
  if (brace == std::string::npos || brace < 8) return 0;
  const std::uint64_t length = brace + 1 - 8;
  std::memcpy(bytes.data(), &length, sizeof length);
  run(bytes);
  return 0;
}
