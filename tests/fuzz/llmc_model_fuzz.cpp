// Any file is rejected, or is a model whose parameters fill it to the last byte.
#include <algorithm>
#include <list>

#include "tests/fuzz/fuzz.h"
#include "tests/train/model_weights.h"
#include "train/interop/llmc.h"

namespace lockstep::fuzz::llmc_model_fuzz {
constexpr std::int32_t kMagic = 20240326;
constexpr std::size_t kHeaderBytes = 1024, kMostBytes = 8192;

// version, length, vocabulary, layers, heads, width, padded vocabulary
using Entries = std::array<std::int32_t, 7>;

// The bytes of a file with this header; 0 if the header is invalid or its model is large.
std::size_t bytes_of(const Entries& e) {
  const bool small = std::all_of(e.begin(), e.end(), [](auto n) { return 1 <= n && n < 64; });
  if (!small) return 0;
  const int width = e[5],
            elements = (e[6] + e[1]) * width + e[3] * (12 * width * width + 13 * width) + 2 * width;
  const auto bytes = kHeaderBytes + static_cast<std::size_t>(elements * (e[0] == 3 ? 4 : 2));
  return bytes <= kMostBytes ? bytes : 0;
}

std::string model(const Entries& entries) {
  std::string bytes(bytes_of(entries), '\0');
  bytes.replace(0, 4 + sizeof entries, raw(kMagic) + raw(entries));
  for (std::size_t i = kHeaderBytes; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 37);
  return bytes;
}

// Weights to import into. Those of the last few models are kept, because they cost more than a
// check.
const testing::ModelWeights& weights_of(const ModelConfig& config, DType dtype) {
  struct Known {
    Known(const ModelConfig& c, DType d) : config(c), dtype(d), weights(c, d) {}
    ModelConfig config;
    DType dtype;
    testing::ModelWeights weights;
  };
  static std::list<Known> known;
  for (const auto& one : known)
    if (one.config == config && one.dtype == dtype) return one.weights;
  if (known.size() == 8) known.pop_front();
  return known.emplace_back(config, dtype).weights;
}

void check_model(const std::filesystem::path& path, std::string_view bytes) {
  const ModelConfig config = llmc_config(path);
  const bool is_fp32 = number_at<std::int32_t>(bytes, 4) == 3;
  const auto& weights = weights_of(config, is_fp32 ? DType::fp32 : DType::bf16);
  must_accept([&] { import_llmc(path, weights.slices); });
  for (const auto& slice : weights.slices) {
    const auto size = static_cast<std::size_t>(slice.local.bytes());
    const auto at = slice.name == "transformer.wte.weight"  ? kHeaderBytes
                    : slice.name == "transformer.ln_f.bias" ? bytes.size() - size
                                                            : 0;
    LOCKSTEP_CHECK(at == 0 || std::memcmp(slice.local.data, bytes.data() + at, size) == 0,
                   slice.name, " is not what lies at byte ", at);
  }
}

void check_file(std::string_view bytes) {
  static const MemoryFile file;
  file.set(bytes);
  must_accept([&] {
    LOCKSTEP_CHECK(is_llmc_model(file.path()) || !bytes.starts_with(raw(kMagic)),
                   "not taken for a model");
  });
  may_refuse([&] { check_model(file.path(), bytes); });
}

// Checks the input unchanged, and with the size of its header, which most mutations break.
void check(std::string_view input) {
  check_file(input);
  if (input.size() < kHeaderBytes) return;
  const auto right = bytes_of(number_at<Entries>(input, 4));
  if (right == 0 || right == input.size()) return;
  std::string bytes(input);
  bytes.resize(right);
  check_file(bytes);
}

Seeds seeds() {
  return {model({3, 2, 3, 1, 2, 4, 5}), model({5, 3, 7, 2, 1, 3, 7}), model({5, 1, 1, 1, 1, 1, 1})};
}

const Target target("llmc_model", seeds, check);

}  // namespace lockstep::fuzz::llmc_model_fuzz
