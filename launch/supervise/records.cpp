#include "launch/supervise/records.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/wall_clock.h"
#include "dist/job/supervise/causes.h"
#include "train/observe/ledger.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double kRecentSeconds = 60;
constexpr std::int64_t kMostRecordBytes = 64 << 10, kMostLineBytes = 1 << 20;

// Creates a file with this text, which another process sees complete or not at all. Returns false
// if the name exists.
bool create(const fs::path& path, const std::string& text, mode_t mode) {
  const auto temporary =
      fs::path(str(path.string(), ".tmp-", getpid(), "-", Secret::draw().hex().substr(0, 8)));
  struct Remove {
    ~Remove() { unlink(path.c_str()); }
    const fs::path& path;
  } const remove{temporary};
  const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) fail_io(temporary, "cannot create", errno);
  if (write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file.number()) != 0)
    fail_io(temporary, "cannot write", errno);
  if (link(temporary.c_str(), path.c_str()) == 0) {
    sync_directory(path.parent_path());
    return true;
  }
  const int error = errno;
  // A server may report that the name exists for the link that it has just made.
  if (error == EEXIST) return read_text(path, kMostRecordBytes) == text;
  fail_io(path, "cannot create", error);
}

}  // namespace

Secret SuperviseRecords::secret() const {
  make_directories(path());
  if (const char* given = std::getenv("LOCKSTEP_SECRET"); given != nullptr && *given != '\0')
    return Secret::from_hex(given);
  const auto file = path() / "secret";
  if (!path_exists(file)) create(file, Secret::draw().hex(), 0600);
  return Secret::from_hex(read_text(file, kMostRecordBytes));
}

fs::path SuperviseRecords::term(std::int64_t number) const {
  std::array<char, 32> name;
  std::snprintf(name.data(), name.size(), "term-%08lld.json", static_cast<long long>(number));
  return path() / name.data();
}

Records SuperviseRecords::read() const {
  Records records;
  fs::path newest;
  for (const auto& entry : directory_entries(path()))
    if (const auto name = entry.filename().string();
        name.starts_with("term-") && name.ends_with(".json") && name > newest.filename().string())
      newest = entry;
  if (!newest.empty())
    records.newest = Term::parse(read_text(newest, kMostRecordBytes), newest.string());
  const auto alive = path() / "alive";
  if (path_exists(alive)) records.alive = read_text(alive, kMostRecordBytes);
  // It belongs to the term that it names.
  if (!records.alive.starts_with(str(records.newest.number, " "))) records.alive.clear();
  const auto over = str(records.newest.number, " over ");
  if (records.alive.starts_with(over)) {
    records.exit_code = std::atoi(records.alive.c_str() + over.size());
    records.alive = "over";
  }
  return records;
}

bool SuperviseRecords::claim(const Term& of) const {
  if (path_exists(term(of.number)))
    return false;  // saves a write: all agents claim after a leader's death
  return create(term(of.number), of.dump(), 0644);
}

// Not synced: after a power failure, the leader is gone too.
void SuperviseRecords::set_alive(const std::string& text) const {
  const auto file = path() / "alive", temporary = path() / "alive.tmp";
  const Descriptor out(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!out || write(out.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_io(temporary, "cannot write", errno);
  if (rename(temporary.c_str(), file.c_str()) != 0) fail_io(file, "cannot rename", errno);
}

void SuperviseRecords::set_over(int exit_code, const std::vector<std::string>& bad_hosts) const {
  std::string lines;
  for (const auto& host : bad_hosts)
    lines += host + "\n";
  write_text(path() / "bad_hosts", lines);
  write_text(path() / "exit_code", str(exit_code, "\n"));
}

void SuperviseRecords::set_status(const Json& status) const {
  write_text(path() / "status.json", status.dump() + "\n");
}

void SuperviseRecords::append(const std::vector<Json>& lines) const {
  std::string text;
  const Descriptor out(open(log().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // A power failure or a full disk may have cut off the last line.
  char last = '\n';
  const auto end = out ? lseek(out.number(), 0, SEEK_END) : 0;
  if (end > 0 && pread(out.number(), &last, 1, end - 1) == 1 && last != '\n') text = "\n";
  for (const auto& line : lines)
    text += line.dump() + "\n";
  if (!out || write(out.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_io(log(), "cannot write", errno);
}

std::vector<Json> SuperviseRecords::events() const {
  std::vector<Json> events;
  std::int64_t newest = 0;  // term
  if (!path_exists(log())) return events;
  for_each_line(ReadFile(log()), [&](std::string_view line) {
    try {
      const auto& event = events.emplace_back(Json::parse(line, log().string()));
      newest = std::max(newest, event.at("term").as_integer());
      // A deposed leader may record the end of the run.
      if (text_at(event, "event") == "over" && event.at("term").as_integer() == newest)
        events.clear();
    } catch (const DataError&) {  // the disk was full
    }
    return true;
  });
  return events;
}

SuperviseRecords::Progress SuperviseRecords::progress() const {
  Progress progress{kNone, kNone};
  if (const auto saved = run_ / "saved_step.txt"; path_exists(saved))
    progress.saved_step = std::atoll(read_text(saved, kMostRecordBytes).c_str());
  if (const auto line = last_line(run_ / "metrics.jsonl", kMostLineBytes))
    progress.last_step = Json::parse(*line, "metrics.jsonl").at("step").as_integer();
  if (const auto line = read_last_line(run_ / "ledger.jsonl");
      line && line->kind == LedgerLine::Kind::end &&
      seconds_since_1970() - line->time_seconds < kRecentSeconds)
    progress.end_code = line->exit_code;
  return progress;
}

}  // namespace lockstep
