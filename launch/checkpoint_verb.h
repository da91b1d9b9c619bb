// `lockstep checkpoint`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// Writes the checkpoints of a run, or of its archive, oldest first: step, bytes, when it was saved,
// and whether it validates (every byte is read).
int checkpoint_list(const std::string& run);

// In the next four a checkpoint is one's directory, or a run or its archive, of which the newest is
// meant.

// Reads every byte of the checkpoints of a run, or of one, past the page cache; 65 where one is
// damaged.
int checkpoint_verify(const std::string& path);

// Writes what a checkpoint holds: step, tokens, settings, files, tensors.
int checkpoint_inspect(const std::string& path);

// Writes which tensors differ, and by how much; 1 where some do.
int checkpoint_diff(const std::string& a, const std::string& b);

// Without a value: as the run's settings say.
struct CheckpointPruneOptions {
  std::string run;
  std::optional<std::int64_t> keep_last;         // the newest so many
  std::optional<std::int64_t> keep_every_steps;  // and those of multiples of so many steps
  std::optional<std::int64_t> keep_best;         // and the so many of the lowest validation loss
  bool dry_run = false;                          // nothing is deleted
};

// Deletes the others that are whole, once the newest has been read back, and writes which.
int checkpoint_prune(const CheckpointPruneOptions& options);

struct CheckpointExportOptions {
  std::string model;           // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string out;             // must be empty or absent
  std::string dtype = "bf16";  // of the weights in the files: bf16 or fp32
  std::string tokenizer_from;  // directory whose tokenizer files are copied; empty: none
};

// Writes a directory that `transformers` loads.
int checkpoint_export(const CheckpointExportOptions& options);

struct CheckpointImportOptions {
  std::string model;  // as above
  std::string out;    // the directory of a run, which gets a checkpoint of step 0: weights alone
};

int checkpoint_import(const CheckpointImportOptions& options);

}  // namespace lockstep
