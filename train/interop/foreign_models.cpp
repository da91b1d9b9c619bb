#include "train/interop/foreign_models.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/hub.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigFile[] = "config.json";
constexpr char kAdapter[] = "adapter_config.json";
constexpr std::int64_t kMostForeignBytes = 100'000'000;

constexpr char kMerge[] =
    "Merge it with the package peft, "
    "PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload().save_pretrained(DIR), and name "
    "DIR";
constexpr char kGguf[] =
    "Load it with `transformers`, from_pretrained(DIRECTORY, gguf_file=NAME), call "
    "model.save_pretrained(DIR), and name DIR; or name the directory that it was made from";
constexpr char kSave[] =
    "Load it with `transformers`, call model.save_pretrained(DIR), and name DIR";

// Text such as "an adapter (adapter_config.json) of meta-llama/Llama-3.1-8B".
std::string adapter_of(const fs::path& directory) {
  const auto file = directory / kAdapter;
  const Json json = Json::parse(read_text(file, kMostForeignBytes), file.string(), /*depth=*/32);
  const Json* base = json.is_object() ? json.find("base_model_name_or_path") : nullptr;
  return str("an adapter (", kAdapter, ")",
             base != nullptr && base->is_string() ? " of " + base->as_string() : "");
}

// Advice on converting weights of this quantization to floating point with `transformers`.
std::string dequantise_advice(std::string_view method) {
  if (method == "bitsandbytes" || method == "higgs")
    return "Load it with `transformers`, call model.dequantize() and model.save_pretrained(DIR), "
           "and name DIR";
  constexpr std::pair<std::string_view, const char*> kWhileLoading[] = {
      {"fp8", "FineGrainedFP8Config"},
      {"compressed-tensors", "CompressedTensorsConfig"},
      {"mxfp4", "Mxfp4Config"}};
  for (const auto& [name, config] : kWhileLoading)
    if (method == name)
      return str("Load it with `transformers`, from_pretrained(..., quantization_config=", config,
                 "(dequantize=True)), call model.save_pretrained(DIR, save_original_format=False), "
                 "and name DIR");
  return "Name the directory of the model before its quantization";
}

bool has_file(const fs::path& directory, std::string_view end) {
  const auto entries = directory_entries(directory);
  return std::any_of(entries.begin(), entries.end(), [&](const fs::path& entry) {
    return entry.filename().string().ends_with(end);
  });
}

// Whether the directory has weights that train/interop/weight_files.h reads.
bool has_weights(const fs::path& directory) {
  return path_exists(directory / "model.safetensors") ||
         path_exists(directory / "model.safetensors.index.json");
}

bool is_gguf(const fs::path& path) {
  const ReadFile file(path);
  std::array<char, 4> magic{};
  if (file.size_bytes() < static_cast<std::int64_t>(magic.size())) return false;
  file.read(std::as_writable_bytes(std::span(magic)), 0);
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](auto end) { return name.ends_with(end); });
}

ForeignModel foreign_file(const fs::path& path) {
  const auto name = path.filename().string();
  if (is_gguf(path)) return {"a GGUF file", kGguf};
  if (ends_with_one_of(name, {".safetensors", ".json", ".txt", ".model", ".jinja"}))
    return {
        "one file of a directory",
        str("Name the directory, ", path.has_parent_path() ? path.parent_path().string() : ".")};
  if (ends_with_one_of(name, {".bin", ".pt", ".pth", ".ckpt"}))
    return {"a file that may be PyTorch's", kSave};
  return {};
}

ForeignModel foreign_directory(const fs::path& path) {
  if (path_exists(path / kAdapter)) return {adapter_of(path), kMerge};
  if (has_file(path, ".gguf")) return {"GGUF files", kGguf};
  if (path_exists(path / "snapshots"))
    return {"a cache of the Hugging Face Hub",
            str("Name one of its snapshots, ", (path / "snapshots" / "REVISION").string())};
  if (path_exists(path / "params.json"))
    return {"a model in the form that Meta publishes",
            "Convert it with convert_llama_weights_to_hf.py of `transformers`"};
  if (has_file(path, ".safetensors"))
    return {"weights without a config.json", "Copy the model's config.json there"};
  return {};
}

}  // namespace

ForeignModel foreign_model(const fs::path& path) {
  if (auto advice = download_advice(path.string()); !advice.empty()) return {"", advice};
  if (directory_exists(path)) return foreign_directory(path);
  std::error_code unknown;
  return fs::is_regular_file(path, unknown) ? foreign_file(path) : ForeignModel{};
}

std::string advice_on_names(std::span<const std::string> unexpected) {
  struct Mark {
    std::vector<std::string_view> parts;
    std::string what;
  };
  const std::string strip = ", or take the prefix out of the names (docs/formats.md)";
  const std::vector<Mark> marks = {
      {{"_orig_mod."},
       "the prefix _orig_mod. is of a model that torch.compile wrapped. Save model._orig_mod" +
           strip},
      {{"_fsdp_wrapped_module.", "_checkpoint_wrapped_module."},
       "the name is of a module that FSDP or activation checkpointing wrapped. Save the module "
       "inside" +
           strip},
      {{".lora_A.", ".lora_B.", ".base_layer.", "base_model.model."},
       str("the tensor is of an adapter; expected whole weights. ", kMerge)},
      {{".qweight", ".qzeros", ".scales", ".g_idx", ".biases", ".SCB", ".absmax", ".quant_map",
        ".quant_state.", ".weight_scale", ".weight_packed", ".weight_zero_point"},
       "the weights are quantised; expected F64, F32, BF16 or F16. Dequantise them "
       "(docs/formats.md), or name the directory of the model before its quantization"},
      {{"module."},
       "the prefix module. is of a model that DistributedDataParallel wrapped. Save "
       "model.module" +
           strip}};
  for (const auto& mark : marks)
    for (const auto& name : unexpected)
      for (const auto part : mark.parts)
        if (part == "module." ? name.starts_with(part) : name.find(part) != std::string::npos)
          return str(name, ": ", mark.what);
  return "";
}

void require_plain_weights(const fs::path& directory, const Json& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    const Json* how = config.find(key);
    if (how == nullptr || how->is_null()) continue;
    const Json* method = how->is_object() ? how->find("quant_method") : nullptr;
    const auto name = method != nullptr && method->is_string() ? method->as_string() : "";
    throw DataError(str((directory / kConfigFile).string(), ": ", key,
                        ": the weights are quantised",
                        name.empty() ? "" : " (quant_method is '" + name + "')",
                        "; expected F64, F32, BF16 or F16. ", dequantise_advice(name),
                        ". Remove the member if the weights are plain"));
  }
  if (!path_exists(directory / kAdapter)) return;
  const auto adapter = adapter_of(directory);
  if (!has_weights(directory))
    throw DataError(
        str(directory.string(), ": holds ", adapter, "; expected whole weights. ", kMerge));
  throw DataError(str(directory.string(), ": holds whole weights and ", adapter,
                      "; expected one of them. ", kMerge, ". Remove ", kAdapter,
                      " if the weights hold it already"));
}

std::string advice_without_weights(const fs::path& directory) {
  if (has_file(directory, ".gguf")) return str("found GGUF files. ", kGguf);
  return "other weight files are not read. Load the model with `transformers` and save it with "
         "save_pretrained()";
}

}  // namespace lockstep
