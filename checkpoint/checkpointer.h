// Checkpointer: saves the state of a run so that it survives power loss, and finds the newest state
// that can be trusted.
//
//   DIRECTORY/step-00001000/manifest.json, rank-00000.safetensors
//
// A checkpoint is written into step-N.tmp, every file fsynced, and exists from the rename to step-N
// on. There is no pointer to the latest: it is the newest directory that validates. load() finds
// elements by name and range, so it reads what any other layout wrote.
//
// Of several ranks each writes a file of what it owns, or those of a machine one together, and rank
// 0 the manifest, when all files are on the disk. What one of them cannot do all of them report.
// They agree by messages beside training (World::gather), so a thread of its own may save while
// training goes on.
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
#include "checkpoint/machine_ranks.h"
#include "checkpoint/manifest.h"
#include "checkpoint/partners.h"
#include "checkpoint/retention.h"
#include "checkpoint/slices.h"
#include "core/function_ref.h"
#include "core/json.h"
#include "core/tensor.h"
#include "dist/comms.h"

namespace lockstep {

// One rank's piece of one tensor of the state; empty where other ranks have all of it.
struct StateSlice {
  std::string name;  // "model.norm.weight/adam_m"
  Shape whole;       // of the unpadded tensor
  Split split;
  Piece piece;
  Tensor local;       // [piece.end - piece.begin], on the host
  bool owned = true;  // by this rank, which saves it; others may hold it too, and load it
  // Where slices take turns in one place: called before `local` is read, and when it is filled.
  std::function<void()> fetch{}, put{};
};

StateSlice whole_slice(std::string name, Tensor tensor);  // all of it

class Checkpointer {
 public:
  // The tensors of `state`, and `world`, must outlive the checkpointer.
  //   world: of several ranks, who all make the same calls
  Checkpointer(std::filesystem::path directory, std::vector<StateSlice> state,
               Retention retention = {}, World* world = nullptr, const MachineRanks& machine = {});

  // The first one makes the directory; one that is removed after that is not made again.
  // Returns when the checkpoint is on the disk: at rank 0 how many bytes all ranks wrote. `about`
  // goes into the manifest and comes back from load(). A step-N that is there already, and any of a
  // later step (the run was resumed from before them), is renamed step-N.replaced-K, or .damaged-K
  // where manifest or sizes say so. `keep`: steps whose checkpoints stay too, see retention.h.
  // Throws DataError where it cannot be written; what was there before is then as it was.
  //   acted: called behind each of kActs things that a rank does, before it waits for the others
  std::int64_t save(
      std::int64_t step, const Json& about, const std::vector<std::int64_t>& keep = {},
      FunctionRef<void()> acted = [] {});
  // Make the place, write, compose the manifest, copy to the partner, commit; look what need not
  // stay, read back, delete.
  static constexpr int kActs = 8;

  // Of a checkpoint that may be loaded, and may have to come to the directory first.
  struct Candidate {
    std::int64_t step = 0;
    // All ranks at once; throws DataError where it does not come.
    std::function<void()> bring = [] {};
  };
  std::vector<Candidate> candidates() const;  // all of the directory, newest first

  // Fills the state from the first candidate that is whole, and returns its `about`; nothing where
  // there is none at all. `accept` sees the `about` first and may throw ConfigError. Says in one
  // line of the log why those before it are not used. Throws DataError where none can be used, and
  // AccessError where storage gives none of the copies of a step: that step is not damaged, and a
  // retry, or a person, decides what to do.
  std::optional<Json> load_first(std::span<const Candidate> candidates,
                                 FunctionRef<void(const Json& about)> accept) const;
  std::optional<Json> load_newest(FunctionRef<void(const Json& about)> accept) const {
    return load_first(candidates(), accept);
  }

  // Fills the state; returns `about`. Throws DataError where the checkpoint is damaged or its
  // tensors are not those of the state, naming the first difference.
  Json load(std::int64_t step) const;

 private:
  void plan_file(const MachineRanks& machine);
  CheckpointManifest write_state(const std::filesystem::path& into) const;
  void meet() const;
  Json load_whole(std::int64_t step, FunctionRef<void(const Json& about)> accept) const;
  std::filesystem::path directory_;
  std::vector<StateSlice> state_, owned_;
  ManifestFile file_;                  // that this rank writes into; without a name: nothing
  std::string header_;                 // of the file, where this rank writes it
  std::vector<std::int64_t> offsets_;  // in the file, of what is owned
  Retention retention_;
  AllRanks ranks_;
  MachineRanks machine_;
  bool has_saved_ = false;
  bool leads_;  // this rank makes and names directories, which others find
  Held held_;
  std::optional<Partners> partners_;
};

// exact: the checkpoint holds the tensors of the state and no others, in the same types.
// subset: it may hold more (moments, for a reader of weights), and fp32 and bf16 convert.
enum class Match : std::uint8_t { exact, subset };

struct Loaded {
  Json about;
  // Of some slices only a part was read, which no hash covers: verify_checkpoint() does.
  bool unverified = false;
};
Loaded load_checkpoint(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest,
                       std::span<const StateSlice> state, Match match);
inline Loaded load_checkpoint(const std::filesystem::path& checkpoint,
                              std::span<const StateSlice> state, Match match) {
  return load_checkpoint(checkpoint, read_manifest(checkpoint), state, match);
}

}  // namespace lockstep
