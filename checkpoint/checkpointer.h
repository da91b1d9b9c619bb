// Checkpointer saves a run's state so that it survives power loss, and loads the newest valid
// checkpoint.
//
//   DIRECTORY/step-00001000/manifest.json, rank-00000.safetensors
//
// Files are written to another directory (UnfinishedCheckpoint) and fsynced; the rename to step-N
// makes the checkpoint exist. No file points to the latest one: it is the newest directory that
// counts (checkpoint/epochs.h) and validates. load() finds elements by name and range, so it reads
// checkpoints of any layout.
//
// Each rank writes one file with the state that it owns, or the ranks of a host share one file.
// Rank 0 writes the manifest when all files are on disk. An error on one rank is thrown on all.
// Ranks agree by messages (World::gather), so a separate thread may save while training continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/all_ranks.h"
#include "checkpoint/directory.h"
#include "checkpoint/host_ranks.h"
#include "checkpoint/manifest.h"
#include "checkpoint/partners.h"
#include "checkpoint/retention.h"
#include "checkpoint/slices.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "core/tensor.h"
#include "dist/comms.h"

namespace lockstep {

// One rank's piece of one tensor of the state; empty if other ranks hold the whole tensor.
struct StateSlice {
  std::string name;  // "model.norm.weight/adam_m"
  Shape whole;       // shape of the unpadded tensor
  Split split;
  Piece piece;
  Tensor local;       // [piece.end - piece.begin], in host memory
  bool owned = true;  // this rank saves it; other ranks may hold a replica and load it
  // For slices that share one buffer: called before `local` is read, and after it is filled.
  std::function<void()> fetch{}, put{};
};

StateSlice whole_slice(std::string name, Tensor tensor);  // the whole tensor

class Checkpointer {
 public:
  // The tensors of `state`, `world`, and the epoch of `directory` must outlive the checkpointer.
  //   world: the ranks that save together; all of them make the same calls
  Checkpointer(CheckpointDirectory directory, std::vector<StateSlice> state,
               Retention retention = {}, World* world = nullptr, const HostRanks& machine = {});

  // Saves a checkpoint. Returns when it is on disk: the bytes of all ranks at rank 0. The first
  // save creates the directory; later saves fail if it was removed.
  // If step-N or later steps exist (after a resume from an older step), they are renamed to
  // step-N.replaced-K, or to .damaged-K if their manifest or sizes are invalid.
  // Throws DataError if the checkpoint cannot be written; existing checkpoints then stay unchanged.
  //   about: stored in the manifest and returned by load()
  //   keep: steps whose checkpoints must stay, see retention.h
  //   acted: called after each of the kActs actions of a rank, before it waits for the others
  std::int64_t save(
      std::int64_t step, const Json& about, const std::vector<std::int64_t>& keep = {},
      FunctionRef<void()> acted = [] {});
  // Create the directory, write, compose the manifest, copy to the partner, commit; find what to
  // delete, read back, delete, also before the save.
  static constexpr int kActs = 11;

  // A checkpoint that may be loaded.
  struct Candidate {
    std::int64_t step = 0;
    // Loads it into the state and returns its `about`. Called by all ranks; throws as load_first().
    std::function<Json(FunctionRef<void(const Json& about)> accept)> load;
  };
  std::vector<Candidate> candidates() const;  // checkpoints in the directory, newest first

  // Loads the first valid candidate into the state and returns its `about`; nullopt if there are no
  // candidates. `accept` gets the `about` first and may throw ConfigError. One log line gives the
  // reasons for skipped candidates. Throws DataError if no candidate is valid. Throws AccessError
  // if no copy of a step can be read: that step is not damaged, so the caller may retry.
  std::optional<Json> load_first(std::span<const Candidate> candidates,
                                 FunctionRef<void(const Json& about)> accept) const;
  // Loads a checkpoint of the directory as load_first() does. Called by all ranks.
  Json load_whole(std::int64_t step, FunctionRef<void(const Json& about)> accept) const;
  std::optional<Json> load_newest(FunctionRef<void(const Json& about)> accept) const {
    return load_first(candidates(), accept);
  }

  // Loads a checkpoint into the state and returns its `about`. Throws DataError if the checkpoint
  // is damaged or its tensors differ from those of the state; the error names the first difference.
  Json load(std::int64_t step) const;

 private:
  void plan_file(const HostRanks& machine);
  CheckpointManifest write_state(const std::filesystem::path& into) const;
  void act_on_leaders(FunctionRef<void()> act, FunctionRef<void()> acted) const;
  void make_room(const std::vector<std::int64_t>& keep, FunctionRef<void()> acted) const;
  void meet() const;
  CheckpointDirectory directory_;
  std::vector<StateSlice> state_, owned_;
  ManifestFile file_;                  // file that this rank writes to; no name: none
  std::string header_;                 // header of the file, if this rank writes it
  std::vector<std::int64_t> offsets_;  // offsets of owned_ in the file
  Retention retention_;
  AllRanks ranks_;
  HostRanks machine_;
  bool has_saved_ = false;
  bool leads_;  // this rank creates and renames directories for the others
  Held held_;
  std::optional<Partners> partners_;
};

// exact: the checkpoint has the tensors of the state and no others, with the same types.
// subset: it may have more (a reader of weights skips moments), and fp32 and bf16 are converted.
enum class Match : std::uint8_t { exact, subset };

struct Loaded {
  Json about;
  // True if a slice was read only in part, which no hash covers; verify_checkpoint() checks it.
  bool unverified = false;
};
Loaded load_checkpoint(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest,
                       std::span<const StateSlice> state, Match match);
inline Loaded load_checkpoint(const std::filesystem::path& checkpoint,
                              std::span<const StateSlice> state, Match match) {
  return load_checkpoint(checkpoint, read_manifest(checkpoint), state, match);
}

}  // namespace lockstep
