#include "checkpoint/epochs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <unistd.h>
#include <utility>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/rename_probe.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/log.h"
#include "core/system/machine.h"
#include "core/wall_clock.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kEpochVersion = 1;
constexpr const char* kEpochFormat = "lockstep epoch";
constexpr const char *kRecordName = "about.json", *kWork = "work", *kFenced = "fenced",
                     *kHash = "xxh3_128", *kUnpublished = ".tmp";
constexpr std::int64_t kMostRecordBytes = std::int64_t{1} << 28;
constexpr std::size_t kDigits = 8;  // of a number in a name

fs::path epochs_of(const fs::path& checkpoints) {
  return checkpoints / "epochs";
}

std::string name_of(std::int64_t number) {
  const auto digits = std::to_string(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

// The number that a name begins with; 0: none.
std::int64_t number_in(const std::string& name) {
  const auto digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits < kDigits || digits > 18 ? 0 : std::stoll(name.substr(0, digits));
}

std::vector<std::int64_t> numbers_in(const fs::path& checkpoints) {  // ascending
  std::vector<std::int64_t> numbers;
  if (!path_exists(epochs_of(checkpoints))) return numbers;
  for (const auto& entry : directory_entries(epochs_of(checkpoints))) {
    const auto name = entry.filename().string();
    if (const auto number = number_in(name); number > 0 && name == name_of(number))
      numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

fs::path place_of_epoch(const fs::path& checkpoints, std::int64_t number) {
  return epochs_of(checkpoints) / name_of(number);
}

EpochRecord record_of(const fs::path& checkpoints, std::int64_t number) {
  const auto path = place_of_epoch(checkpoints, number) / kRecordName;
  return EpochRecord::parse(read_text(path, kMostRecordBytes), path.string());
}

std::string random_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i)
    id += name_of(random() % 100'000'000);
  return id;
}

// Renames `work`, so that its process cannot use it by path.
void fence(const fs::path& epoch) {
  try {
    if (directory_exists(epoch / kWork)) rename_durably(epoch / kWork, epoch / kFenced);
  } catch (const DataError&) {
    if (directory_exists(epoch / kWork)) throw;  // else another start has just done it
  }
}

// Returns the checkpoints that count at the end of epoch `before`. They include checkpoints that it
// deleted and did not purge.
std::map<std::int64_t, std::string> counted(const fs::path& checkpoints,
                                            const std::optional<EpochRecord>& before) {
  std::map<std::int64_t, std::string> all;
  const auto add = [&](const fs::path& directory) {
    for (const auto step : named_steps(directory)) {
      const auto path = checkpoint_path(directory, step);
      if (before && !before->counts(step, path)) continue;
      const auto id = manifest_id(path);
      all.emplace(step, id ? id->hash : "");
    }
  };
  add(checkpoints);
  for (const auto number : numbers_in(checkpoints))
    add(place_of_epoch(checkpoints, number) / kFenced / "deleted");
  return all;
}

// Prepares the directory of the next epoch as `made`, and gives it its name. Only one process can
// give a directory with contents that name. Returns errno of that rename, or 0.
int publish(const fs::path& made, const fs::path& checkpoints, EpochRecord record) {
  make_directory(made);
  check_renames(made / "probe", checkpoints);
  if (const auto before = record.number - 1; before > 0) {
    fence(place_of_epoch(checkpoints, before));
    record.checkpoints = counted(checkpoints, record_of(checkpoints, before));
  } else {
    record.checkpoints = counted(checkpoints, std::nullopt);
  }
  write_text(made / kRecordName, record.dump());
  make_directory(made / kWork);
  make_directory(made / kWork / "saving");
  make_directory(made / kWork / "deleted");
  const auto place = place_of_epoch(checkpoints, record.number);
  return rename(made.c_str(), place.c_str()) == 0 ? 0 : errno;
}

}  // namespace

EpochRecord EpochRecord::parse(const std::string& text, const std::string& what) {
  EpochRecord record;
  std::int64_t version = 0;
  const auto read = [&] {
    const Json json = Json::parse(text, "not JSON");
    if (text_at(json, "format") != kEpochFormat)
      throw DataError(str("expected the format \"", kEpochFormat, "\""));
    version = integer_at(json, "version", 1, INT64_MAX);
    if (version > kEpochVersion) return;
    Json::Object body = json.as_object();
    std::erase_if(body, [](const auto& member) { return member.first == kHash; });
    if (hash_at(json, kHash) != hash_hex(Json(std::move(body)).dump(2)))
      throw DataError("the hash differs from the contents");
    record.number = integer_at(json, "number", 1, INT64_MAX);
    record.id = text_at(json, "id");
    record.host = text_at(json, "host");
    record.pid = integer_at(json, "pid", 0, INT64_MAX);
    record.time_seconds = integer_at(json, "time_seconds", 0, INT64_MAX);
    for (const auto& entry : json.at("checkpoints").as_array()) {
      const auto& pair = entry.as_array();
      if (pair.size() != 2) throw DataError("checkpoints: expected pairs of a step and a hash");
      record.checkpoints[pair[0].as_integer()] = pair[1].as_string();
    }
  };
  const auto epochs = fs::path(what).parent_path().parent_path().string();
  try {
    read();
  } catch (const DataError& error) {
    throw DataError(str(what, ": damaged: ", error.what(),
                        "; restore the file, or remove the directory ", epochs,
                        ". Then all checkpoints beside it count"));
  }
  if (version > kEpochVersion)
    throw DataError(str(what, ": version ", version, ", expected at most ", kEpochVersion,
                        "; use the program that wrote it, which is newer"));
  return record;
}

std::string EpochRecord::dump() const {
  Json listed = Json::Array{};
  for (const auto& [step, hash] : checkpoints)
    listed.push(Json::Array{step, hash});
  Json json;
  json.set("format", kEpochFormat);
  json.set("version", kEpochVersion);
  json.set("number", number);
  json.set("id", id);
  json.set("host", host);
  json.set("pid", pid);
  json.set("time_seconds", time_seconds);
  json.set("checkpoints", std::move(listed));
  json.set(kHash, hash_hex(json.dump(2)));
  return json.dump(2) + "\n";
}

std::optional<EpochRecord> EpochRecord::newest(const fs::path& checkpoints) {
  const auto numbers = numbers_in(checkpoints);
  if (numbers.empty()) return std::nullopt;
  return record_of(checkpoints, numbers.back());
}

bool EpochRecord::counts(std::int64_t step, const fs::path& checkpoint) const {
  const auto found = manifest_id(checkpoint);
  if (!found || found->epoch == number) return true;
  const auto listed = checkpoints.find(step);
  return listed != checkpoints.end() && (listed->second.empty() || listed->second == found->hash);
}

Epoch::Epoch(fs::path checkpoints, std::int64_t number, std::string id)
    : checkpoints_(std::move(checkpoints)), number_(number), id_(std::move(id)) {}

fs::path Epoch::place() const {
  return place_of_epoch(checkpoints_, number_);
}

Epoch Epoch::claim(const fs::path& checkpoints) {
  make_directories(epochs_of(checkpoints));
  const auto before = EpochRecord::newest(checkpoints);
  const EpochRecord mine{.number = before ? before->number + 1 : 1,
                         .id = random_id(),
                         .host = host_name(),
                         .pid = getpid(),
                         .time_seconds = static_cast<std::int64_t>(seconds_since_1970()),
                         .checkpoints = {}};
  const auto place = place_of_epoch(checkpoints, mine.number);
  const fs::path made = str(place.string(), ".", mine.id, kUnpublished);
  int error = 0;
  std::error_code ignored;
  try {
    error = publish(made, checkpoints, mine);
  } catch (const Error&) {
    fs::remove_all(made, ignored);
    if (!path_exists(place)) throw;
  }
  if (!path_exists(place)) fail_io(made, str("cannot rename to ", place.string()), error);
  // A server may report that the name exists to the very process that it has given it to, if it
  // answers a repeated request. So the record decides who won.
  const auto winner = record_of(checkpoints, mine.number);
  if (winner.id != mine.id) {
    fs::remove_all(made, ignored);
    throw TransientError(str(checkpoints.string(), ": another process (pid ", winner.pid,
                             " on host ", winner.host,
                             ") has started this run at the same time; wait for it"));
  }
  sync_directory(epochs_of(checkpoints));
  Epoch epoch(checkpoints, mine.number, mine.id);
  epoch.check();  // a later number may exist if this process was stopped for a while
  epoch.tidy(winner);
  return epoch;
}

void Epoch::check() const {
  const auto newest = EpochRecord::newest(checkpoints_);
  if (newest && (newest->number > number_ || (!id_.empty() && newest->id != id_)))
    throw TransientError(str(checkpoints_.string(),
                             ": another start has taken over this run: epoch ", newest->number,
                             " on host ", newest->host, " (pid ", newest->pid,
                             "); this process ends, and its steps since then do not count"));
  if (directory_exists(place() / kFenced))
    throw TransientError(str(checkpoints_.string(),
                             ": another start is taking over this run; this process ends, and its "
                             "steps since then do not count"));
}

void Epoch::count(std::int64_t step, const std::string& manifest_hash) const {
  auto record = record_of(checkpoints_, number_);
  // Steps that are gone need no entry.
  std::erase_if(record.checkpoints, [&](const auto& entry) {
    return !path_exists(checkpoint_path(checkpoints_, entry.first)) &&
           !path_exists(checkpoint_path(deleted(), entry.first));
  });
  record.checkpoints[step] = manifest_hash;
  write_text(place() / kRecordName, record.dump());
}

void Epoch::purge() const {
  try {
    check();
    for (const auto step : named_steps(deleted()))
      remove_checkpoint(checkpoint_path(deleted(), step));
    for (const auto& interrupted : directory_entries(deleted()))
      remove_tree(interrupted);
  } catch (const DataError& error) {
    log_warning("cannot free the space of deleted checkpoints: ", error.what());
  }
}

// Restores the checkpoints that an earlier epoch deleted and did not purge. Then removes the rest
// of that epoch.
void Epoch::take_back(std::int64_t number, const EpochRecord& record) const {
  const auto earlier = place_of_epoch(checkpoints_, number);
  std::error_code not_empty;  // a rename that was under way has just arrived: see the next start
  for (const auto* state : {kWork, kFenced}) {
    const auto deleted = earlier / state / "deleted";
    remove_tree(earlier / state / "saving");
    for (const auto step : named_steps(deleted)) {
      const auto from = checkpoint_path(deleted, step), to = checkpoint_path(checkpoints_, step);
      if (!path_exists(to) && record.counts(step, from))
        rename_durably(from, to);
      else
        remove_checkpoint(from);
    }
    if (path_exists(deleted))
      for (const auto& interrupted : directory_entries(deleted))
        if (interrupted.extension() == ".tmp") remove_tree(interrupted);
    fs::remove(deleted, not_empty);
    fs::remove(earlier / state, not_empty);
  }
  // The record of the epoch before stays for readers that have just listed it.
  if (number == number_ - 1) return;
  fs::remove(earlier / kRecordName, not_empty);
  fs::remove(earlier, not_empty);
}

void Epoch::tidy(const EpochRecord& record) const {
  const auto attempt = [](const auto& act) {
    try {
      act();
    } catch (const DataError& error) {
      log_warning("cannot tidy the directory of checkpoints: ", error.what());
    }
  };
  for (const auto step : named_steps(checkpoints_))
    if (const auto path = checkpoint_path(checkpoints_, step); !record.counts(step, path))
      attempt([&] { set_aside(path, Aside::fenced, this); });
  for (const auto number : numbers_in(checkpoints_))
    if (number < number_) attempt([&] { take_back(number, record); });
  // Unfinished checkpoints and deletions of older programs, and claims that did not succeed.
  for (const auto& path : directory_entries(checkpoints_))
    if (const auto name = path.filename().string();
        name.starts_with("step-") && name.ends_with(".tmp"))
      attempt([&] { remove_tree(path); });
  for (const auto& path : directory_entries(epochs_of(checkpoints_)))
    if (const auto claimed = number_in(path.filename().string());
        path.extension() == kUnpublished && 0 < claimed && claimed <= number_)
      attempt([&] { remove_tree(path); });
}

}  // namespace lockstep
