#include "train/model_source.h"

#include <sstream>

#include "checkpoint/checkpointer.h"
#include "model/families.h"
#include "tests/files.h"
#include "tests/model/config_members_table.h"
#include "tests/train/model_weights.h"
#include "train/huggingface.h"
#include "train/weight_files.h"

namespace lockstep::testing::model_source_test {

namespace fs = std::filesystem;

const fs::path kFixture = fs::path(LOCKSTEP_FIXTURES) / "qwen3";

// A run whose one checkpoint holds the fixture's weights.
void make_run(const fs::path& run, const ModelConfig& config) {
  ModelWeights weights(config);
  import_huggingface(kFixture, config, weights.slices);
  Json about;
  about.set("model", config_to_huggingface(config));
  Checkpointer(run / "checkpoints", weights.slices).save(3, about);
}

TEST(ModelSource, each_form_of_a_model_gives_the_same_weights) {
  const TemporaryDirectory directory;
  const auto config = huggingface_config(kFixture);
  make_run(directory / "run", config);
  ModelWeights expected(config);
  import_huggingface(kFixture, config, expected.slices);
  for (const auto& path :
       {kFixture, directory / "run", directory / "run/checkpoints/step-00000003"})
    for (const auto dtype : {DType::fp32, DType::bf16}) {
      const auto source = find_model(path);
      EXPECT_EQ(source.model, config);
      Bench bench;
      auto comms = make_comms();
      ParamStore params(comms, {.compute_dtype = dtype});
      const Transformer model(params, source.model, {});
      params.allocate(bench.arena, bench.stream);
      load_weights(source, params, bench.stream);
      std::map<std::string, Doubles> found;
      for (const auto& slice : weight_slices(params))
        found[slice.name] = doubles(slice.local);
      EXPECT_EQ(found, expected.values()) << path << " " << name(dtype);
      // The weights that compute uses follow the masters.
      const auto master = static_cast<float>(found.at(params.layout().specs(0)[0].name)[0]);
      EXPECT_EQ(doubles(params.shards()[0].weight)[0],
                dtype == DType::bf16 ? to_float(to_bf16(master)) : master);
    }
}

TEST(ModelSource, says_what_was_looked_for) {
  const TemporaryDirectory directory;
  expect_contains(message_of<DataError>([&] { find_model(directory / "absent"); }),
                  "absent does not exist: expected the directory of a run");
  expect_contains(message_of<DataError>([&] { find_model(directory.path()); }),
                  "of a Hugging Face model (with config.json), or an llm.c model");
  fs::create_directory(directory / "checkpoints");
  expect_contains(message_of<DataError>([&] { find_model(directory.path()); }),
                  "no checkpoint that validates");
}

// Of each, what find_model() and copy_tokenizer() say of it.
TEST(ModelSource, forms_that_are_not_read_are_named_with_the_remedy) {
  const TemporaryDirectory directory;
  const auto make = [&](const char* name, const std::string& text) {
    const auto path = directory / name;
    fs::create_directories(path.parent_path());
    spit(path, text);
    return path;
  };
  make("adapter/adapter_config.json", R"({"base_model_name_or_path": "Qwen/Qwen3-0.6B"})");
  make("adapter/adapter_model.safetensors", "");
  make("quantised/model-q4_0.gguf", "GGUF");
  make("cache/snapshots/1a2b/config.json", "{}");
  make("meta/params.json", "{}");
  make("weights/model.safetensors", "");
  const std::pair<fs::path, std::string> cases[] = {
      {"meta-llama/Llama-3.1-8B",
       "If it is an id of the Hugging Face Hub, download it with `hf download "
       "meta-llama/Llama-3.1-8B --local-dir DIR` and name DIR"},
      {"no-such-gpt2", "`hf download no-such-gpt2 --local-dir"},
      {"https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "`hf download Qwen/Qwen3-0.6B --local"},
      {"hf://gpt2", "`hf download gpt2 --local"},
      {"s3://bucket/model", "It is an address: download it"},
      {directory / "adapter", "found an adapter (adapter_config.json) of Qwen/Qwen3-0.6B"},
      {directory / "adapter", "Merge it with the package peft"},
      {directory / "adapter/adapter_model.safetensors",
       "Name the directory, " + (directory / "adapter").string()},
      {directory / "quantised", "found GGUF files"},
      {directory / "quantised/model-q4_0.gguf", "found a GGUF file"},
      {directory / "quantised/model-q4_0.gguf", "from_pretrained(DIRECTORY, gguf_file=NAME)"},
      {directory / "cache",
       "Name one of its snapshots, " + (directory / "cache/snapshots").string()},
      {directory / "meta", "convert_llama_weights_to_hf.py"},
      {directory / "weights", "Copy the model's config.json there"},
      {make("weights/model.safetensors", ""), "Name the directory, "},
      {make("pytorch_model.bin", "PK"), "found a file that may be PyTorch's"}};
  for (const auto& [path, expected] : cases) {
    expect_contains(message_of<DataError>([&] { find_model(path); }), expected);
    expect_contains(message_of<DataError>([&] { copy_tokenizer(path, directory / "to"); }),
                    expected);
  }
  for (const auto& path : {directory / "absent", fs::path("./a/b"), fs::path("a/b/c"),
                           fs::path("/a/b"), fs::path("a b")})
    EXPECT_EQ(message_of<DataError>([&] { find_model(path); }).find("hf download"),
              std::string::npos)
        << path;
}

TEST(ModelSource, quantised_weights_and_adapters_beside_weights_are_refused) {
  const TemporaryDirectory directory;
  const auto refusal_with = [&](const char* key, const char* value) {
    Json config = Json::parse(slurp(kFixture / "config.json"), "config");
    config.set(key, Json::parse(value, "value"));
    spit(directory / "config.json", config.dump());
    return message_of<DataError>([&] { find_model(directory.path()); });
  };
  const std::pair<const char*, const char*> methods[] = {
      {R"({"quant_method": "gptq", "bits": 4})", "(quant_method is 'gptq'); expected F64, F32"},
      {R"({"quant_method": "awq"})", "Name the directory of the model before its quantization"},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "call model.dequantize() and"},
      {R"({"quant_method": "fp8"})",
       "FineGrainedFP8Config(dequantize=True)), call model.save_pretrained(DIR, save_original_"},
      {R"({"quant_method": "compressed-tensors"})", "CompressedTensorsConfig(dequantize=True)"},
      {R"({"bits": 4})", "Remove the member if the weights are plain"},
      {"4", "Name the directory of the model"}};
  for (const auto& [value, expected] : methods) {
    const auto text = refusal_with("quantization_config", value);
    expect_contains(text, "config.json: quantization_config: the weights are quantised");
    expect_contains(text, expected);
  }
  for (const auto& row : kMemberRows) {
    if (row.use != MemberUse::weights) continue;
    std::istringstream members(row.members);
    for (std::string member; members >> member;)
      expect_contains(refusal_with(member.c_str(), R"({"group_size": 64, "bits": 4})"),
                      str("config.json: ", member, ": the weights are quantised"));
  }
  fs::copy(kFixture / "config.json", directory / "config.json",
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(find_model(directory.path()).form, ModelSource::Form::huggingface);
  spit(directory / "adapter_config.json", "{}");
  expect_contains(message_of<DataError>([&] { find_model(directory.path()); }),
                  "holds an adapter (adapter_config.json); expected whole weights. Merge it");
  for (const char* weights : {"model.safetensors.index.json", "model.safetensors"}) {
    spit(directory / weights, "");
    expect_contains(
        message_of<DataError>([&] { find_model(directory.path()); }),
        "holds whole weights and an adapter (adapter_config.json); expected one of them");
    fs::remove(directory / weights);
  }
}

TEST(ModelSource, other_weights_beside_a_config_are_named_with_the_remedy) {
  const TemporaryDirectory directory;
  fs::copy(kFixture / "config.json", directory / "config.json");
  const auto refusal = [&] {
    return message_of<DataError>(
        [&] { WeightFiles(directory.path(), find_model(directory.path()).model); });
  };
  expect_contains(refusal(),
                  "expected model.safetensors or model.safetensors.index.json; other "
                  "weight files are not read. Load the model with `transformers`");
  spit(directory / "model-q4_0.gguf", "GGUF");
  expect_contains(refusal(),
                  "found GGUF files. Load it with `transformers`, from_pretrained(DIRECTORY, "
                  "gguf_file=NAME)");
}

}  // namespace lockstep::testing::model_source_test
