// Export of Hugging Face directories.
#include <cstdio>

#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/json.h"
#include "data/tokenizer/byte_tokenizer_files.h"
#include "data/tokenizer/tokenizer_files.h"
#include "model/families.h"
#include "train/interop/foreign_models.h"
#include "train/interop/huggingface.h"
#include "train/interop/slices_by_name.h"
#include "train/interop/token_ids.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const HuggingFaceTensor& tensor, DType dtype) {
  return tensor.shape.elements() * bytes_per_element(dtype);
}

// Distributes the tensors over files, in order, each filled up to shard_bytes.
std::vector<std::vector<HuggingFaceTensor>> cut_into_files(std::vector<HuggingFaceTensor> all,
                                                           const HuggingFaceExport& options) {
  std::vector<std::vector<HuggingFaceTensor>> files(1);
  std::int64_t bytes = 0;
  for (auto& tensor : all) {
    const auto more = bytes_of(tensor, options.dtype);
    if (!files.back().empty() && bytes + more > options.shard_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

std::string file_name(std::size_t file, std::size_t files) {
  if (files == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", file + 1, files);
  return name;
}

// Writes parameters that have the same layout in the file, one after the other.
void write_straight(SafetensorsWriter& writer, const HuggingFaceTensor& tensor,
                    const SlicesByName& parts, DType dtype) {
  constexpr std::int64_t kPiece = 262144;  // elements
  std::vector<std::byte> piece(static_cast<std::size_t>(kPiece * bytes_per_element(dtype)));
  for (const auto& parameter : tensor.parameters)
    for (const auto* slice : parts.whole(parameter)) {
      const auto& from = slice->local;
      for (std::int64_t done = 0; done < from.elements(); done += kPiece) {
        const auto count = std::min(kPiece, from.elements() - done);
        convert_elements(from.data + done * bytes_per_element(from.dtype), from.dtype, piece.data(),
                         dtype, count);
        writer.write(
            std::span(piece).first(static_cast<std::size_t>(count * bytes_per_element(dtype))));
      }
    }
}

// Transposes [outputs, inputs] of each parameter into [inputs, all outputs] of the file, a few
// inputs at a time.
template <class T>
void write_turned(SafetensorsWriter& writer, const HuggingFaceTensor& tensor,
                  const SlicesByName& parts, DType dtype) {
  constexpr std::int64_t kInputs = 64;
  const std::int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
  std::vector<T> rows(static_cast<std::size_t>(kInputs * outputs));
  std::vector<std::byte> converted(rows.size() *
                                   static_cast<std::size_t>(bytes_per_element(dtype)));
  for (std::int64_t first = 0; first < inputs; first += kInputs) {
    const auto last = std::min(first + kInputs, inputs);
    std::int64_t column = 0;
    for (const auto& parameter : tensor.parameters) {
      for (const auto* slice : parts.whole(parameter))
        visit_inputs(
            *slice, first, last,
            [&](std::int64_t output, std::int64_t input, std::int64_t count, std::int64_t at) {
              T* to = rows.data() + (input - first) * outputs + column + output;
              const T* from = slice->local.template as<T>() + at;
              for (std::int64_t i = 0; i < count; ++i)
                to[i * outputs] = from[i];
            });
      column += parts.shape(parameter)[0];
    }
    const auto count = (last - first) * outputs;
    convert_elements(std::as_bytes(std::span(rows)).data(), dtype_of<T>::value, converted.data(),
                     dtype, count);
    writer.write(
        std::span(converted).first(static_cast<std::size_t>(count * bytes_per_element(dtype))));
  }
}

void write_file(const fs::path& path, const std::vector<HuggingFaceTensor>& tensors,
                const SlicesByName& parts, DType dtype) {
  std::vector<StoredTensor> stored;
  for (const auto& tensor : tensors) {
    stored.push_back({tensor.name, stored_type(dtype), {}});
    for (int i = 0; i < tensor.shape.rank; ++i)
      stored.back().shape.push_back(tensor.shape[i]);
  }
  SafetensorsWriter writer(path, std::move(stored), {{"format", "pt"}});
  for (const auto& tensor : tensors) {
    for (const auto& parameter : tensor.parameters)
      for (const auto* slice : parts.whole(parameter))
        if (slice->fetch) slice->fetch();
    const DType from = parts.of(tensor.parameters.front()).front()->local.dtype;
    if (!tensor.transposed)
      write_straight(writer, tensor, parts, dtype);
    else if (from == DType::fp32)
      write_turned<float>(writer, tensor, parts, dtype);
    else
      write_turned<BFloat16>(writer, tensor, parts, dtype);
  }
  writer.commit();
}

std::string index_of(const std::vector<std::vector<HuggingFaceTensor>>& files, DType dtype) {
  std::int64_t bytes = 0;
  Json::Object map;
  for (std::size_t file = 0; file < files.size(); ++file)
    for (const auto& tensor : files[file]) {
      bytes += bytes_of(tensor, dtype);
      map.emplace_back(tensor.name, file_name(file, files.size()));
    }
  Json index;
  index.set("metadata", Json::Object{{"total_size", bytes}});
  index.set("weight_map", std::move(map));
  return index.dump(2) + "\n";
}

// `generate` of transformers ends a text by this file; without it, by the ids in config.json.
void write_generation_config(const fs::path& directory, const TokenIds& ids) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  if (!ids.any()) return;
  const auto file = directory / kGenerationConfig;
  const auto before =
      path_exists(file) ? read_text(file, kMostBytes) : std::string(kGenerationConfigOfModel);
  if (const auto text = with_token_ids(before, ids); text != before) write_text(file, text);
}

}  // namespace

void export_huggingface(const fs::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights, const HuggingFaceExport& options) {
  LOCKSTEP_CHECK(options.dtype == DType::fp32 || options.dtype == DType::bf16, "export as ",
                 name(options.dtype));
  make_directories(directory);
  if (!directory_entries(directory).empty())
    throw UsageError(str(directory.string(), ": expected an empty directory; choose another"));
  if (!options.tokenizer_from.empty()) copy_tokenizer(options.tokenizer_from, directory);
  if (options.byte_tokenizer) write_byte_tokenizer(directory);
  write_generation_config(directory, options.token_ids);
  const SlicesByName parts(weights);
  const auto files = cut_into_files(huggingface_tensors(config), options);
  for (std::size_t file = 0; file < files.size(); ++file)
    write_file(directory / file_name(file, files.size()), files[file], parts, options.dtype);
  if (files.size() > 1)
    write_text(directory / "model.safetensors.index.json", index_of(files, options.dtype));
  Json json = config_to_huggingface(config);
  options.token_ids.set(json);
  json.set("torch_dtype", options.dtype == DType::fp32 ? "float32" : "bfloat16");
  write_text(directory / "config.json", json.dump(2) + "\n");
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  const auto names = tokenizer_file_names(from);
  if (names.empty()) {
    const auto foreign = foreign_model(from);
    throw DataError(str(from.string(), ": holds no tokenizer; ",
                        foreign.what.empty() ? "" : "found " + foreign.what + ", ",
                        "expected a directory with files such as tokenizer.json or vocab.json",
                        foreign.advice.empty() ? "" : ". ", foreign.advice));
  }
  for (const auto& name : names)
    copy_tokenizer_file(from / name, to / name);
}

}  // namespace lockstep
