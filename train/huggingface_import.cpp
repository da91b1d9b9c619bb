// Reading Hugging Face directories.
#include <map>
#include <memory>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/json.h"
#include "model/families.h"
#include "train/huggingface.h"
#include "train/weight_parts.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostJsonBytes = 100'000'000;
constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

Json read_json(const fs::path& path) {
  return Json::parse(read_text(path, kMostJsonBytes), path.string());
}

struct FoundTensor {
  const SafetensorsFile* file;
  const StoredTensor* stored;
};

// The weight files of a directory, and their tensors by the name that families list.
class WeightFiles {
 public:
  WeightFiles(const fs::path& directory, const ModelConfig& config)
      : directory_(directory), config_(config) {
    if (path_exists(directory / kWeights))
      add_file(kWeights);
    else if (path_exists(directory / kIndex))
      add_shards();
    else
      throw DataError(str(directory.string(), ": expected ", kWeights, " or ", kIndex,
                          "; other weight files are not read: load the model with `transformers` "
                          "and save it with save_pretrained()"));
    check_names();
  }

  const FoundTensor& operator[](const HuggingFaceTensor& tensor) const {
    const auto& found = tensors_.at(tensor.name);
    const auto& shape = found.stored->shape;
    const auto& expected = tensor.shape;
    if (!std::equal(shape.begin(), shape.end(), expected.size.begin(),
                    expected.size.begin() + expected.rank)) {
      Shape stored;
      for (const auto size : std::span(shape).first(std::min<std::size_t>(shape.size(), 4)))
        stored.size[static_cast<std::size_t>(stored.rank++)] = size;
      found.file->file().fail(
          found.stored->offset,
          str(found.stored->name, " has the shape ", stored, ", config.json makes it ", expected));
    }
    return found;
  }

 private:
  void add_file(const std::string& name) {
    files_.push_back(std::make_unique<SafetensorsFile>(directory_ / name));
    const auto& file = *files_.back();
    for (const auto& stored : file.tensors()) {
      const std::string listed = listed_name(config_, stored.name);
      if (listed.empty()) continue;
      if (!tensors_.emplace(listed, FoundTensor{&file, &stored}).second)
        file.file().fail(stored.offset, str(stored.name, " is there twice"));
    }
  }

  void add_shards() {
    const Json index = read_json(directory_ / kIndex);
    const auto read = [&] {
      std::map<std::string, std::vector<std::string>> names_of;
      for (const auto& [name, shard] : index.at("weight_map").as_object())
        names_of[shard.as_string()].push_back(name);
      for (const auto& [shard, names] : names_of) {
        if (fs::path(shard).filename() != shard)
          throw DataError(str("the file \"", shard, "\" is not one beside it"));
        add_file(shard);
        for (const auto& name : names)
          if (files_.back()->find(name) == nullptr)
            throw DataError(str(name, " is not in ", shard));
      }
    };
    in_context(read, (directory_ / kIndex).string());
  }

  // Names the first few of `all`.
  static std::string some_of(const std::vector<std::string>& all) {
    constexpr std::size_t kShown = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
      text += (i > 0 ? ", " : "") + all[i];
    return all.size() > kShown ? str(text, " and ", all.size() - kShown, " more") : text;
  }

  void check_names() const {
    std::vector<std::string> missing, unexpected;
    std::unordered_map<std::string, int> listed;
    for (const auto& tensor : huggingface_tensors(config_)) {
      ++listed[tensor.name];
      if (!tensors_.contains(tensor.name)) missing.push_back(tensor.name);
    }
    for (const auto& [name, found] : tensors_)
      if (!listed.contains(name)) unexpected.push_back(found.stored->name);
    if (missing.empty() && unexpected.empty()) return;
    throw DataError(str(directory_.string(), ": the weights are not those that ", kConfig,
                        " describes;", missing.empty() ? "" : " missing: ", some_of(missing),
                        missing.empty() || unexpected.empty() ? "" : ";",
                        unexpected.empty() ? "" : " unexpected: ", some_of(unexpected)));
  }

  fs::path directory_;
  ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, FoundTensor> tensors_;
};

// Parameters that lie in the file as they lie here, one behind the other.
void read_straight(const FoundTensor& found, const HuggingFaceTensor& tensor,
                   const WeightParts& parts) {
  std::int64_t first = 0;
  for (const auto& parameter : tensor.parameters) {
    for (const auto* slice : parts.of(parameter))
      visit_runs(*slice, [&](std::int64_t whole, std::int64_t count, std::int64_t at) {
        found.file->read(*found.stored, first + whole, slice->local.rows(at, count));
      });
    first += parts.shape(parameter).elements();
  }
}

// From [inputs, all outputs] in the file to [outputs, inputs] of each parameter, some inputs at a
// time: what is read stays in a cache while it is turned.
template <class T>
void read_turned(const FoundTensor& found, const HuggingFaceTensor& tensor,
                 const WeightParts& parts) {
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
  return config_from_huggingface(read_json(path), path.string());
}

void import_huggingface(const fs::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights) {
  const WeightFiles files(directory, config);
  const WeightParts parts(weights);
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
