#include "dist/job/supervise/causes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>

namespace lockstep {
namespace {

// Errors of GPUs by NVIDIA's catalogue of Xid errors. `exclude`: the GPU, its memory or its NVLink
// needs a reset or a repair. `restart`: the process on the GPU ended, and a new one may work.
struct XidRow {
  int number;
  XidSeverity severity;
};
constexpr std::array kXids{
    XidRow{31, XidSeverity::restart},   // access to an invalid address
    XidRow{43, XidSeverity::restart},   // a process used the GPU wrongly
    XidRow{48, XidSeverity::exclude},   // uncorrectable ECC error
    XidRow{62, XidSeverity::exclude},   // halt of the internal controller
    XidRow{64, XidSeverity::exclude},   // a row of memory cannot be remapped
    XidRow{74, XidSeverity::exclude},   // NVLink error
    XidRow{79, XidSeverity::exclude},   // the GPU is off the bus
    XidRow{94, XidSeverity::restart},   // contained ECC error
    XidRow{95, XidSeverity::exclude},   // uncontained ECC error
    XidRow{119, XidSeverity::exclude},  // the GSP does not answer
    XidRow{120, XidSeverity::exclude},  // error of the GSP
    XidRow{140, XidSeverity::exclude},  // unrecovered ECC error
};

constexpr int kSignal = 128;

bool is_program_signal(int exit_code) {
  constexpr std::array kSignals{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
  return std::ranges::any_of(kSignals, [&](int one) { return exit_code == kSignal + one; });
}

bool is_one_of(CauseKind kind, std::initializer_list<CauseKind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c < '0' || c > '9')
      result += c;
    else if (result.empty() || result.back() != '#')
      result += '#';
  return result;
}

std::string listed(const std::vector<std::string>& hosts) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(hosts.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() > kMost) text += str(" and ", hosts.size() - kMost, " more");
  return text;
}

std::string host_of(const Evidence& evidence, int rank) {
  const auto place = static_cast<std::size_t>(rank / evidence.slots);
  return place < evidence.attempt.places.size() ? evidence.attempt.places[place] : "";
}

std::string how(const RankEnd& end) {
  if (!end.error.empty()) return end.error;
  if (end.exit_code > kSignal) return str("signal ", end.exit_code - kSignal);
  return str("exit code ", end.exit_code);
}

Cause cause_of(const Evidence& evidence, const RankEnd& end, CauseKind kind) {
  const auto host = host_of(evidence, end.rank);
  const auto signature = without_numbers(how(end));
  std::set<std::string> hosts{host};
  if (end.is_common) hosts.insert(evidence.attempt.places.begin(), evidence.attempt.places.end());
  for (const auto& other : evidence.ends)
    if (other.is_verdict == end.is_verdict && other.exit_code == end.exit_code &&
        without_numbers(how(other)) == signature)
      hosts.insert(host_of(evidence, other.rank));
  return {.kind = kind,
          .hosts = {hosts.begin(), hosts.end()},
          .exit_code = end.exit_code,
          .text = str("rank ", end.rank, " on host ", host, ": ", how(end),
                      end.samples.empty() ? "" : ", in " + end.samples),
          .signature = signature,
          .step = end.step,
          .samples = end.samples};
}

Cause cause_of(CauseKind kind, std::vector<std::string> hosts, const std::string& what) {
  auto text = str(hosts.size() == 1 ? "host " : "hosts ", listed(hosts), ": ", what);
  return {.kind = kind, .hosts = std::move(hosts), .text = std::move(text)};
}

// Returns the first rank that ended with such an exit code because of its own error; if there is
// none, the first that ended because of another rank; nullptr: none ended so.
const RankEnd* first_with(const Evidence& evidence, bool (*is_it)(int exit_code)) {
  for (const bool is_verdict : {false, true})
    for (const auto& end : evidence.ends)
      if (end.is_verdict == is_verdict && is_it(end.exit_code)) return &end;
  return nullptr;
}

}  // namespace

void Evidence::add(const RankEnd& end) {
  if (!ended.insert(end.rank).second) return;
  ends.push_back(end);
  any_failed = any_failed || end.exit_code != 0;
  if (end.rank == 0) root_code = end.exit_code;
}

const char* name(CauseKind kind) {
  switch (kind) {
    case CauseKind::done: return "done";
    case CauseKind::asked: return "asked";
    case CauseKind::host_lost: return "host lost";
    case CauseKind::host_stuck: return "host stuck";
    case CauseKind::gpu: return "GPU";
    case CauseKind::host_memory: return "host memory";
    case CauseKind::corruption: return "corruption";
    case CauseKind::hang: return "hang";
    case CauseKind::process: return "process";
    case CauseKind::storage: return "storage";
    case CauseKind::network: return "network";
    case CauseKind::configuration: return "configuration";
    case CauseKind::program: return "program";
  }
  return "?";
}

CauseKind kind_of(const std::string& text) {
  for (int kind = 0; kind <= static_cast<int>(CauseKind::program); ++kind)
    if (text == name(static_cast<CauseKind>(kind))) return static_cast<CauseKind>(kind);
  throw DataError(str("there is no cause '", text, "'"));
}

XidSeverity severity(int xid) {
  for (const auto& row : kXids)
    if (row.number == xid) return row.severity;
  return XidSeverity::none;
}

int xid_of(const std::string& line) {
  const auto begin = line.find("NVRM: Xid (");
  if (begin == std::string::npos) return 0;
  const auto end = line.find("): ", begin);
  if (end == std::string::npos) return 0;
  int number = 0;
  std::from_chars(line.data() + end + 3, line.data() + line.size(), number);
  return number;
}

Cause classify(const Evidence& evidence) {
  const auto& ends = evidence.ends;
  // Rank 0 ends last, after the last checkpoint.
  const auto root = std::ranges::find(ends, 0, &RankEnd::rank);
  const bool none_failed =
      std::ranges::none_of(ends, [](auto& end) { return end.exit_code != 0 && !end.unwatched; });
  if (none_failed && root != ends.end() && root->exit_code == 0)
    return {.kind = CauseKind::done, .exit_code = 0, .text = "the run is complete"};
  if (std::ranges::any_of(ends, [](auto& end) { return end.exit_code == kInterrupted; }))
    return {.kind = CauseKind::asked, .exit_code = kInterrupted, .text = "a user stopped the run"};
  if (!evidence.asked.empty()) return {.kind = CauseKind::asked, .text = evidence.asked};

  for (const auto& end : ends)
    if (!end.faulty.empty()) return cause_of(CauseKind::corruption, end.faulty, how(end));
  for (const auto& [host, xids] : evidence.xids)
    for (const int xid : xids)
      if (severity(xid) == XidSeverity::exclude)
        return cause_of(CauseKind::gpu, {host}, str("the kernel reported Xid ", xid, " of a GPU"));
  if (!evidence.stuck.empty())
    return cause_of(CauseKind::host_stuck, evidence.stuck, "its ranks could not be killed");
  // A host whose agent does not answer may still train. It is lost if other ranks lost its ranks.
  const std::set<std::string> gone(evidence.gone.begin(), evidence.gone.end());
  for (const auto& end : ends)
    for (const auto& host : end.lost)
      if (gone.contains(host))
        return cause_of(CauseKind::host_lost, {host}, "the host does not answer");
  for (const auto& end : ends)
    if (end.out_of_memory)
      return cause_of(CauseKind::host_memory, {host_of(evidence, end.rank)},
                      "the kernel killed a process because memory was short");

  // The first error that is not the consequence of another.
  if (const auto* end = first_with(evidence, [](int code) {
        return code == kUsage || code == kDamaged || code == kAccess || code == kConfiguration;
      }))
    return cause_of(evidence, *end, CauseKind::configuration);
  if (const auto* end = first_with(evidence, [](int code) { return code == kStorage; })) {
    auto cause = cause_of(evidence, *end, CauseKind::storage);
    cause.hosts.clear();
    return cause;
  }
  if (const auto* end = first_with(evidence, is_program_signal))
    return cause_of(evidence, *end, CauseKind::process);
  if (const auto* end = first_with(
          evidence, [](int code) { return code != 0 && code <= kSignal && code != kTemporary; }))
    return cause_of(evidence, *end, CauseKind::program);
  if (const auto* end =
          first_with(evidence, [](int code) { return code > kSignal && code != kInterrupted; }))
    return cause_of(evidence, *end, CauseKind::process);
  if (!evidence.gone.empty())
    return cause_of(CauseKind::host_lost, evidence.gone, "the host does not answer");
  if (none_failed && !ends.empty() && !evidence.late.empty())
    return cause_of(CauseKind::hang, evidence.late, "ranks did not end after the others");
  for (const auto& end : ends)
    if (!end.lost.empty())
      return cause_of(CauseKind::hang, end.lost,
                      end.error.empty() ? "a rank made no progress" : end.error);
  if (!none_failed && std::ranges::all_of(ends, [](auto& end) { return end.error.empty(); }))
    return {.kind = CauseKind::asked, .text = "the ranks were asked to stop"};
  for (const auto& end : ends)
    if (!end.error.empty())
      return {
          .kind = CauseKind::network, .text = end.error, .signature = without_numbers(end.error)};
  return {.kind = CauseKind::network, .text = "rank 0 did not report how it ended"};
}

int RestartPolicy::faults(const std::string& host, CauseKind kind, Milliseconds within,
                          Deadline now) {
  return static_cast<int>(std::ranges::count_if(hosts_[host].faults, [&](auto& fault) {
    return fault.second == kind && now - fault.first < within;
  }));
}

RestartPolicy::Repeat RestartPolicy::repeat(const Cause& cause, const Evidence& evidence) {
  using enum CauseKind;
  constexpr int kEnough = 3;  // if no other host can compute the ranks
  const auto before = std::exchange(last_, {});
  // The data of a step can cause these errors. Another process sends signals such as SIGKILL.
  const bool may_repeat =
      cause.kind == program || (cause.kind == process && is_program_signal(cause.exit_code));
  if (!may_repeat || cause.hosts.empty() || evidence.last_step == kUnknown) return Repeat::no;
  const auto& places = evidence.attempt.places;
  // A report of an older step was not followed by one of the failed step.
  const bool is_reported = cause.step > 0 && cause.step >= evidence.last_step;
  last_ = {.signature = cause.signature,
           .step = is_reported ? cause.step : std::max<std::int64_t>(evidence.last_step, 0) + 1,
           .is_reported = is_reported,
           .hosts = cause.hosts,
           .place = std::ranges::find(places, cause.hosts.front()) - places.begin(),
           .count = 1};
  // A GPU computes one step more than the recorded ones.
  const auto distance = std::abs(before.step - last_.step);
  const bool is_same_step =
      distance == 0 || (distance == 1 && before.is_reported != last_.is_reported);
  if (before.signature != last_.signature || !is_same_step) return Repeat::no;
  last_.count = before.count + 1;
  if (before.is_reported && !last_.is_reported) {
    last_.step = before.step;
    last_.is_reported = true;
  }
  // The data of a step that the start did not reach has no part in it.
  const bool is_earlier = evidence.noted_step > 0 && !is_reported;
  if (before.hosts != cause.hosts || cause.hosts.size() > 1)
    return is_earlier ? Repeat::no : Repeat::other_host;
  if (before.place != last_.place) return Repeat::same_host;
  const bool may_move = evidence.can_move || is_earlier || last_.count < kEnough;
  return may_move ? Repeat::same_place : Repeat::other_host;
}

// The cause is the program or the data of the step. If PolicyOptions::skips is set, the run
// continues once without the data of the step.
Decision RestartPolicy::blame_step(const Cause& cause, Decision go) {
  const auto step = last_.step;
  go.why = str(cause.text, "; the same error ended step ", step, " ", last_.count,
               " times: the program or the data of this step causes it");
  if (options_.skips && last_.is_reported && skipped_.insert(step).second) {
    go.skip_step = step;
    go.why += "; its data is left out";
    return go;
  }
  return {
      .exit_code = 1,
      .why = str(go.why, options_.skips ? ", and other data did not help"
                                        : str(". To leave out its data, pass --skip-steps ", step,
                                              "..", step, " to train, without --from-step"))};
}

Decision RestartPolicy::decide(const Cause& cause, const Evidence& evidence, Deadline now) {
  using enum CauseKind;
  Decision stop{.exit_code = cause.exit_code, .why = cause.text};
  if (is_one_of(cause.kind, {done, asked, configuration})) return stop;
  if (evidence.saved_step == kNone && best_saved_ > kNone) {
    stop.exit_code = kDamaged;
    stop.why =
        "the saved run is missing; restore its directory or move it back. A restart would "
        "begin at step 0";
    return stop;
  }

  Decision go{.restarts = true, .why = cause.text};
  const auto repeated = repeat(cause, evidence);
  const bool is_common = cause.hosts.size() > 1 && !cause.signature.empty();
  for (const auto& host : cause.hosts) {
    const bool stays = repeated == Repeat::same_host;
    if (is_common || (is_one_of(cause.kind, {program, storage, network}) && !stays)) break;
    hosts_[host].faults.emplace_back(now, cause.kind);
    const auto within = cause.kind == hang ? options_.hang_memory : options_.memory;
    const int count = faults(host, cause.kind, within, now);
    if (cause.kind == host_memory && count > 1) {
      stop.exit_code = kConfiguration;
      stop.why = str(cause.text,
                     ", for the second time within an hour: use more hosts, a smaller "
                     "train.micro_batch, or fewer copies of checkpoints in memory");
      return stop;
    }
    const bool is_second =
        is_one_of(cause.kind, {host_lost, hang, process}) && count > 1 && repeated == Repeat::no;
    if (is_second || stays || is_one_of(cause.kind, {host_stuck, gpu, corruption})) {
      exclude(host, cause.kind == corruption, now);
      go.exclude.push_back(host);
    }
  }
  if (repeated == Repeat::same_place && evidence.can_move) go.move = cause.hosts.front();
  if (!last_.signature.empty()) go.noted_step = last_.step;
  if (repeated == Repeat::other_host) {
    go = blame_step(cause, std::move(go));
    if (!go.restarts) return go;
  }

  if (evidence.saved_step > best_saved_)
    without_save_ = 0;
  else if (evidence.saved_step != kUnknown && go.exclude.empty() && cause.kind != host_lost)
    ++without_save_;
  best_saved_ = std::max(best_saved_, evidence.saved_step);
  if (without_save_ >= options_.fruitless) {
    stop.exit_code = 1;
    stop.why = str(cause.text, "; ", without_save_, " consecutive starts saved nothing");
    return stop;
  }
  std::erase_if(restarts_, [&](Deadline then) { return now - then >= std::chrono::hours(1); });
  if (static_cast<int>(restarts_.size()) >= options_.most_an_hour) {
    stop.exit_code = 1;
    stop.why = str(cause.text, "; there were ", restarts_.size(), " restarts within an hour");
    return stop;
  }
  restarts_.push_back(now);
  const auto index =
      static_cast<std::size_t>(std::max(without_save_, cause.kind == storage ? 1 : 0));
  go.pause = options_.pauses[std::min(index, options_.pauses.size() - 1)];
  return go;
}

bool RestartPolicy::is_excluded(const std::string& host, Deadline now) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && (found->second.broken || now < found->second.until);
}

void RestartPolicy::exclude(const std::string& host, bool broken, Deadline now) {
  auto& history = hosts_[host];
  history.broken = history.broken || broken;
  history.until = ++history.exclusions > 1 ? Deadline::max() : now + std::chrono::hours(1);
}

std::string RestartPolicy::readmit(const std::vector<std::string>& hosts, Deadline now) {
  const std::string* best = nullptr;
  for (const auto& host : hosts)
    if (is_excluded(host, now) && !hosts_[host].broken &&
        (best == nullptr || hosts_[host].faults.size() < hosts_[*best].faults.size()))
      best = &host;
  if (best == nullptr) return "";
  hosts_[*best].until = now;
  return *best;
}

}  // namespace lockstep
