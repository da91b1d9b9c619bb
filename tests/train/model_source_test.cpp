#include "train/model_source.h"

#include "checkpoint/checkpointer.h"
#include "model/families.h"
#include "tests/files.h"
#include "tests/train/model_weights.h"
#include "train/huggingface.h"

namespace lockstep::testing {
namespace {

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

}  // namespace
}  // namespace lockstep::testing
