#include "data/pack/pack_directory.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <span>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/pack/output_directory.h"
#include "data/pack/text_source.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kCommand = "command.json";
constexpr const char* kProgress = "progress.json";
constexpr const char* kList = "shards.jsonl";
constexpr const char* kDataset = "dataset";
constexpr std::int64_t kMostRecordBytes = std::int64_t{1} << 30;

const Json::Array& inputs_of(const Json& command) {
  return command.at("inputs").as_array();
}

// Describes the place up to which all input is written.
std::string place_of(const InputPosition& position, const Json& command) {
  const auto& inputs = inputs_of(command);
  const auto file = static_cast<std::size_t>(position.file);
  if (file >= inputs.size()) return "the end of the last input";
  return str(position.byte > 0 ? str("byte ", position.byte) : "the start", " of ",
             text_at(inputs[file], "file"));
}

bool holds_what_was_read(const fs::path& file, const InputPosition& position) {
  TextSource source(file);
  std::vector<char> piece;
  for (const auto& stretch : position.read) {
    Hasher hash;
    for (auto rest = stretch.bytes; rest > 0; rest -= std::ssize(piece)) {
      constexpr std::int64_t kPiece = std::int64_t{1} << 20;
      piece.resize(static_cast<std::size_t>(std::min(rest, kPiece)));
      if (source.read(piece) < piece.size()) return false;
      hash.add(std::as_bytes(std::span(piece)));
    }
    if (hash.hex() != stretch.hash) return false;
  }
  return true;
}

// Describes the change of a file: its size, or else its modification time.
std::string change_of_file(const Json& before, const Json& now) {
  const auto bytes = [](const Json& input) {
    const auto* count = input.find("bytes");
    return count == nullptr ? std::string("no") : count->dump();
  };
  if (bytes(before) == bytes(now)) return "its modification time changed";
  return str("it had ", bytes(before), " bytes, now ", bytes(now));
}

// Describes the first input that differs in the part that was read; "" if none does.
std::string difference_of_inputs(const Json::Array& before, const Json::Array& now,
                                 const InputPosition& position) {
  const auto read = static_cast<std::size_t>(position.file) + (position.byte > 0 ? 1 : 0);
  if (before.size() < read) return {};  // PackRecord::check reports such a record
  if (now.size() < read) return str("there were ", before.size(), " inputs, now ", now.size());
  for (std::size_t i = 0; i < read; ++i) {
    if (before[i].dump() == now[i].dump()) continue;
    const auto& file = text_at(now[i], "file");
    const bool is_last = static_cast<std::int64_t>(i) == position.file;
    if (is_last && text_at(before[i], "file") == file && holds_what_was_read(file, position))
      continue;
    const auto& was = text_at(before[i], "file");
    if (was != file) return str("input ", i + 1, " was ", was, ", now ", file);
    if (is_last) return str(file, " changed before byte ", position.byte, " of its text");
    return str(file, " changed since it was packed: ", change_of_file(before[i], now[i]));
  }
  return {};
}

// Describes the change of a member. For a tokenizer it gives both names with hashes, because a name
// alone says little. For texts of any length it only says that they differ.
std::string change_of(const std::string& name, const Json& before, const Json& now) {
  const auto* old = before.find(name);
  if (old == nullptr) return str(name, " was not set");
  if (name == "document_separator" || name == "chat_template") return str(name, " was different");
  if (name != "tokenizer") return str(name, " was ", old->dump(), ", now ", now.at(name).dump());
  const auto words = [](const Json& command) {
    const auto* called = command.find("tokenizer_name");
    return str(called == nullptr ? "" : called->as_string() + " of ", "hash ",
               text_at(command, "tokenizer").substr(0, 8));
  };
  return str("the tokenizer was ", words(before), ", now ", words(now));
}

// Describes the first member that differs; "" if none does. If missing bytes were refused, the
// input that was read has none, so any other setting gives the same tokens so far.
std::string difference(const Json& before, const Json& now, const InputPosition& position) {
  for (const auto& [name, value] : now.as_object()) {
    if (name == "inputs" || name == "tokenizer_name") continue;
    const auto* old = before.find(name);
    if (old != nullptr && old->dump() == value.dump()) continue;
    if (old != nullptr && name == "missing_bytes" && old->as_string() == "refuse") continue;
    return change_of(name, before, now);
  }
  return difference_of_inputs(inputs_of(before), inputs_of(now), position);
}

// Whether packing writes a file of that name, or write_text uses it as a temporary name.
bool is_of_packing(const std::string& name) {
  return name == kLock || name == kDataset || name == kCommand || name == kProgress ||
         name == kList || name.starts_with(str(kCommand, ".tmp-")) ||
         name.starts_with(str(kProgress, ".tmp-"));
}

// Rejects other files, because the directory is removed at the end.
void refuse_foreign(const fs::path& work) {
  if (!path_exists(work)) return;
  const auto entries = directory_entries(work);
  const auto holds = [&](const char* name) {
    return std::find(entries.begin(), entries.end(), work / name) != entries.end();
  };
  const auto foreign = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return !is_of_packing(entry.filename()) || !holds(kLock) ||
           (entry.filename() == kDataset && !holds(kCommand));
  });
  if (foreign == entries.end()) return;
  throw UsageError(str(work.string(), ": contains ", foreign->filename().string(),
                       ", which packing did not write; packing works in a directory of this name "
                       "and removes it. Move it, or choose another --out"));
}

}  // namespace

fs::path PackDirectory::work_of(const fs::path& out) {
  return str(out.string(), ".tmp");
}

fs::path PackDirectory::dataset() const {
  return work_ / kDataset;
}

fs::path PackDirectory::record_path() const {
  return work_ / kProgress;
}

PackDirectory::PackDirectory(fs::path out, Json command, bool resumable)
    : out_(std::move(out)),
      work_(work_of(out_)),
      command_(std::move(command)),
      resumable_(resumable) {
  refuse_taken(out_);
  refuse_foreign(work_);
  make_directories(work_);
  lock();
  try {
    refuse_taken(out_);  // by a process that has just ended
    find_record();
  } catch (...) {
    unlock();
    throw;
  }
  if (record_) return;
  try {
    start();
  } catch (...) {
    remove();
    throw;
  }
}

PackDirectory::~PackDirectory() {
  if (lock_ < 0) return;
  if (!is_ours()) {
    unlock();
  } else if (saved_) {
    log_warning(work_.string(), ": keeps the finished part, up to ", kept_,
                "; the input after that may be corrected. Rerun the same command to resume, or "
                "remove the directory to start again");
    unlock();
  } else {
    remove();
  }
}

void PackDirectory::remove() {
  std::string wrong;
  const auto take_away = [&](const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    if (error && wrong.empty()) wrong = error.message();
  };
  try {
    forget();
    for (const auto& entry : directory_entries(work_))
      if (is_of_packing(entry.filename()) && entry.filename() != kLock) take_away(entry);
    take_away(work_ / kLock);  // last, because without it the other files would look foreign
    take_away(work_);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) log_warning(work_.string(), ": cannot remove: ", wrong);
  unlock();
}

void PackDirectory::lock() {
  const auto path = work_ / kLock;
  lock_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail_io(path, "cannot create", errno);
  const bool held = flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  // A process that has just ended may have removed it.
  if (held && is_named(lock_, path)) return;
  unlock();
  throw TransientError(str(work_.string(), ": another process is packing into it"));
}

// Whether the name still refers to the locked file. If unknown, the directory is not touched.
bool PackDirectory::is_ours() const noexcept try {
  return is_named(lock_, work_ / kLock);
} catch (const std::exception&) {
  return false;
}

void PackDirectory::check() const {
  if (is_named(lock_, work_ / kLock)) return;
  throw DataError(
      str(work_.string(),
          ": was removed, moved or replaced during packing; move it back, or start again"));
}

void PackDirectory::unlock() {
  close(std::exchange(lock_, -1));
}

void PackDirectory::find_record() {
  if (!path_exists(dataset())) return;
  const auto progress = work_ / kProgress;
  std::optional<PackRecord> record;
  if (path_exists(progress))
    record = PackRecord::parse(read_text(progress, kMostRecordBytes), progress.string());
  const auto path = work_ / kCommand;
  const auto before = Json::parse(read_text(path, kMostRecordBytes), path.string());
  const auto changed = in_context(
      [&] { return difference(before, command_, record ? record->position : InputPosition{}); },
      path.string());
  if (!changed.empty())
    throw UsageError(
        str(work_.string(), ": was written by another command (", changed,
            "); rerun that command to resume, or remove the directory to start again"));
  if (!record) {
    if (!resumable_)
      log_info(work_.string(), ": starting again: standard input and pipes cannot be resumed");
    return;
  }
  record_ = std::move(record);
  read_list();
  if (before.dump() != command_.dump()) write_text(path, command_.dump(2) + "\n");
  saved_ = true;
  kept_ = place_of(record_->position, command_);
  remove_unfinished();
}

void PackDirectory::read_list() {
  const auto path = work_ / kList;
  list_.emplace(path, std::span<const std::byte>(), record_->list_bytes);
  if (list_->hash() != record_->list_hash)
    throw DataError(str(path.string(), ": is damaged; remove ", work_.string(), " to start again"));
  std::int64_t number = 0;
  for_each_line(ReadFile(path), [&](std::string_view line) {
    const auto what = str(path.string(), ": line ", ++number);
    in_context([&] { record_->add(PackedShard::parse(line, "JSON")); }, what);
    return true;
  });
}

// Removes files beside the full shards that an interrupted end left, including temporary names.
void PackDirectory::remove_unfinished() const {
  std::error_code error;
  std::vector<fs::path> beside;
  fs::recursive_directory_iterator it(dataset(), error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const auto kind = it->path().extension();
    if (!it->is_directory(error) && kind != ".bin" && kind != ".ends" && kind != ".mask")
      beside.push_back(it->path());
  }
  for (auto path = beside.begin(); !error && path != beside.end(); ++path)
    fs::remove(*path, error);
  if (error) fail_io(dataset(), "cannot remove the files of an interrupted run", error.value());
}

// Removes in an order in which the directory can be resumed, or is recognized as packing's, at any
// time.
void PackDirectory::forget() const {
  remove_tree(work_ / kProgress);  // first, because the files that it describes are removed
  sync_directory(work_);
  remove_tree(dataset());
  sync_directory(work_);
}

void PackDirectory::start() {
  forget();
  write_text(work_ / kCommand, command_.dump(2) + "\n");
  make_directories(dataset());
}

void PackDirectory::save(PackRecord record, std::string_view lines) {
  check();
  if (!resumable_) return;
  if (!list_) {
    list_.emplace(work_ / kList, std::span<const std::byte>(), 0);
    sync_directory(work_);
  }
  list_->write(std::as_bytes(std::span(lines)));
  list_->flush();
  list_->sync();
  record.list_bytes = list_->size_bytes();
  record.list_hash = list_->hash();
  write_text(work_ / kProgress, record.dump());
  saved_ = true;
  kept_ = place_of(record.position, command_);
}

void PackDirectory::commit() {
  check();
  rename_durably(dataset(), out_);
  abandon();  // the destructor removes the rest
}

}  // namespace lockstep
