#include "checkpoint/checkpointer.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "dist/agreement.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kUnfinished = ".tmp";
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // hashed, then written from the cache

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.bytes())};
}

void check_slice(const StateSlice& s) {
  LOCKSTEP_CHECK(s.whole.rank > 0 && 0 <= s.split.dim && s.split.dim < s.whole.rank &&
                     0 <= s.piece.part && s.piece.part < s.split.parts,
                 s.name, ": part ", s.piece.part, " of ", s.split.parts, " of ", s.whole);
  LOCKSTEP_CHECK(0 <= s.piece.begin && s.piece.begin <= s.piece.end &&
                     s.piece.end <= part_elements(s.whole, s.split, s.piece.part) &&
                     s.piece.end - s.piece.begin == s.local.elements(),
                 s.name, ": elements [", s.piece.begin, ", ", s.piece.end, ") of a part of ",
                 part_elements(s.whole, s.split, s.piece.part), " in a tensor of ",
                 s.local.elements());
  LOCKSTEP_CHECK(s.local.device.kind == Device::Kind::cpu, s.name, ": is not on the host");
}

// The name and shape under which any reader of safetensors finds a slice: its own where it is the
// whole tensor, otherwise flat.
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

// For other ranks of the same program.
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

std::vector<fs::path> entries_of(const fs::path& directory) {
  return path_exists(directory) ? directory_entries(directory) : std::vector<fs::path>();
}

// The directory that a checkpoint is written into, removed unless it is kept.
class Scaffold {
 public:
  explicit Scaffold(fs::path path) : path_(std::move(path)) {
    remove_leftovers(path_.parent_path());
    make_directories(path_);
  }
  Scaffold(const Scaffold&) = delete;
  Scaffold& operator=(const Scaffold&) = delete;
  ~Scaffold() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  // What interrupted saves and deletions left: one process at a time writes here.
  static void remove_leftovers(const fs::path& directory) {
    std::error_code ignored;
    for (const auto& path : entries_of(directory))
      if (const auto name = path.filename().string();
          name.starts_with(kPrefix) && name.ends_with(kUnfinished))
        fs::remove_all(path, ignored);
  }

  fs::path path_;
};

// "" where the checkpoint is whole, else what is wrong with it. Throws where it cannot be opened.
std::string damage_of(const fs::path& checkpoint, Depth depth) {
  try {
    verify_checkpoint(checkpoint, depth);
    return "";
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    return error.what();
  }
}

void set_aside(const fs::path& checkpoint) {
  const bool whole = damage_of(checkpoint, Depth::contents).empty();
  fs::path aside;
  std::error_code unknown;
  for (int k = 1; aside.empty() || fs::exists(aside, unknown); ++k)
    aside = str(checkpoint.string(), whole ? ".replaced-" : ".damaged-", k);
  rename_durably(checkpoint, aside);
  log_warning(checkpoint.string(), " is now ", aside.filename().string());
}

}  // namespace

StateSlice whole_slice(std::string name, Tensor tensor) {
  return {std::move(name), tensor.shape, unsplit(tensor.shape), {0, 0, tensor.elements()}, tensor};
}

Checkpointer::Checkpointer(fs::path directory, std::vector<StateSlice> state, Retention retention,
                           World* world, const std::vector<int>& together)
    : directory_(std::move(directory)),
      state_(std::move(state)),
      retention_(retention),
      world_(world) {
  for (const auto& slice : state_)
    check_slice(slice);
  // Wide elements first, so that each is aligned in the file.
  std::stable_sort(state_.begin(), state_.end(), [](const StateSlice& a, const StateSlice& b) {
    return bytes_per_element(a.local.dtype) > bytes_per_element(b.local.dtype);
  });
  std::copy_if(state_.begin(), state_.end(), std::back_inserter(owned_),
               [](const StateSlice& slice) { return slice.owned; });
  plan_file(together);
}

std::vector<std::string> Checkpointer::on_all_ranks(FunctionRef<std::string()> act,
                                                    FunctionRef<void()> acted) const {
  if (world_ == nullptr || world_->size() == 1) return {act()};
  Json mine;
  try {
    mine.set("said", act());
  } catch (const AccessError& error) {
    mine.set("no_access", std::string(error.what()));
  } catch (const DataError& error) {
    mine.set("error", std::string(error.what()));
  } catch (const ConfigError& error) {
    mine.set("refused", std::string(error.what()));
  } catch (const std::exception& error) {
    mine.set("failure", std::string(error.what()));
  }
  acted();
  const auto all = world_->gather("checkpoint", mine.dump());
  std::vector<std::string> said;
  Json first_error(Json::Object{});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    try {
      const Json json = Json::parse(all[rank], str("rank ", rank));
      if (const Json* words = json.find("said")) {
        said.push_back(words->as_string());
      } else if (first_error.as_object().empty()) {
        const auto& [kind, error] = *json.as_object().begin();
        first_error.set(kind, str("rank ", rank, ": ", error.as_string()));
      }
    } catch (const std::exception& error) {  // all hear of it: they wait
      first_error.set("failure", std::string(error.what()));
    }
  const Json agreed = Json::parse(world_->broadcast("checkpoint", first_error.dump()), "rank 0");
  if (const Json* error = agreed.find("no_access")) throw AccessError(error->as_string());
  if (const Json* error = agreed.find("failure")) throw Error(error->as_string());
  if (const Json* error = agreed.find("refused")) throw ConfigError(error->as_string());
  if (const Json* error = agreed.find("error")) throw DataError(error->as_string());
  return said;
}

std::string Checkpointer::tell_all(const std::string& text) const {
  return world_ == nullptr ? text : world_->broadcast("checkpoint", text);
}

// What the ranks that write one file know of it before they do: nothing of that changes from save
// to save.
void Checkpointer::plan_file(const std::vector<int>& together) {
  struct Stored {
    int rank;
    StoredTensor tensor;
  };
  std::vector<Stored> all;
  const int me = world_ == nullptr ? 0 : world_->rank();
  const bool is_shared = !together.empty() && world_ != nullptr;
  if (!is_shared) {
    for (const auto& slice : owned_)
      all.push_back({me, stored_slice(slice)});
  } else {
    Json::Array mine;
    for (const auto& slice : owned_)
      mine.push_back(to_json(stored_slice(slice)));
    const auto said = world_->exchange(Json(std::move(mine)).dump());
    for (const int rank : together) {
      const Json slices = Json::parse(said.at(static_cast<std::size_t>(rank)), "slices of a rank");
      for (const auto& json : slices.as_array())
        all.push_back({rank, stored_tensor(json)});
    }
  }
  if (all.empty()) return;
  // Wide elements first, so that each is aligned in the file.
  std::stable_sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    return bytes_per_element(a.tensor.type) > bytes_per_element(b.tensor.type);
  });
  std::vector<StoredTensor> tensors;
  for (const auto& stored : all)
    tensors.push_back(stored.tensor);
  auto header = lay_out_safetensors(tensors, {{"format", "pt"}});
  const auto header_bytes = static_cast<std::int64_t>(header.size());
  file_ = {is_shared ? "node-" + rank_file(together.front(), ".safetensors")
                     : rank_file(me, ".safetensors"),
           tensors.back().offset + tensors.back().bytes, header_bytes, hash_hex(header)};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].rank == me) offsets_.push_back(tensors[i].offset);
  if (!is_shared || together.front() == me) header_ = std::move(header);
}

// Of what this rank owns, as if it were all.
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
    writer.seek(offsets_[i]);
    Hasher hasher;
    for (auto rest = bytes_of(slice.local); !rest.empty();) {
      const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
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

void Checkpointer::save(std::int64_t step, const Json& about, std::optional<std::int64_t> keep,
                        FunctionRef<void()> acted) {
  const fs::path final_path = checkpoint_path(directory_, step);
  const fs::path unfinished = str(final_path.string(), kUnfinished);
  std::optional<Scaffold> scaffold;
  const auto make_place = [&] {
    if (is_first()) scaffold.emplace(unfinished);
    return std::string();
  };
  on_all_ranks(make_place, acted);
  const auto parts = on_all_ranks([&] { return write_state(unfinished).dump_part(); }, acted);
  const auto commit = [&] {
    if (!is_first()) return std::string();
    CheckpointManifest manifest;
    manifest.step = step;
    manifest.about = about;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      manifest.add_part(parts[rank], str("what rank ", rank, " wrote"));
    const std::string text = manifest.dump();
    CheckpointManifest::parse(
        text, "the manifest of this state");  // what a reader would refuse is not written
    write_text(unfinished / kCheckpointManifestName, text);
    if (std::error_code unknown; fs::exists(final_path, unknown)) set_aside(final_path);
    rename_durably(unfinished, final_path);
    scaffold->keep();
    for (const auto later : checkpoint_steps(directory_))
      if (later > step) set_aside(checkpoint_path(directory_, later));
    if (retention_.last > 0) prune_checkpoints(directory_, retention_, keep);
    return std::string();
  };
  on_all_ranks(commit, acted);
}

std::optional<Json> Checkpointer::load_newest(FunctionRef<void(const Json&)> accept) const {
  // Who hangs keeps the others in a collective, and is named.
  const auto meet = [&] {
    if (world_ != nullptr) world_->exchange("");
  };
  // Those that rank 0 sees: a shared file system may show another rank others.
  Json::Array listed;
  const auto list = [&] {
    if (is_first())
      for (const auto step : checkpoint_steps(directory_))
        listed.emplace_back(step);
    return std::string();
  };
  on_all_ranks(list, meet);
  std::vector<std::int64_t> steps;
  const Json of_first = Json::parse(tell_all(Json(listed).dump()), "the checkpoints");
  for (const auto& step : of_first.as_array())
    steps.push_back(step.as_integer());
  if (steps.empty()) return std::nullopt;
  std::string reasons;
  for (; !steps.empty(); steps.pop_back()) {
    const auto path = checkpoint_path(directory_, steps.back());
    try {
      Loaded loaded;
      const std::string unverified = "unverified";
      const auto load = [&] {
        verify_checkpoint(path, Depth::sizes);
        accept(read_manifest(path).about);
        loaded = load_checkpoint(path, state_, Match::exact);
        return loaded.unverified ? unverified : std::string();
      };
      const auto said = on_all_ranks(load, meet);
      // Of another layout's slices ranks read parts: each checks some as a whole.
      const bool some = std::find(said.begin(), said.end(), unverified) != said.end();
      const auto verify = [&] {
        verify_part(path, world_ == nullptr ? 0 : world_->rank(),
                    world_ == nullptr ? 1 : world_->size());
        return std::string();
      };
      if (tell_all(some ? unverified : "") == unverified) on_all_ranks(verify, meet);
      return loaded.about;
    } catch (const AccessError&) {
      throw;
    } catch (const DataError& error) {
      log_warning("not used: ", error.what());
      reasons += str(error.what(), "; ");
    }
  }
  throw DataError(str(directory_.string(), ": no checkpoint can be used: ", reasons, "move ",
                      directory_.filename().string(), "/ away to start afresh"));
}

Json Checkpointer::load(std::int64_t step) const {
  return load_checkpoint(checkpoint_path(directory_, step), state_, Match::exact).about;
}

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return directory /
         str(kPrefix, std::string(kDigits - std::min(kDigits, digits.size()), '0'), digits);
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& directory) {
  std::vector<std::int64_t> steps;
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::string digits = name.substr(kPrefix.size());
    if (digits.find_first_not_of("0123456789") != digits.npos || digits.size() > 18) continue;
    const std::int64_t step = std::strtoll(digits.c_str(), nullptr, 10);
    if (checkpoint_path(directory, step) == path) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> latest_checkpoint(const fs::path& directory) {
  auto steps = checkpoint_steps(directory);
  for (; !steps.empty(); steps.pop_back()) {
    const std::string damage = damage_of(checkpoint_path(directory, steps.back()), Depth::contents);
    if (damage.empty()) return steps.back();
    log_warning("not used, for it is damaged: ", damage);
  }
  return std::nullopt;
}

namespace {

// Of those that were saved behind an evaluation, the steps of the best: the lowest losses.
std::set<std::int64_t> best_steps(const std::vector<std::int64_t>& steps, const fs::path& directory,
                                  int count) {
  std::vector<std::pair<double, std::int64_t>> losses;
  if (count == 0) return {};
  for (const auto step : steps) {
    const auto about = read_manifest(checkpoint_path(directory, step)).about;
    const Json* loss = about.is_object() ? about.find("validation_loss") : nullptr;
    if (loss != nullptr && loss->is_number()) losses.emplace_back(loss->as_double(), -step);
  }
  std::sort(losses.begin(), losses.end());  // of equal ones the newer
  std::set<std::int64_t> best;
  for (std::size_t i = 0; i < std::min(losses.size(), static_cast<std::size_t>(count)); ++i)
    best.insert(-losses[i].second);
  return best;
}

}  // namespace

void prune_checkpoints(const fs::path& directory, const Retention& retention,
                       std::optional<std::int64_t> keep) {
  LOCKSTEP_CHECK(retention.last > 0, "keep at least one checkpoint, not ", retention.last);
  std::vector<std::int64_t> whole;
  for (const auto step : checkpoint_steps(directory))
    if (damage_of(checkpoint_path(directory, step), Depth::sizes).empty()) whole.push_back(step);
  if (std::ssize(whole) <= retention.last) return;
  const auto best = best_steps(whole, directory, retention.best);
  const auto stays = [&](std::int64_t step) {
    return step == keep || best.contains(step) ||
           (retention.every > 0 && step % retention.every == 0);
  };
  const auto newest = whole.back();
  whole.resize(whole.size() - static_cast<std::size_t>(retention.last));
  std::erase_if(whole, stays);
  if (whole.empty()) return;
  verify_checkpoint(checkpoint_path(directory, newest), Depth::contents, /*from_disk=*/true);
  for (const auto step : whole) {
    const auto path = checkpoint_path(directory, step);
    // Under its name it must be whole or not there, also when this is interrupted.
    const fs::path going = str(path.string(), kUnfinished);
    try {
      rename_durably(path, going);
      fs::remove_all(going);
    } catch (const std::exception& error) {
      log_warning("cannot delete ", path.string(), ": ", error.what());
    }
  }
}

}  // namespace lockstep
