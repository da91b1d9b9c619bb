// Import of Hugging Face directories.
#include "core/file.h"
#include "core/json.h"
#include "data/input_defects.h"
#include "model/families.h"
#include "train/interop/foreign_models.h"
#include "train/interop/huggingface.h"
#include "train/interop/slices_by_name.h"
#include "train/interop/unread_tensors.h"
#include "train/interop/weight_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostJsonBytes = 100'000'000;
constexpr char kConfig[] = "config.json";

Json read_json(const fs::path& path) {
  return Json::parse(with_quoted_not_numbers(read_text(path, kMostJsonBytes)), path.string());
}

// Reads parameters that have the same layout in the file, one after the other.
void read_straight(const FoundTensor& found, const HuggingFaceTensor& tensor,
                   const SlicesByName& parts) {
  std::int64_t first = 0;
  for (const auto& parameter : tensor.parameters) {
    for (const auto* slice : parts.of(parameter))
      visit_runs(*slice, [&](std::int64_t whole, std::int64_t count, std::int64_t at) {
        found.file->read(*found.stored, first + whole, slice->local.rows(at, count));
      });
    first += parts.shape(parameter).elements();
  }
}

// Transposes [inputs, all outputs] of the file into [outputs, inputs] of each parameter, a few
// inputs at a time, so that the block stays in cache.
template <class T>
void read_turned(const FoundTensor& found, const HuggingFaceTensor& tensor,
                 const SlicesByName& parts) {
  constexpr std::int64_t kInputs = 64;
  const std::int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
  std::vector<T> rows(static_cast<std::size_t>(kInputs * outputs));
  for (std::int64_t first = 0; first < inputs; first += kInputs) {
    const auto last = std::min(first + kInputs, inputs);
    found.file->read(*found.stored, first * outputs,
                     {reinterpret_cast<std::byte*>(rows.data()),
                      {(last - first) * outputs},
                      dtype_of<T>::value,
                      {}});
    std::int64_t column = 0;
    for (const auto& parameter : tensor.parameters) {
      for (const auto* slice : parts.of(parameter))
        visit_inputs(
            *slice, first, last,
            [&](std::int64_t output, std::int64_t input, std::int64_t count, std::int64_t at) {
              const T* from = rows.data() + (input - first) * outputs + column + output;
              T* to = slice->local.template as<T>() + at;
              for (std::int64_t i = 0; i < count; ++i)
                to[i] = from[i * outputs];
            });
      column += parts.shape(parameter)[0];
    }
  }
}

}  // namespace

bool is_huggingface_directory(const fs::path& path) {
  return path_exists(path / kConfig);
}

ModelConfig huggingface_config(const fs::path& directory) {
  const auto path = directory / kConfig;
  const Json json = read_json(path);
  auto config = config_from_huggingface(json, path.string());
  require_plain_weights(directory, json);
  return config;
}

void import_huggingface(const fs::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights) {
  const WeightFiles files(directory, config);
  const SlicesByName parts(weights);
  check_unread(files, config, parts);
  for (const auto& tensor : huggingface_tensors(config)) {
    const auto& found = files[tensor];
    const DType dtype = parts.of(tensor.parameters.front()).front()->local.dtype;
    if (!tensor.transposed)
      read_straight(found, tensor, parts);
    else if (dtype == DType::fp32)
      read_turned<float>(found, tensor, parts);
    else
      read_turned<BFloat16>(found, tensor, parts);
  }
}

}  // namespace lockstep
