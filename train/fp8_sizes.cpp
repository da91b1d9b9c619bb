#include "train/fp8_sizes.h"

#include "kernels/quantize.h"

namespace lockstep {

void require_fp8(Fp8Matmuls fp8, int capability, const std::string& gpu) {
  constexpr int kFirst = 89, kOfBlocks = 90;
  if (fp8 == Fp8Matmuls::off) return;
  const bool is_block = fp8 == Fp8Matmuls::block;
  if (is_block ? capability == kOfBlocks : capability >= kFirst) return;
  throw ConfigError(str("precision.fp8 = \"", is_block ? "block" : "tensor",
                        "\" needs a GPU of compute capability ",
                        is_block ? "9.0 (H100, H200)" : "8.9 or later", "; ", gpu, " has ",
                        capability / 10, ".", capability % 10, "; set it to ",
                        is_block && capability >= kFirst ? "\"tensor\" or " : "", "\"off\""));
}

bool has_fp8_matmuls(const ModelConfig& m, Fp8Matmuls fp8, std::int64_t tensor_ranks) {
  if (tensor_ranks == 1 || fp8 == Fp8Matmuls::off) return true;
  const auto multiple = size_multiple(weight_scaling(fp8));
  const auto fits = [&](std::int64_t size) { return size % (multiple * tensor_ranks) == 0; };
  const bool apart = fp8 == Fp8Matmuls::tensor || fits(m.kv_heads * m.head_size);
  return apart && fits(m.attention_width()) && fits(m.qkv_heads() * m.head_size) &&
         fits(m.mlp_width);
}

bool has_fp8_matmuls(const Config& c, std::int64_t sequences) {
  if (c.precision.fp8 == Fp8Matmuls::off) return true;
  return sequences * c.train.sequence_length % size_multiple(weight_scaling(c.precision.fp8)) == 0;
}

}  // namespace lockstep
