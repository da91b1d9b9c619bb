// `lockstep checkpoint`.
#pragma once

#include <string>

namespace lockstep {

// Writes the checkpoints of a run, oldest first: step, bytes, when it was saved, and whether it
// validates (every byte is read).
int checkpoint_list(const std::string& run);

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
