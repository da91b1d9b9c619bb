// Any file is rejected, or every byte after its header belongs to one readable tensor.
#include "checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::safetensors_fuzz {
std::string file_of(const std::string& header, const std::string& data) {
  return raw(std::uint64_t{header.size()}) + header + data;
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

void check_file(std::string_view bytes) {
  static const MemoryFile in_memory;
  in_memory.set(bytes);
  const SafetensorsFile file(in_memory.path());
  const auto& tensors = file.tensors();
  must_accept([&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check_tensor(file, tensors[i]);
      const auto end = i + 1 < tensors.size() ? tensors[i + 1].offset : file.file().size_bytes();
      LOCKSTEP_CHECK(tensors[i].offset + tensors[i].bytes == end, "not next to one another");
    }
  });
}

// Checks the input unchanged, and with the length of its JSON, which most mutations break.
void check(std::string_view input) {
  may_refuse([&] { check_file(input); });
  const auto brace = input.rfind('}');
  if (brace == std::string_view::npos || brace < 8) return;
  check_file(raw(std::uint64_t{brace + 1 - 8}) + std::string(input.substr(8)));
}

Seeds seeds() {
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

const Target target("safetensors", seeds, check);

}  // namespace lockstep::fuzz::safetensors_fuzz
