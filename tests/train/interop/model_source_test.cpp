#include "train/interop/model_source.h"

#include <sstream>

#include "checkpoint/checkpointer.h"
#include "model/families.h"
#include "tests/model/config_members_table.h"
#include "tests/train/model_weights.h"
#include "tests/wording.h"
#include "train/interop/huggingface.h"
#include "train/interop/weight_files.h"

namespace lockstep::testing::model_source_test {

namespace fs = std::filesystem;

constexpr const char* kReader = "train/model_source";
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
      // The compute weights follow the master weights.
      const auto master = static_cast<float>(found.at(params.layout().specs(0)[0].name)[0]);
      EXPECT_EQ(doubles(params.shards()[0].weight)[0],
                dtype == DType::bf16 ? to_float(to_bf16(master)) : master);
    }
}

TEST(ModelSource, lists_the_supported_formats_in_its_error) {
  const TemporaryDirectory directory;
  const auto expect_refused = [&](const char* what, const fs::path& path) {
    expect_refusal<DataError>(kReader, what, {path.string()}, [&] { find_model(path); });
  };
  expect_refused("an absent path", directory / "absent");
  expect_refused("an empty directory", directory.path());
  fs::create_directory(directory / "checkpoints");
  expect_refused("a run without a checkpoint", directory.path());
}

// find_model() and copy_tokenizer() give the same advice.
TEST(ModelSource, unsupported_formats_are_named_with_a_remedy) {
  const TemporaryDirectory directory;
  const std::pair<const char*, const char*> files[] = {
      {"adapter/adapter_config.json", R"({"base_model_name_or_path": "Qwen/Qwen3-0.6B"})"},
      {"adapter/adapter_model.safetensors", ""},
      {"quantised/model-q4_0.gguf", "GGUF"},
      {"cache/snapshots/1a2b/config.json", "{}"},
      {"meta/params.json", "{}"},
      {"weights/model.safetensors", ""},
      {"pytorch_model.bin", "PK"}};
  for (const auto& [name, text] : files) {
    fs::create_directories((directory / name).parent_path());
    spit(directory / name, text);
  }
  const auto expect_refused = [&](const fs::path& path, const std::string& pin) {
    expect_refusal<DataError>(kReader, path.string(), {pin}, [&] { find_model(path); });
    expect_refusal<DataError>(kReader, str("the tokenizer of ", path.string()), {pin},
                              [&] { copy_tokenizer(path, directory / "to"); });
  };
  const std::pair<const char*, const char*> hub[] = {
      {"meta-llama/Llama-3.1-8B", "hf download meta-llama/Llama-3.1-8B --local-dir"},
      {"no-such-gpt2", "hf download no-such-gpt2 --local-dir"},
      {"https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "hf download Qwen/Qwen3-0.6B --local"},
      {"hf://gpt2", "hf download gpt2 --local"},
      {"s3://bucket/model", "s3://bucket/model"}};
  for (const auto& [path, pin] : hub)
    expect_refused(path, pin);
  const std::pair<const char*, std::string> local[] = {
      {"adapter", "Qwen/Qwen3-0.6B"},
      {"adapter/adapter_model.safetensors", (directory / "adapter").string()},
      {"quantised", "GGUF"},
      {"quantised/model-q4_0.gguf", "gguf_file"},
      {"cache", (directory / "cache/snapshots").string()},
      {"meta", "convert_llama_weights_to_hf.py"},
      {"weights", "config.json"},
      {"weights/model.safetensors", (directory / "weights").string()},
      {"pytorch_model.bin", "PyTorch"}};
  for (const auto& [path, pin] : local)
    expect_refused(directory / path, pin);
  for (const auto& path : {directory / "absent", fs::path("./a/b"), fs::path("a/b/c"),
                           directory / "a/b", fs::path("a b")})
    EXPECT_EQ(message_of<DataError>([&] { find_model(path); }).find("hf download"),
              std::string::npos)
        << path;
}

TEST(ModelSource, quantised_weights_and_adapters_beside_weights_are_errors) {
  const TemporaryDirectory directory;
  const auto expect_refused = [&](const std::string& what, const std::string& pin) {
    expect_refusal<DataError>(kReader, what, {pin}, [&] { find_model(directory.path()); });
  };
  const auto set = [&](const std::string& key, const char* value) {
    Json config = Json::parse(slurp(kFixture / "config.json"), "config");
    config.set(key, Json::parse(value, "value"));
    spit(directory / "config.json", config.dump());
  };
  for (const char* method :
       {R"({"quant_method": "gptq", "bits": 4})", R"({"quant_method": "awq"})",
        R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", R"({"quant_method": "fp8"})",
        R"({"quant_method": "compressed-tensors"})", R"({"bits": 4})", "4"}) {
    set("quantization_config", method);
    expect_refused(method, "config.json: quantization_config: ");
  }
  for (const auto& row : kMemberRows) {
    if (row.use != MemberUse::weights) continue;
    std::istringstream members(row.members);
    for (std::string member; members >> member;) {
      set(member, R"({"group_size": 64, "bits": 4})");
      expect_refused(member, str("config.json: ", member, ": "));
    }
  }
  fs::copy(kFixture / "config.json", directory / "config.json",
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(find_model(directory.path()).form, ModelSource::Form::huggingface);
  spit(directory / "adapter_config.json", "{}");
  expect_refused("an adapter beside a config", "adapter_config.json");
  for (const std::string weights : {"model.safetensors.index.json", "model.safetensors"}) {
    spit(directory / weights, "");
    expect_refused("an adapter beside " + weights, "adapter_config.json");
    fs::remove(directory / weights);
  }
}

TEST(ModelSource, other_weights_beside_a_config_are_named_with_a_remedy) {
  const TemporaryDirectory directory;
  fs::copy(kFixture / "config.json", directory / "config.json");
  const auto read = [&] { WeightFiles(directory.path(), find_model(directory.path()).model); };
  expect_refusal<DataError>(kReader, "no weights beside a config", {"model.safetensors"}, read);
  spit(directory / "model-q4_0.gguf", "GGUF");
  expect_refusal<DataError>(kReader, "GGUF beside a config", {"GGUF", "gguf_file"}, read);
}

}  // namespace lockstep::testing::model_source_test
