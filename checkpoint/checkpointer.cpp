#include "checkpoint/checkpointer.h"

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "dist/job/rank_consistency.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashedBytes = std::size_t{1} << 20;  // hashed, then written while cached

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.bytes())};
}

void check_slice(const StateSlice& s) {
  LOCKSTEP_CHECK(s.whole.rank > 0 && 0 <= s.split.dim && s.split.dim < s.whole.rank &&
                     0 <= s.piece.part && s.piece.part < s.split.parts,
                 s.name, ": invalid part ", s.piece.part, " of ", s.split.parts,
                 " parts of a tensor of shape ", s.whole);
  LOCKSTEP_CHECK(0 <= s.piece.begin && s.piece.begin <= s.piece.end &&
                     s.piece.end <= part_elements(s.whole, s.split, s.piece.part) &&
                     s.piece.end - s.piece.begin == s.local.elements(),
                 s.name, ": invalid elements [", s.piece.begin, ", ", s.piece.end,
                 "): the part has ", part_elements(s.whole, s.split, s.piece.part),
                 " elements, the local tensor ", s.local.elements());
  LOCKSTEP_CHECK(s.local.device.kind == Device::Kind::cpu, s.name,
                 ": expected a tensor in host memory");
}

// Name and shape of a slice in the safetensors file: those of the tensor if the slice is the whole
// tensor, otherwise a flat shape.
StoredTensor stored_slice(const StateSlice& s) {
  StoredTensor stored{s.name, stored_type(s.local.dtype), {}};
  const auto& [part, begin, end] = s.piece;
  if (end - begin == s.whole.elements()) {
    for (int i = 0; i < s.whole.rank; ++i)
      stored.shape.push_back(s.whole[i]);
  } else {
    stored.name +=
        str("[", part, "/", s.split.parts, " of dim ", s.split.dim, ", ", begin, ":", end, "]");
    stored.shape = {end - begin};
  }
  return stored;
}

// JSON for other ranks of the same program.
Json to_json(const StoredTensor& tensor) {
  Json::Array shape;
  for (const auto size : tensor.shape)
    shape.emplace_back(size);
  return Json::Array{tensor.name, static_cast<int>(tensor.type), std::move(shape)};
}
StoredTensor stored_tensor(const Json& json) {
  const auto& values = json.as_array();
  StoredTensor tensor{
      values.at(0).as_string(), static_cast<StoredType>(values.at(1).as_integer()), {}};
  for (const auto& size : values.at(2).as_array())
    tensor.shape.push_back(size.as_integer());
  return tensor;
}

}  // namespace

StateSlice whole_slice(std::string name, Tensor tensor) {
  return {std::move(name), tensor.shape, unsplit(tensor.shape), {0, 0, tensor.elements()}, tensor};
}

Checkpointer::Checkpointer(CheckpointDirectory directory, std::vector<StateSlice> state,
                           Retention retention, World* world, const HostRanks& machine)
    : directory_(std::move(directory)),
      state_(std::move(state)),
      retention_(std::move(retention)),
      ranks_(world, "checkpoint"),
      machine_(machine),
      leads_(machine.own_directory ? machine.ranks.front() == ranks_.rank() : ranks_.is_first()),
      held_(machine.own_directory ? Held::some : Held::all) {
  for (const auto& slice : state_)
    check_slice(slice);
  // Sorts wide elements first, so that each tensor is aligned in the file.
  std::stable_sort(state_.begin(), state_.end(), [](const StateSlice& a, const StateSlice& b) {
    return bytes_per_element(a.local.dtype) > bytes_per_element(b.local.dtype);
  });
  std::copy_if(state_.begin(), state_.end(), std::back_inserter(owned_),
               [](const StateSlice& slice) { return slice.owned; });
  LOCKSTEP_CHECK(!(machine.own_directory && machine.ranks.empty()),
                 "own_directory is set, but no ranks are given");
  plan_file(machine);
  if (machine.own_directory && machine.partners) partners_.emplace(ranks_, machine);
}

// Computes the layout of the file that ranks write together. It does not change between saves.
void Checkpointer::plan_file(const HostRanks& machine) {
  struct Stored {
    int rank;
    StoredTensor tensor;
  };
  std::vector<Stored> all;
  const int me = ranks_.rank();
  const bool is_shared = machine.one_file && ranks_.world() != nullptr;
  if (!is_shared) {
    for (const auto& slice : owned_)
      all.push_back({me, stored_slice(slice)});
  } else {
    Json::Array mine;
    for (const auto& slice : owned_)
      mine.push_back(to_json(stored_slice(slice)));
    const auto said = ranks_.exchanged(Json(std::move(mine)).dump());
    for (const int rank : machine.ranks) {
      const Json slices = Json::parse(said.at(static_cast<std::size_t>(rank)), "slices of a rank");
      for (const auto& json : slices.as_array())
        all.push_back({rank, stored_tensor(json)});
    }
  }
  if (all.empty()) return;
  // Sorts wide elements first, so that each tensor is aligned in the file.
  std::stable_sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    return bytes_per_element(a.tensor.type) > bytes_per_element(b.tensor.type);
  });
  std::vector<StoredTensor> tensors;
  for (const auto& stored : all)
    tensors.push_back(stored.tensor);
  auto header = lay_out_safetensors(tensors, {{"format", "pt"}});
  const auto header_bytes = static_cast<std::int64_t>(header.size());
  file_ = {is_shared ? machine.file_of(me) : rank_file(me, ".safetensors"),
           tensors.back().offset + tensors.back().bytes, header_bytes, hash_hex(header)};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].rank == me) offsets_.push_back(tensors[i].offset);
  if (!is_shared || machine.ranks.front() == me) header_ = std::move(header);
}

// Writes the slices that this rank owns. The manifest has only these.
CheckpointManifest Checkpointer::write_state(const fs::path& into) const {
  CheckpointManifest manifest;
  if (owned_.empty() && header_.empty()) return manifest;
  const auto path = into / file_.name;
  RangeWriter writer(path, path, RangeWriter::Way::direct, RangeWriter::Start::shared);
  writer.write(std::as_bytes(std::span(header_)));
  manifest.files.push_back(file_);
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    const auto& slice = owned_[i];
    if (slice.fetch) slice.fetch();
    writer.seek(offsets_[i]);
    Hasher hasher;
    for (auto rest = bytes_of(slice.local); !rest.empty();) {
      const auto piece = rest.first(std::min(rest.size(), kHashedBytes));
      hasher.add(piece);
      writer.write(piece);
      rest = rest.subspan(piece.size());
    }
    const auto [entry, is_new] = index.emplace(slice.name, manifest.tensors.size());
    if (is_new)
      manifest.tensors.push_back({slice.name, slice.whole, slice.local.dtype, slice.split, {}});
    manifest.tensors[entry->second].slices.push_back({slice.piece, 0, offsets_[i], hasher.hex()});
  }
  writer.commit();
  return manifest;
}

void Checkpointer::act_on_leaders(FunctionRef<void()> act, FunctionRef<void()> acted) const {
  if (machine_.own_directory)
    ranks_.act_if(leads_, act, acted);
  else
    ranks_.act_first(act, acted);
}

std::int64_t Checkpointer::save(std::int64_t step, const Json& about,
                                const std::vector<std::int64_t>& keep, FunctionRef<void()> acted) {
  if (held_ == Held::some && retention_.last > 0) make_room(keep, acted);
  const auto path = UnfinishedCheckpoint::path_of(directory_, step);
  std::optional<UnfinishedCheckpoint> unfinished;
  const auto make_place = [&] {
    if (!has_saved_) make_directories(directory_.path);
    unfinished.emplace(directory_, step);
    if (directory_.epoch != nullptr) directory_.epoch->purge();
  };
  act_on_leaders(make_place, acted);
  const auto parts = ranks_.act([&] { return write_state(path).dump_part(); }, acted);
  std::string text;
  std::int64_t bytes = 0;
  const auto compose = [&] {
    CheckpointManifest manifest;
    manifest.step = step;
    manifest.epoch = directory_.epoch != nullptr ? directory_.epoch->number() : 0;
    manifest.about = about;
    CheckpointManifest::Index index;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      manifest.add_part(parts[rank], str("manifest part of rank ", rank), index);
    for (const auto& file : manifest.files)
      bytes += file.bytes;
    text = manifest.dump();
    // A manifest that a reader would reject is never written.
    CheckpointManifest::parse(text, "the new manifest");
  };
  ranks_.act_first(compose, acted);
  if (held_ == Held::some) text = ranks_.told(text);
  if (partners_) partners_->copy(ranks_, text, path, acted);
  act_on_leaders([&] { unfinished->commit(text, held_); }, acted);
  has_saved_ = true;
  // Prunes only after all hosts have the new checkpoint.
  if (retention_.last > 0)
    prune_checkpoints(ranks_, machine_, directory_, step, retention_, keep, acted);
  return bytes;
}

// Before a save on the hosts, deletes checkpoints that are older than the newest one in `keep` and
// not in it, so that a host needs room for two and not for three. Later ones were unusable or
// abandoned.
void Checkpointer::make_room(const std::vector<std::int64_t>& keep,
                             FunctionRef<void()> acted) const {
  if (keep.empty()) return;
  const auto newest = std::ranges::max(keep);
  auto retention = retention_;
  retention.last = 1;
  try {
    ranks_.act_if(leads_, [&] {
      for (const auto step : named_steps(directory_.path))
        if (step > newest) remove_checkpoint(checkpoint_path(directory_.path, step));
    });
    prune_checkpoints(ranks_, machine_, directory_, newest, retention, keep, acted);
  } catch (const DataError& error) {  // on all ranks
    log_warning("older checkpoints are kept: ", error.what());
  }
}

// Uses the list of rank 0, because a shared file system may show a different one to another rank.
std::vector<Checkpointer::Candidate> Checkpointer::candidates() const {
  Json::Array listed;
  const auto list = [&] {
    for (const auto step : checkpoint_steps(directory_.path))
      listed.emplace_back(step);
  };
  ranks_.act_first(list, [&] { meet(); });
  std::vector<Candidate> candidates;
  const Json of_first = Json::parse(ranks_.told(Json(listed).dump()), "the checkpoints");
  for (const auto& step : of_first.as_array())
    candidates.push_back(
        {.step = step.as_integer(), .load = [this, number = step.as_integer()](auto accept) {
           return load_whole(number, accept);
         }});
  std::reverse(candidates.begin(), candidates.end());
  return candidates;
}

// Exchanges with all ranks: a rank that hangs keeps the others in a collective and is reported.
void Checkpointer::meet() const {
  if (ranks_.world() != nullptr) ranks_.world()->exchange("");
}

std::optional<Json> Checkpointer::load_first(std::span<const Candidate> candidates,
                                             FunctionRef<void(const Json&)> accept) const {
  std::string reasons;
  std::exception_ptr unreadable;  // error of unreadable_step; another copy may be readable
  std::int64_t unreadable_step = 0;
  for (const auto& candidate : candidates) {
    if (unreadable && candidate.step != unreadable_step) break;
    try {
      auto about = candidate.load(accept);
      if (!reasons.empty())
        log_warning("step ", candidate.step,
                    " is loaded; checkpoints skipped before it: ", reasons);
      return about;
    } catch (const AccessError& error) {
      reasons += str(reasons.empty() ? "" : "; ", error.what());
      if (!unreadable) unreadable = std::current_exception();
      unreadable_step = candidate.step;
    } catch (const ConfigError& error) {
      if (reasons.empty()) throw;
      throw ConfigError(str(error.what(), "; checkpoints skipped before it: ", reasons));
    } catch (const DataError& error) {
      reasons += str(reasons.empty() ? "" : "; ", error.what());
    }
  }
  if (unreadable)
    in_context(
        [&] { std::rethrow_exception(unreadable); }, directory_.path.string(), ": step ",
        unreadable_step,
        " exists but cannot be read; restart the run to retry, or move the step away to resume "
        "from an older one");
  if (candidates.empty()) return std::nullopt;
  throw DataError(str(directory_.path.string(), ": no checkpoint can be used: ", reasons, "; move ",
                      directory_.path.filename().string(), "/ away to start from scratch"));
}

Json Checkpointer::load_whole(std::int64_t step, FunctionRef<void(const Json&)> accept) const {
  const auto path = checkpoint_path(directory_.path, step);
  const Part part{ranks_.rank(), ranks_.size()};
  const auto here = [&] { meet(); };
  std::optional<CheckpointManifest> manifest;
  const std::string unverified = "unverified";
  const auto load = [&] {
    manifest = manifest_of(path);
    verify_part(path, *manifest, part, Depth::sizes);
    accept(manifest->about);
    return load_checkpoint(path, *manifest, state_, Match::exact).unverified ? unverified
                                                                             : std::string();
  };
  const auto said = ranks_.act(load, here);
  // Ranks read only parts of another layout's slices, so each rank verifies some whole slices.
  const bool some = std::find(said.begin(), said.end(), unverified) != said.end();
  const auto verify = [&] { verify_part(path, *manifest, part, Depth::contents); };
  if (!ranks_.told(some ? unverified : "").empty()) ranks_.act_if(true, verify, here);
  return manifest->about;
}

Json Checkpointer::load(std::int64_t step) const {
  return load_checkpoint(checkpoint_path(directory_.path, step), state_, Match::exact).about;
}

}  // namespace lockstep
