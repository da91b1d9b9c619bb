#include "launch/checkpoint_verb.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <sys/stat.h>

#include "checkpoint/checkpointer.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "model/families.h"
#include "train/huggingface.h"
#include "train/inference.h"
#include "train/memory.h"
#include "train/model_source.h"
#include "train/run_directory.h"
#include "train/run_state.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const fs::path& directory) {
  std::int64_t bytes = 0;
  std::error_code not_a_file;
  for (const auto& path : directory_entries(directory))
    if (const auto size = fs::file_size(path, not_a_file); !not_a_file)
      bytes += static_cast<std::int64_t>(size);
  return bytes;
}

std::string saved_at(const fs::path& checkpoint) {
  struct stat status {};
  if (stat(checkpoint.c_str(), &status) != 0) return "?";
  std::tm local{};
  localtime_r(&status.st_mtime, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

constexpr const char* kValid = "valid";

std::string state_of(const fs::path& checkpoint) {
  try {
    verify_checkpoint(checkpoint, Depth::contents);
    return kValid;
  } catch (const DataError& e) {
    return str("damaged: ", e.what());
  }
}

// A model's fp32 weights, whole, in memory of their own.
class Weights {
 public:
  explicit Weights(const std::string& path)
      : source_(find_model(path)),
        stream_(Device{}, "compute", Stream::Mode::immediate, processors_allowed()),
        arenas_(Device{}, checked_bytes(source_.model)),
        inference_({.model = source_.model}, stream_, arenas_) {
    load_weights(source_, inference_.params(), stream_);
  }
  const ModelSource& source() const { return source_; }
  std::vector<StateSlice> slices() { return weight_slices(inference_.params()); }

 private:
  static Arenas::Bytes checked_bytes(const ModelConfig& model) {
    const auto bytes = measure(model);
    require_memory(Device{}, bytes, "use a machine with more");
    return bytes;
  }
  static Arenas::Bytes measure(const ModelConfig& model) {
    Stream stream(Device{}, "measure", Stream::Mode::measuring);
    Arenas arenas = Arenas::measure(Device{});
    const Inference inference({.model = model}, stream, arenas);
    return arenas.peak();
  }

  ModelSource source_;
  Stream stream_;
  Arenas arenas_;
  Inference inference_;
};

}  // namespace

int checkpoint_export(const CheckpointExportOptions& options) {
  if (options.dtype != "bf16" && options.dtype != "fp32")
    throw UsageError(str("--dtype ", options.dtype, ": expected bf16 or fp32"));
  Weights weights(options.model);
  export_huggingface(options.out, weights.source().model, weights.slices(),
                     {.dtype = options.dtype == "bf16" ? DType::bf16 : DType::fp32,
                      .tokenizer_from = options.tokenizer_from});
  log_info("wrote ", weights.source().path.string(), " to ", options.out, " in ", options.dtype);
  return 0;
}

int checkpoint_import(const CheckpointImportOptions& options) {
  const RunDirectory run(options.out);
  const auto directory = run.checkpoints();
  if (!checkpoint_steps(directory).empty())
    throw UsageError(str(options.out, " has checkpoints already; name a new directory with --out"));
  Weights weights(options.model);
  Json about;
  about.set("step", 0);
  about.set("model", config_to_huggingface(weights.source().model));
  about.set("imported_from", weights.source().path.string());
  Checkpointer(directory, weights.slices()).save(0, about);
  log_info("wrote ", weights.source().path.string(), " to ",
           checkpoint_path(directory, 0).string());
  return 0;
}

int checkpoint_list(const std::string& run) {
  const auto directory = fs::path(run) / "checkpoints";
  if (!directory_exists(directory))
    throw DataError(str(run, ": expected the directory of a run, with checkpoints/"));
  const auto steps = checkpoint_steps(directory);
  if (steps.empty()) log_info("no checkpoint yet in ", directory.string());
  bool whole = true;
  for (const auto step : steps) {
    const auto path = checkpoint_path(directory, step);
    const auto state = state_of(path);
    whole = whole && state == kValid;
    char line[64];
    std::snprintf(line, sizeof line, "step %9lld  %9s  ", static_cast<long long>(step),
                  human_bytes(static_cast<double>(bytes_of(path))).c_str());
    std::cout << line << saved_at(path) << "  " << state << "\n";
  }
  return whole ? 0 : 65;
}

}  // namespace lockstep
