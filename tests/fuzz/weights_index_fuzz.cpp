// Any model.safetensors.index.json next to complete shards is rejected, or gives their weights.
#include "tests/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/train/model_weights.h"
#include "train/interop/huggingface.h"

namespace lockstep::fuzz::weights_index_fuzz {
namespace fs = std::filesystem;

ModelConfig small() {
  auto config = family_defaults(Family::llama3);
  config.layers = 1;
  config.width = config.mlp_width = 4;
  config.heads = config.kv_heads = 1;
  config.head_size = 4;
  config.vocabulary = 5;
  config.max_positions = 8;
  return config;
}

// Exported is a directory with an export in shards; its index is in memory.
class Exported {
 public:
  Exported() {
    float value = 0;
    for (const auto& slice : weights_.slices)
      for (std::int64_t i = 0; i < slice.local.elements(); ++i)
        slice.local.as<float>()[i] = ++value;
    export_huggingface(path(), small(), weights_.slices,
                       {.dtype = DType::fp32, .shard_bytes = 100});
    const auto index = path() / "model.safetensors.index.json";
    index_ = testing::slurp(index);
    fs::remove(index);
    fs::create_symlink(file_.path(), index);
  }

  fs::path path() const { return directory_ / "model"; }
  const std::string& index() const { return index_; }

  void check(std::string_view index) const {
    static const testing::ModelWeights read(small());
    file_.set(index);
    import_huggingface(path(), small(), read.slices);
    LOCKSTEP_CHECK(read.values() == weights_.values(), "other weights than were exported");
  }

 private:
  testing::TemporaryDirectory directory_;
  testing::ModelWeights weights_{small()};
  MemoryFile file_;
  std::string index_;
};

const Exported& exported() {
  static const Exported the_one;
  return the_one;
}

Seeds seeds() {
  return {exported().index()};
}

void check(std::string_view index) {
  exported().check(index);
}

const Target target("weights_index", seeds, check);

}  // namespace lockstep::fuzz::weights_index_fuzz
