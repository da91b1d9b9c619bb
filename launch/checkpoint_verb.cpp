#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <sys/stat.h>

#include "checkpoint/checkpointer.h"
#include "checkpoint/compare.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "data/tokenizer/tokenizer_files.h"
#include "launch/checkpoint_fork.h"
#include "launch/verb.h"
#include "model/families.h"
#include "train/config.h"
#include "train/interop/gguf_export.h"
#include "train/interop/huggingface.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"
#include "train/interop/streamed_weights.h"
#include "train/run_directory.h"
#include "train/step/inference.h"
#include "train/step/memory.h"
#include "train/step/state_slices.h"

namespace lockstep {
namespace {

// A missing value means the configuration of the run.
struct CheckpointPruneOptions {
  std::string run;
  std::optional<std::int64_t> keep_last;         // number of newest checkpoints to keep
  std::optional<std::int64_t> keep_every_steps;  // keep multiples of this number of steps too
  std::optional<std::int64_t> keep_best;         // keep this many with the lowest validation loss
  bool dry_run = false;                          // delete nothing
};

struct CheckpointExportOptions {
  std::string model;           // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string out;             // must be empty or absent
  std::string dtype = "bf16";  // type of the weights in the files: bf16 or fp32
  std::string gguf;            // type of the weights in a GGUF file; empty: a directory
  std::string tokenizer_from;  // directory whose tokenizer files are copied; empty: the model's
};

struct CheckpointImportOptions {
  std::string model;  // same forms as for export
  std::string out;    // directory of a run, which gets a checkpoint of step 0 with weights only
};

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

struct State {
  std::string text;
  int exit_code;
};

State state_of(const fs::path& checkpoint, bool from_disk) {
  try {
    verify_checkpoint(checkpoint, Depth::contents, from_disk);
    return {"valid", 0};
  } catch (const AccessError& e) {
    return {str("cannot be read: ", e.what()), e.exit_code()};
  } catch (const DataError& e) {
    return {str("damaged: ", e.what()), e.exit_code()};
  }
}

// Combines exit codes: damage counts first, because it is certain.
int worse_of(int a, int b) {
  const int damaged = DataError("").exit_code();
  return a == damaged || b == damaged ? damaged : std::max(a, b);
}

// The directory of a checkpoint, or the newest checkpoint of a run or of its archive.
fs::path named_checkpoint(const std::string& path) {
  if (path_exists(fs::path(path) / kCheckpointManifestName)) return path;
  const auto directory = checkpoints_of(path);
  if (!directory)
    throw DataError(str(path, ": expected a checkpoint (with ", kCheckpointManifestName,
                        "), a run (with checkpoints/) or the archive of a run"));
  const auto steps = checkpoint_steps(*directory);
  if (steps.empty()) throw DataError(str(directory->string(), ": no checkpoint yet"));
  return checkpoint_path(*directory, steps.back());
}

std::vector<fs::path> named_checkpoints(const std::string& path) {
  const auto newest = named_checkpoint(path);  // throws if there is no checkpoint
  if (newest == path) return {newest};
  std::vector<fs::path> all;
  const auto directory = newest.parent_path();
  for (const auto step : checkpoint_steps(directory))
    all.push_back(checkpoint_path(directory, step));
  return all;
}

// The complete fp32 weights of a model, in their own memory.
class Weights {
 public:
  explicit Weights(const ModelSource& source)
      : stream_(Device{}, "compute", Stream::Mode::immediate, processors_allowed()),
        arenas_(Device{}, checked_bytes(source.model)),
        inference_({.model = source.model}, stream_, arenas_) {
    load_weights(source, inference_.params(), stream_);
  }
  std::vector<StateSlice> slices() { return weight_slices(inference_.params()); }

 private:
  static Arenas::Bytes checked_bytes(const ModelConfig& model) {
    const auto bytes = measure(model);
    room_here(Device{}).require(bytes, "use a host with more memory");
    return bytes;
  }
  static Arenas::Bytes measure(const ModelConfig& model) {
    Stream stream(Device{}, "measure", Stream::Mode::measuring);
    Arenas arenas = Arenas::measure(Device{});
    const Inference inference({.model = model}, stream, arenas);
    return arenas.peak();
  }

  Stream stream_;
  Arenas arenas_;
  Inference inference_;
};

// Prints one value per line; nested values have dotted names: "data.seed: 1".
void print_values(const Json& object, const std::string& prefix) {
  constexpr std::size_t kShown = 8;
  for (const auto& [key, value] : object.as_object()) {
    if (value.is_object()) {
      print_values(value, prefix + key + ".");
      continue;
    }
    std::cout << prefix << key << ": ";
    if (value.is_array() && value.as_array().size() > kShown)
      std::cout << value.as_array().size() << " values\n";
    else
      std::cout << (value.is_string() ? value.as_string() : value.dump()) << "\n";
  }
}

// The record of the newest readable checkpoint.
Json newest_about(const fs::path& directory) {
  auto steps = checkpoint_steps(directory);
  for (; !steps.empty(); steps.pop_back())
    try {
      return read_manifest(checkpoint_path(directory, steps.back())).about;
    } catch (const DataError&) {
    }
  return Json::Object{};
}

// The retention rules of the run that saved a checkpoint, overridden by the options.
Retention retention_of(const Json& about, const CheckpointPruneOptions& options) {
  const Json* settings = about.find("configuration");
  const auto run_says = [&](const char* key, std::int64_t otherwise) {
    const Json* value = settings != nullptr ? settings->find(key) : nullptr;
    return value != nullptr ? value->as_integer() : otherwise;
  };
  return {
      .last = static_cast<int>(options.keep_last.value_or(
          run_says("checkpoint.keep_last", Config::Checkpoint{}.keep_last))),
      .every = options.keep_every_steps.value_or(run_says("checkpoint.keep_every_steps", 0)),
      .best = static_cast<int>(options.keep_best.value_or(run_says("checkpoint.keep_best", 0)))};
}

// The model that the run started from; empty: random weights.
std::string origin_of(const Json& about) {
  const Json* settings = about.find("configuration");
  const Json* origin =
      settings != nullptr ? settings->find("train.init_from") : about.find("imported_from");
  return origin != nullptr && origin->is_string() ? origin->as_string() : "";
}

bool has_same_tokenizer(const fs::path& a, const fs::path& b) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  const auto of_a = tokenizer_in(a), of_b = tokenizer_in(b);
  return of_a && of_b && read_text(*of_a, kMostBytes) == read_text(*of_b, kMostBytes);
}

// Warns about files that earlier versions did not keep: they kept only tokenizer.json and
// tokenizer_config.json.
void warn_of_lost_files(const ModelSource& source, const fs::path& kept) {
  const auto origin = origin_of(source.about);
  if (origin.empty() || path_exists(kept / "generation_config.json")) return;
  if (directory_exists(origin) && !has_same_tokenizer(origin, kept)) return;
  std::string lost;
  for (const auto& name : tokenizer_file_names(origin))
    if (!path_exists(kept / name)) lost += str(lost.empty() ? "" : ", ", name);
  if (lost.empty() && directory_exists(origin)) return;
  log_warning(kept.string(), " lacks ",
              lost.empty() ? std::string("files that runs keep now, such as chat_template.jinja "
                                         "and generation_config.json")
                           : lost,
              ", which earlier versions did not keep; to export them too, add --tokenizer-from ",
              origin, " (the model that the run started from)");
}

// Rejects a tokenizer with more tokens than the model. For a tokenizer that Lockstep cannot read it
// only warns, because `transformers` may support it.
void check_tokenizer_from(const ModelConfig& model, const fs::path& from) {
  const auto file = tokenizer_in(from);
  if (!file) return;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(file->string());
  } catch (const DataError& error) {
    return log_warning(
        "--tokenizer-from: token ids are not checked against the model's "
        "vocabulary of ",
        model.vocabulary, ": ", error.what());
  }
  in_context([&] { require_tokens_of(model, *tokenizer); }, "--tokenizer-from ", from.string());
}

// Sets the tokenizer files and token ids that are exported with the weights.
void take_tokenizer(const ModelSource& source, HuggingFaceExport& how) {
  const auto own = tokenizer_of(source);
  if (how.tokenizer_from.empty() && own == "bytes") {
    const auto about = ByteTokenizer().about();
    how.token_ids = {about.document_token, about.end_token, {}};
    how.byte_tokenizer = true;
    return;
  }
  if (how.tokenizer_from.empty()) {
    const auto kept = tokenizer_directory_of(source);
    if (source.form == ModelSource::Form::checkpoint) warn_of_lost_files(source, kept);
    if (source.form == ModelSource::Form::llmc || tokenizer_file_names(kept).empty()) return;
    how.tokenizer_from = kept;
  } else {
    check_tokenizer_from(source.model, how.tokenizer_from);
  }
  how.token_ids = token_ids(how.tokenizer_from, source.model.vocabulary);
}

// Reads every byte of one checkpoint, or of all checkpoints of a run, bypassing the page cache.
// Returns 65 if one is damaged.
int checkpoint_verify(const std::string& path) {
  int exit_code = 0;
  for (const auto& checkpoint : named_checkpoints(path)) {
    const auto begin = std::chrono::steady_clock::now();
    const auto state = state_of(checkpoint, /*from_disk=*/true);
    exit_code = worse_of(exit_code, state.exit_code);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const auto bytes = static_cast<double>(bytes_of(checkpoint));
    std::cout << checkpoint.string() << "  " << human_bytes(bytes) << "  "
              << human_bytes(bytes / took.count()) << "/s  " << state.text << "\n";
  }
  return exit_code;
}

// Prints the contents of a checkpoint: step, tokens, settings, files, tensors.
int checkpoint_inspect(const std::string& path) {
  const auto checkpoint = named_checkpoint(path);
  const auto manifest = read_manifest(checkpoint);
  std::cout << checkpoint.string() << ", step " << manifest.step << ", saved "
            << saved_at(checkpoint) << "\n";
  print_values(manifest.about, "  ");
  std::cout << manifest.files.size() << " files\n";
  for (const auto& file : manifest.files)
    std::cout << "  " << file.name << "  " << human_bytes(static_cast<double>(file.bytes)) << "\n";
  std::cout << manifest.tensors.size() << " tensors\n";
  for (const auto& tensor : manifest.tensors)
    std::cout << "  " << tensor.name << "  " << name(tensor.dtype) << " " << tensor.shape << "  in "
              << tensor.slices.size() << (tensor.slices.size() == 1 ? " slice\n" : " slices\n");
  return 0;
}

// Prints the tensors that differ, and by how much. Returns 1 if there are differences.
int checkpoint_diff(const std::string& a, const std::string& b) {
  const auto found = compare_checkpoints(named_checkpoint(a), named_checkpoint(b));
  for (const auto& name_of_one : found.only_in_a)
    std::cout << "only in the first checkpoint: " << name_of_one << "\n";
  for (const auto& name_of_one : found.only_in_b)
    std::cout << "only in the second checkpoint: " << name_of_one << "\n";
  for (const auto& text : found.other_shape)
    std::cout << text << "\n";
  for (const auto& t : found.tensors)
    std::cout << t.name << " " << t.shape << ": " << t.differing << " of " << t.shape.elements()
              << " elements differ, by at most " << t.largest << " (element " << t.largest_index
              << "), relative " << t.relative << "\n";
  std::cout << found.same << " tensors are equal, " << found.tensors.size() << " differ\n";
  return found.empty() ? 0 : 1;
}

// Validates the newest checkpoint, then deletes the complete checkpoints that the retention rules
// do not keep, and prints their names.
int checkpoint_prune(const CheckpointPruneOptions& options) {
  const auto directory = fs::path(options.run) / "checkpoints";
  if (named_checkpoint(options.run).parent_path() != directory)
    throw DataError(str(options.run, ": expected a run (with checkpoints/)"));
  std::optional<RunDirectory> held;
  if (!options.dry_run) {
    held.emplace(options.run);  // locks the run against training
    held->claim_epoch();
  }
  const auto before = checkpoint_steps(directory).size();
  const auto about = newest_about(directory);
  const auto retention = retention_of(about, options);
  std::vector<std::int64_t> keep;
  if (const Json* good = about.find("last_good_checkpoint"); good != nullptr && !options.keep_last)
    keep.push_back(good->as_integer());
  const auto going = options.dry_run
                         ? prunable_checkpoints(directory, retention, keep)
                         : prune_checkpoints(held->owned_checkpoints(), retention, keep);
  if (held) held->epoch()->purge();
  for (const auto step : going)
    std::cout << checkpoint_path(directory, step).string() << "\n";
  log_info(options.dry_run ? "would delete " : "deleted ", going.size(), " of ", before,
           " checkpoints in ", directory.string(), " (keep_last ", retention.last,
           ", keep_every_steps ", retention.every, ", keep_best ", retention.best, ")");
  return 0;
}

// Calls act(weights) with the weights of a model, which are read when they are used if possible.
template <class Act>
void with_weights(const ModelSource& source, Act&& act) {
  if (source.form == ModelSource::Form::checkpoint)
    act(StreamedWeights(source).slices());
  else
    act(Weights(source).slices());
}

// Writes a file that llama.cpp can load.
int export_to_gguf(const CheckpointExportOptions& options) {
  const std::map<std::string, GgufType> types{
      {"F32", GgufType::f32}, {"F16", GgufType::f16}, {"Q8_0", GgufType::q8_0}};
  const auto type = types.find(options.gguf);
  if (type == types.end())
    throw UsageError(str("--gguf ", options.gguf, ": expected F32, F16 or Q8_0"));
  const auto source = find_model(options.model);
  HuggingFaceExport files{.tokenizer_from = options.tokenizer_from};
  take_tokenizer(source, files);
  if (!files.byte_tokenizer && files.tokenizer_from.empty())
    throw UsageError(str(source.path.string(),
                         ": found no tokenizer with this model, which a GGUF file needs; pass its "
                         "directory with --tokenizer-from"));
  const GgufExport how{.type = type->second,
                       .tokenizer = files.byte_tokenizer ? "bytes" : files.tokenizer_from.string(),
                       .token_ids = files.token_ids};
  with_weights(source, [&](const std::vector<StateSlice>& weights) {
    export_gguf(options.out, source.model, weights, how);
  });
  log_info("wrote ", source.path.string(), " to ", options.out, " in ", options.gguf);
  return 0;
}

// Writes a directory that `transformers` can load, or a GGUF file.
int checkpoint_export(const CheckpointExportOptions& options) {
  if (!options.gguf.empty()) return export_to_gguf(options);
  if (options.dtype != "bf16" && options.dtype != "fp32")
    throw UsageError(str("--dtype ", options.dtype, ": expected bf16 or fp32"));
  const auto source = find_model(options.model);
  HuggingFaceExport how{.dtype = options.dtype == "bf16" ? DType::bf16 : DType::fp32,
                        .tokenizer_from = options.tokenizer_from};
  take_tokenizer(source, how);
  with_weights(source, [&](const std::vector<StateSlice>& weights) {
    export_huggingface(options.out, source.model, weights, how);
  });
  log_info("wrote ", source.path.string(), " to ", options.out, " in ", options.dtype);
  return 0;
}

int checkpoint_import(const CheckpointImportOptions& options) {
  RunDirectory run(options.out);
  const auto directory = run.checkpoints();
  if (!checkpoint_steps(directory).empty())
    throw UsageError(
        str("--out ", options.out, ": expected a new directory, found a run with checkpoints"));
  run.claim_epoch();
  const auto source = find_model(options.model);
  Weights weights(source);
  Json about;
  about.set("step", 0);
  about.set("model", config_to_huggingface(source.model));
  about.set("imported_from", fs::absolute(source.path).lexically_normal().string());
  Checkpointer(run.owned_checkpoints(), weights.slices()).save(0, about);
  keep_tokenizer(tokenizer_of(source), run.tokenizer(), source.path);
  log_info("wrote ", source.path.string(), " to ", checkpoint_path(directory, 0).string());
  return 0;
}

// Prints the checkpoints of a run, or of its archive, oldest first: step, bytes, time of the save,
// and state (every byte is read).
int checkpoint_list(const std::string& run) {
  const auto directory = checkpoints_of(run);
  if (!directory)
    throw DataError(str(run, ": expected a run (with checkpoints/) or the archive of a run"));
  const auto steps = checkpoint_steps(*directory);
  if (steps.empty()) log_info("no checkpoint yet in ", directory->string());
  int exit_code = 0;
  for (const auto step : steps) {
    const auto path = checkpoint_path(*directory, step);
    const auto state = state_of(path, /*from_disk=*/false);
    exit_code = worse_of(exit_code, state.exit_code);
    char line[64];
    std::snprintf(line, sizeof line, "step %9lld  %9s  ", static_cast<long long>(step),
                  human_bytes(static_cast<double>(bytes_of(path))).c_str());
    std::cout << line << saved_at(path) << "  " << state.text << "\n";
  }
  return exit_code;
}

}  // namespace

Verb checkpoint_verb() {
  static constexpr const char* kForms =
      "a checkpoint, or a run or its archive (its newest checkpoint)";
  auto path = std::make_shared<std::string>(), other = std::make_shared<std::string>();
  auto pruned = std::make_shared<CheckpointPruneOptions>();
  auto exported = std::make_shared<CheckpointExportOptions>();
  auto imported = std::make_shared<CheckpointImportOptions>();
  auto forked = std::make_shared<CheckpointForkOptions>();
  const Flag one{"path", path.get(), "Run", "PATH", kForms, kRequired};
  return {
      "checkpoint",
      "list, verify, compare, prune, fork, export and import checkpoints",
      {},
      {},
      {{"list",
        "list and validate the checkpoints of a run (exit 65 if one is damaged)",
        {{"run", path.get(), "Run", "DIR", "a run or its archive", kRequired}},
        [path] { return checkpoint_list(*path); }},
       {"verify",
        "read every byte of a checkpoint, or of all checkpoints of a run",
        {{"path", path.get(), "Run", "PATH", "a checkpoint, or a run or its archive", kRequired}},
        [path] { return checkpoint_verify(*path); }},
       {"inspect",
        "print the contents of a checkpoint",
        {one},
        [path] { return checkpoint_inspect(*path); }},
       {"diff",
        "list the tensors that differ between two checkpoints (exit 1 if some differ)",
        {{"a", path.get(), "Run", "PATH", kForms, kRequired},
         {"b", other.get(), "Run", "PATH", kForms, kRequired}},
        [path, other] { return checkpoint_diff(*path, *other); }},
       {"prune",
        "delete old checkpoints of a run",
        {{"run", &pruned->run, "Run", "DIR", "directory of the run", kRequired},
         {"--keep-last", &pruned->keep_last, "Run", "N",
          "keep the N newest checkpoints (default: checkpoint.keep_last of the run)",
          kRule.within(1)},
         {"--keep-every-steps", &pruned->keep_every_steps, "Run", "STEPS",
          "also keep checkpoints at multiples of STEPS; 0: disabled (default: "
          "checkpoint.keep_every_steps of the run)",
          kRule.within(0)},
         {"--keep-best", &pruned->keep_best, "Run", "N",
          "also keep the N checkpoints with the lowest validation loss (default: "
          "checkpoint.keep_best of the run)",
          kRule.within(0)},
         {"--dry-run", &pruned->dry_run, "Run", "", "only print what would be deleted"}},
        [pruned] { return checkpoint_prune(*pruned); }},
       {"fork",
        "make a new run that continues from a checkpoint of a run",
        {{"run", &forked->run, "Run", "DIR", "directory of the run", kRequired},
         {"--step", &forked->step, "Run", "STEP", "step of the checkpoint (default: the newest)",
          kRule.within(0)},
         {"--out", &forked->out, "Run", "DIR", "directory of the new run; must be empty or absent",
          kRequired},
         settings_flag(forked->settings)},
        [forked] { return checkpoint_fork(*forked); }},
       {"export",
        "export a model to a Hugging Face directory, or to a GGUF file for llama.cpp",
        {{"model", &exported->model, "Model", "MODEL", kModelForms, kRequired},
         {"--out", &exported->out, "Output", "PATH",
          "output directory, empty or absent; with --gguf a new file", kRequired},
         {"--dtype", &exported->dtype, "Output", "bf16|fp32", "type of the weights", kWithDefault},
         {"--gguf", &exported->gguf, "Output", "F32|F16|Q8_0",
          "write a GGUF file with matrices of this type", kRule.excluding({"--dtype"})},
         {"--tokenizer-from", &exported->tokenizer_from, "Output", "DIR",
          "copy the tokenizer files of this directory (default: those of the model)"}},
        [exported] { return checkpoint_export(*exported); }},
       {"import",
        "import a model as the first checkpoint of a run",
        {{"model", &imported->model, "Model", "MODEL", kModelForms, kRequired},
         {"--out", &imported->out, "Output", "DIR", "directory of the new run", kRequired}},
        [imported] { return checkpoint_import(*imported); }}}};
}

}  // namespace lockstep
