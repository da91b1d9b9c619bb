#include "train/run/run_checkpoints.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/file.h"
#include "core/log.h"
#include "core/philox.h"
#include "core/units.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The subdirectory of this run in a directory that several runs share.
fs::path below(const std::string& shared, const fs::path& checkpoints) {
  if (shared.empty()) return {};
  const auto run = fs::absolute(checkpoints).lexically_normal().parent_path();
  return fs::path(shared) / str(run.filename().string(), "-", hex_of(purpose_of(run.string())));
}

HostRanks machine_of(const Config::Checkpoint& config, const World& world,
                     const Topology* topology) {
  HostRanks machine{.ranks = {},
                    .one_file = config.files == Config::Checkpoint::Files::node,
                    .own_directory = !config.local_directory.empty(),
                    .partners = config.partner_copies};
  if (topology != nullptr) {
    machine.ranks = host_ranks(*topology, world.rank());
  } else {
    machine.ranks.resize(static_cast<std::size_t>(world.size()));
    std::iota(machine.ranks.begin(), machine.ranks.end(), 0);
  }
  return machine;
}

// Free bytes of a file system, for this user.
std::int64_t free_bytes(const fs::path& directory) {
  std::error_code unknown;
  const auto space = fs::space(directory, unknown);
  if (unknown) fail_io(directory, "cannot read the free space", unknown.value());
  return static_cast<std::int64_t>(std::min<std::uintmax_t>(space.available, INT64_MAX / 2));
}

// Bytes of the checkpoints in a directory, which make room for newer ones.
std::int64_t bytes_below(const fs::path& directory) {
  std::int64_t bytes = 0;
  for (const auto step : named_steps(directory))
    for (const auto& file : directory_entries(checkpoint_path(directory, step)))
      bytes += static_cast<std::int64_t>(fs::file_size(file));
  return bytes;
}

HostRanks sharing(HostRanks machine) {
  machine.own_directory = false;
  return machine;
}

}  // namespace

RunCheckpoints::RunCheckpoints(const Config::Checkpoint& config,
                               const CheckpointDirectory& directory,
                               const std::vector<StateSlice>& state, World& world,
                               const Topology* topology)
    : world_(world),
      state_(state),
      directory_(directory.path),
      local_(below(config.local_directory, directory_)),
      archive_(below(config.archive_directory, directory_)),
      epoch_(directory.epoch),
      copy_every_(config.every_steps),
      machine_(machine_of(config, world, topology)),
      retention_{.last = static_cast<int>(config.keep_last),
                 .every = config.keep_every_steps,
                 .copied_to = archive_,
                 .best = static_cast<int>(config.keep_best)},
      of_run_(directory, state, retention_, &world, sharing(machine_)),
      save_(
          local_.empty()
              ? of_run_
              : of_machine_.emplace(
                    local_, state,
                    Retention{.last = 2, .every = config.keep_every_steps, .copied_to = directory_},
                    &world, machine_),
          world) {
  if (config.partner_copies && static_cast<int>(machine_.ranks.size()) == world.size())
    log_warning("checkpoint.partner_copies has no effect: all ranks are on one host");
  check_directories();
  if (!local_.empty()) check_room(config.partner_copies);
  std::vector<BackgroundCopies::Hop> hops;
  if (!local_.empty())
    hops.push_back({.copies = CheckpointCopier(world, local_, directory, machine_.ranks),
                    .retention = retention_,
                    .milestones = config.keep_every_steps});
  if (!local_.empty()) of_hosts_.emplace(world, local_, directory_, machine_);
  if (!archive_.empty())
    hops.push_back({.copies = CheckpointCopier(world, directory_, archive_, {}),
                    .retention = {},
                    .milestones = config.keep_every_steps,
                    .milestones_alone = true});
  if (!hops.empty()) copies_.emplace(world, std::move(hops));
}

// Checkpoints in the hosts' own directories. They are loaded from there.
void RunCheckpoints::add_of_hosts(std::vector<Checkpointer::Candidate>& candidates) {
  std::vector<std::int64_t> here;
  for (const auto& candidate : candidates)
    here.push_back(candidate.step);
  const auto newest_here = here.empty() ? -1 : here.front();
  std::vector<Checkpointer::Candidate> same, others;
  for (const auto& found : of_hosts_->find(here)) {
    // A newer checkpoint that was copied here and is missing was deleted by a person.
    if (found.was_copied && found.step > newest_here) continue;
    (found.is_shared ? same : others)
        .push_back({.step = found.step, .load = [this, found](auto accept) {
                      return of_hosts_->load(found, state_, accept);
                    }});
  }
  // Memory comes before disk, unless the run directory has another save of the same step.
  candidates.insert(candidates.begin(), same.begin(), same.end());
  candidates.insert(candidates.end(), others.begin(), others.end());
}

// Checkpoints in the archive. They are copied to the run directory and loaded from there.
void RunCheckpoints::add_of_archive(std::vector<Checkpointer::Candidate>& candidates,
                                    std::int64_t newest_here) const {
  Json::Array listed;
  const AllRanks ranks(&world_, "archive");
  try {
    ranks.act_first([&] {
      for (const auto step : checkpoint_steps(archive_))
        if (newest_here < 0 || step <= newest_here) listed.emplace_back(step);
    });
  } catch (const AccessError& error) {  // on all ranks
    if (candidates.empty()) throw;
    log_warning("checkpoint.archive_directory is ignored: ", error.what());
    return;
  }
  const Json agreed = Json::parse(ranks.told(Json(std::move(listed)).dump()), "rank 0");
  for (const auto& json : agreed.as_array())
    candidates.push_back(
        {.step = json.as_integer(), .load = [this, step = json.as_integer()](auto accept) {
           CheckpointCopier(world_, archive_, {directory_, epoch_}, {}).copy(step, {}, {});
           log_info("copied step ", step, " back to ", directory_.string(), " from ",
                    archive_.string());
           return of_run_.load_whole(step, accept);
         }});
}

std::vector<Checkpointer::Candidate> RunCheckpoints::all_candidates() {
  auto candidates = of_run_.candidates();
  const auto newest_here = candidates.empty() ? -1 : candidates.front().step;
  if (of_hosts_) add_of_hosts(candidates);
  if (!archive_.empty()) add_of_archive(candidates, newest_here);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.step > b.step; });
  return candidates;
}

std::optional<Json> RunCheckpoints::load_newest(FunctionRef<void(const Json&)> accept) {
  auto about = of_run_.load_first(all_candidates(), accept);
  if (about) set_aside_after(about->at("step").as_integer());
  return about;
}

Json RunCheckpoints::load(std::int64_t step) {
  auto candidates = all_candidates();
  std::erase_if(candidates, [&](const auto& candidate) { return candidate.step != step; });
  LOCKSTEP_CHECK(!candidates.empty(), "the checkpoint of step ", step, " is gone");
  return *of_run_.load_first(candidates, [](const Json&) {});
}

Json RunCheckpoints::load_from(std::int64_t step, FunctionRef<void(const Json&)> accept) {
  auto candidates = all_candidates();
  std::string steps;
  for (const auto& candidate : candidates)
    steps = str(candidate.step, steps.empty() ? "" : ", ", steps);
  std::erase_if(candidates, [&](const auto& candidate) { return candidate.step != step; });
  if (candidates.empty())
    throw ConfigError(str("--from-step: no checkpoint of step ", step, " in ", directory_.string(),
                          steps.empty() ? "" : str("; choose one of steps ", steps)));
  try {
    return *of_run_.load_first(candidates, accept);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    throw DataError(str("--from-step: the checkpoint of step ", step,
                        " cannot be used; choose one of steps ", steps, ": ", error.what()));
  }
}

Json RunCheckpoints::newest_about() const {
  Json mine;
  if (world_.rank() == 0)
    mine = lockstep::newest_about(local_.empty() ? std::vector{directory_}
                                                 : std::vector{directory_, local_});
  if (world_.rank() == 0 && mine.is_null() && !archive_.empty())
    mine = lockstep::newest_about({archive_});
  return Json::parse(world_.exchange(mine.dump()).front(), "rank 0");
}

bool RunCheckpoints::has_after(std::int64_t step) {
  const auto all = all_candidates();
  return !all.empty() && all.front().step > step;
}

void RunCheckpoints::abandon_after(std::int64_t step) {
  const AllRanks ranks(&world_, "rollback");
  const auto each_after = [step](const fs::path& directory, auto act) {
    for (const auto later : checkpoint_steps(directory))
      if (later > step) act(checkpoint_path(directory, later));
  };
  const auto set = [](const fs::path& checkpoint) { set_aside(checkpoint, Aside::replaced); };
  const auto set_of_run = [this](const fs::path& checkpoint) {
    set_aside(checkpoint, Aside::replaced, epoch_);
  };
  ranks.act_if(!local_.empty() && machine_.ranks.front() == world_.rank(), [&] {
    each_after(local_, [&](const fs::path& checkpoint) {
      path_exists(checkpoint / kCopiedMark) ? remove_checkpoint(checkpoint) : set(checkpoint);
    });
  });
  ranks.act_first([&] {
    each_after(directory_, set_of_run);
    if (!archive_.empty()) each_after(archive_, set);
  });
}

// Renames the checkpoints after step `loaded`, which were unusable: retention then neither counts
// nor deletes them.
void RunCheckpoints::set_aside_after(std::int64_t loaded) const {
  if (world_.rank() > 0) return;
  try {
    for (const auto step : checkpoint_steps(directory_))
      if (step > loaded) set_aside(checkpoint_path(directory_, step), Aside::damaged, epoch_);
  } catch (const DataError& error) {
    log_warning("cannot rename an unusable checkpoint: ", error.what());
  }
}

// Finds a typing mistake now, and not at the first save.
void RunCheckpoints::check_directories() const {
  const AllRanks ranks(&world_, "directories");
  ranks.act_if(!local_.empty(), [&] { make_directories(local_); });
  if (archive_.empty() || world_.rank() > 0) return;
  try {
    make_directories(archive_);
  } catch (const DataError& error) {  // it may be available later
    log_warning("checkpoint.archive_directory cannot be used now: ", error.what());
  }
}

// Throws ConfigError if a local directory lacks room for two checkpoints: one stays until the next
// one is saved.
void RunCheckpoints::check_room(bool has_partner) const {
  std::int64_t mine = 0;
  for (const auto& slice : state_)
    mine += slice.owned ? slice.local.bytes() : 0;
  const AllRanks ranks(&world_, "room");
  std::map<int, std::int64_t> of_hosts;  // by first rank
  for (const auto& said : ranks.exchanged(Json(Json::Array{machine_.ranks.front(), mine}).dump())) {
    const Json json = Json::parse(said, "the bytes of a rank");
    of_hosts[static_cast<int>(json.as_array().at(0).as_integer())] +=
        json.as_array().at(1).as_integer();
  }
  const auto place = of_hosts.find(machine_.ranks.front());
  const auto here = static_cast<std::size_t>(std::distance(of_hosts.begin(), place));
  std::int64_t bytes = place->second;
  if (has_partner && of_hosts.size() > 1) {
    std::size_t host = 0;
    for (const auto& [leader, of_host] : of_hosts)
      if (partner_of(host++, of_hosts.size()) == here) bytes += of_host;
  }
  ranks.act_if(machine_.ranks.front() == world_.rank(), [&] {
    const auto room = free_bytes(local_) + bytes_below(local_);
    if (room < 2 * bytes)
      throw ConfigError(str(
          "checkpoint.local_directory: ", local_.string(), " has room for ",
          human_bytes(static_cast<double>(room)), ", expected ",
          human_bytes(static_cast<double>(2 * bytes)), ": two checkpoints of ",
          human_bytes(static_cast<double>(bytes)), has_partner ? ", with those of a partner" : "",
          ". Enlarge that file system (for memory: mount -o remount,size=SIZE /dev/shm), choose "
          "another directory, or use more hosts"));
  });
}

// Creates the local directories and the archive again, because they may be cleaned up or
// unavailable for a while. A save or a copy reports a failure. The run directory is never created
// again.
void RunCheckpoints::make_directories_beside_run() const {
  const auto make = [](bool mine, const fs::path& directory) {
    if (!mine || directory.empty()) return;
    std::error_code reported_later;
    fs::create_directories(directory, reported_later);
  };
  make(machine_.ranks.front() == world_.rank(), local_);
  make(world_.rank() == 0, archive_);
}

void RunCheckpoints::copy_resumed(std::int64_t step, const std::vector<std::int64_t>& keep,
                                  bool is_last) {
  const bool is_due = is_last || (copy_every_ > 0 && step % copy_every_ == 0);
  if (local_.empty() || !is_due) return;
  const AllRanks ranks(&world_, "resumed");
  bool is_there = false;
  ranks.act_first([&] { is_there = path_exists(checkpoint_path(directory_, step)); });
  if (!ranks.told(is_there ? "there" : "").empty()) return;
  newest_saved_ = step;
  copies_->want(step, keep);
}

void RunCheckpoints::begin(BackgroundSave::Save save, bool copies) {
  make_directories_beside_run();
  keep_ = save.keep;
  copies_saved_ = copies;
  if (copies_)
    for (const auto step : copies_->pending())
      save.keep.push_back(step);
  save_.begin(std::move(save));
}

std::optional<BackgroundSave::Outcome> RunCheckpoints::passed_on(
    std::optional<BackgroundSave::Outcome> saved) {
  if (saved && !saved->error && copies_ && copies_saved_) {
    newest_saved_ = saved->step;
    copies_->want(saved->step, keep_);
  }
  return saved;
}

void RunCheckpoints::log_copies(const char* what_then, OnCopy on_copy) {
  if (!copies_) return;
  for (const auto& copied : copies_->poll())
    try {
      on_copy(copied);
      if (copied.step == newest_saved_ && *copied.to == directory_)
        newest_not_copied_ = copied.error;
      if (copied.error) std::rethrow_exception(copied.error);
      log_info("copied step ", copied.step, " to ", copied.to->string(), " in ",
               human_seconds(copied.seconds));
    } catch (const DataError& error) {
      log_warning("step ", copied.step, " is not copied to ", copied.to->string(), ": ",
                  error.what(), what_then);
    }
}

void RunCheckpoints::finish(OnCopy on_copy) {
  if (copies_) {
    copies_->finish();
    log_copies("", on_copy);
  }
  if (epoch_ != nullptr && world_.rank() == 0) epoch_->purge();
  if (newest_not_copied_) std::rethrow_exception(newest_not_copied_);
}

fs::path RunCheckpoints::find(std::int64_t step) const {
  std::error_code unknown;
  for (const auto& directory : {directory_, local_})
    if (auto path = checkpoint_path(directory, step);
        !directory.empty() && fs::exists(path, unknown))
      return path;
  return {};
}

}  // namespace lockstep
