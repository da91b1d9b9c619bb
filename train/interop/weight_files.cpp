#include "train/interop/weight_files.h"

#include <algorithm>
#include <unordered_set>

#include "core/file.h"
#include "core/json.h"
#include "train/interop/foreign_models.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostIndexBytes = 100'000'000;
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// Text of the first few names, and the number of the others.
std::string some_of(const std::vector<std::string>& all) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + all[i];
  return all.size() > kShown ? str(text, " and ", all.size() - kShown, " more") : text;
}

}  // namespace

void FoundTensor::fail(const std::string& what) const {
  file->file().fail(stored->offset, str(stored->name, " ", what));
}

void FoundTensor::fail_shape(const std::string& expected) const {
  std::string shape;
  for (const auto size : stored->shape)
    shape += str(shape.empty() ? "" : ", ", size);
  fail(str("has the shape [", shape, "]; expected ", expected));
}

void require_shape(const FoundTensor& found, const Shape& expected) {
  const auto& shape = found.stored->shape;
  if (std::equal(shape.begin(), shape.end(), expected.size.begin(),
                 expected.size.begin() + expected.rank))
    return;
  found.fail_shape(str(expected, " according to config.json"));
}

WeightFiles::WeightFiles(const fs::path& directory, const ModelConfig& config)
    : directory_(directory), config_(config) {
  if (path_exists(directory / kWeights)) {
    refuse_other_weights();
    add_file(kWeights);
  } else if (path_exists(directory / kIndex)) {
    add_shards();
  } else {
    throw DataError(str(directory.string(), ": expected ", kWeights, " or ", kIndex, "; ",
                        advice_without_weights(directory)));
  }
  if (config_.tied_head) take_tied_head();
  check_names();
}

const FoundTensor& WeightFiles::operator[](const HuggingFaceTensor& tensor) const {
  const auto& found = tensors_.at(tensor.name);
  require_shape(found, tensor.shape);
  if (!is_float(found.stored->type))
    found.fail(str("is stored as ", name(found.stored->type),
                   "; expected F64, F32, BF16 or F16. Dequantise the weights, or use the model "
                   "that was quantised"));
  return found;
}

// An index next to a single file may belong to newer or older weights in shards.
void WeightFiles::refuse_other_weights() const {
  const auto path = directory_ / kIndex;
  if (!path_exists(path)) return;
  const Json index = Json::parse(read_text(path, kMostIndexBytes), path.string());
  in_context(
      [&] {
        for (const auto& [name, shard] : index.at("weight_map").as_object())
          if (shard.as_string() != kWeights)
            throw DataError(str(name, " is in ", shard.as_string(), ", but ", kWeights,
                                " exists too; expected the weights once. Remove the index with its "
                                "files, or ",
                                kWeights, ", whichever is outdated"));
      },
      path.string());
}

void WeightFiles::add_file(const std::string& name) {
  files_.push_back(std::make_unique<SafetensorsFile>(directory_ / name));
  const auto& file = *files_.back();
  for (const auto& stored : file.tensors()) {
    const FoundTensor found{&file, &stored};
    if (const auto buffer = model_buffer(config_, stored.name))
      buffers_.emplace_back(*buffer, found);
    else if (!tensors_.emplace(listed_name(config_.family, stored.name), found).second)
      found.fail("occurs twice; remove one of the two");
  }
}

void WeightFiles::add_shards() {
  const auto path = directory_ / kIndex;
  const Json index = Json::parse(read_text(path, kMostIndexBytes), path.string());
  const auto read = [&] {
    std::map<std::string, std::vector<std::string>> names_of;
    for (const auto& [name, shard] : index.at("weight_map").as_object())
      names_of[shard.as_string()].push_back(name);
    for (const auto& [shard, names] : names_of) {
      if (fs::path(shard).filename() != shard)
        throw DataError(
            str("the file \"", shard, "\" is in another directory; expected a plain file name"));
      add_file(shard);
      for (const auto& name : names)
        if (files_.back()->find(name) == nullptr)
          throw DataError(
              str(name, " is not in ", shard,
                  ", where the index places it. Copy the index and the files from one model"));
    }
  };
  in_context(read, path.string());
}

// A tied model has one matrix for head and embedding. Files may use either name.
void WeightFiles::take_tied_head() {
  const auto names = model_names(config_.family);
  const auto head = tensors_.find(names.head + ".weight");
  if (head == tensors_.end()) return;
  const auto found = head->second;
  tensors_.erase(head);
  if (!tensors_.emplace(names.embedding + ".weight", found).second) tied_head_ = found;
}

void WeightFiles::check_names() const {
  std::vector<std::string> missing, unexpected;
  std::unordered_set<std::string> listed;
  for (const auto& tensor : huggingface_tensors(config_)) {
    listed.insert(tensor.name);
    if (!tensors_.contains(tensor.name)) missing.push_back(tensor.name);
  }
  for (const auto& [name, found] : tensors_)
    if (!listed.contains(name)) unexpected.push_back(found.stored->name);
  if (missing.empty() && unexpected.empty()) return;
  if (const auto advice = advice_on_names(unexpected); !advice.empty())
    throw DataError(str(directory_.string(), ": ", advice));
  const bool lacks_head =
      missing == std::vector{model_names(config_.family).head + ".weight"} && unexpected.empty();
  throw DataError(
      str(directory_.string(), ": the weights are not those that config.json describes;",
          missing.empty() ? "" : " missing: ", some_of(missing),
          missing.empty() || unexpected.empty() ? "" : ";",
          unexpected.empty() ? "" : " unexpected: ", some_of(unexpected),
          lacks_head ? "; set \"tie_word_embeddings\": true if the embedding is the head"
                     : ". Take config.json and the weights from one model"));
}

}  // namespace lockstep
