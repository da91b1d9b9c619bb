#include "dist/job/monitored_world.h"

#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/start_thread.h"
#include "core/system/interfaces.h"
#include "dist/job/agent_socket.h"
#include "dist/job/rank_consistency.h"

namespace lockstep {
namespace {

constexpr Milliseconds kWatchLeaveTime{10'000};
// Long, because one rank may be reading a large checkpoint. The heartbeat detects a dead rank.
constexpr Milliseconds kMessageTime = std::chrono::hours(24 * 365);

}  // namespace

MonitoredWorld::MonitoredWorld(World& world, const MonitorOptions& options)
    : WorldOver(world),
      interval_(options.timing.interval),
      interfaces_(options.interfaces),
      path_(options.directory) {
  open_directory();
  const auto membership = meet(options);
  control_ = std::make_unique<Control>(membership);
  heartbeat_ = std::make_unique<Heartbeat>(
      membership, options.timing,
      [this] {
        const std::lock_guard lock(looking_);
        return activity_;
      },
      [this](const Verdict& verdict) { end(verdict); });
  looker_ = start_thread([this] { look(); });
}

MonitoredWorld::~MonitoredWorld() {
  {
    const std::lock_guard lock(looking_);
    leaving_ = true;
  }
  wakes_.notify_all();
  looker_.join();
  heartbeat_->goodbye();
  control_.reset();
  if (server_) server_->wait_until_all_left(kWatchLeaveTime);
}

// Rank 0 sends the address of its control server and the secret over the world that exists already.
Membership MonitoredWorld::meet(const MonitorOptions& options) {
  BodyWriter place;
  if (rank() == 0) {
    const auto secret = Secret::draw();
    server_.emplace(
        ControlServerOptions{.ranks = size(), .secret = secret, .timing = options.timing});
    place.number(server_->port()).text(as_text(secret.bytes()));
    for (const auto& address : addresses())
      place.text(address);
  }
  const Bytes said = as_bytes(under_.exchange(as_text(place.take())).front());
  BodyReader reader(said);
  const auto port = reader.number<std::uint16_t>();
  const auto secret_bytes = as_bytes(reader.text());
  Bytes32 secret;
  LOCKSTEP_CHECK(secret_bytes.size() == secret.size(), "received a secret of ", secret_bytes.size(),
                 " bytes");
  std::copy(secret_bytes.begin(), secret_bytes.end(), secret.begin());
  Membership membership{
      .rank = rank(), .ranks = size(), .addresses = {}, .port = port, .secret = Secret(secret)};
  while (!reader.at_end())
    membership.addresses.push_back(reader.text());
  return membership;
}

std::vector<std::string> MonitoredWorld::exchange(const std::string& mine) {
  const auto number =
      ring_.begin("exchange", "all ranks", static_cast<std::int64_t>(mine.size()), {});
  struct Leave {
    ~Leave() { ring.end(number, {}); }
    CollectiveRing& ring;
    std::uint64_t number;
  } const leave{ring_, number};
  return under_.exchange(mine);
}

std::vector<std::string> MonitoredWorld::gather(const std::string& tag, const std::string& mine) {
  std::vector<std::string> said;
  for (const auto& bytes : control_->gather(tag, as_bytes(mine), kMessageTime))
    said.emplace_back(as_text(bytes));
  return said;
}

std::string MonitoredWorld::broadcast(const std::string& tag, const std::string& text) {
  return std::string(as_text(control_->broadcast(tag, as_bytes(text), kMessageTime)));
}

std::vector<std::string> MonitoredWorld::addresses() const {
  return local_addresses(interfaces_);
}

void MonitoredWorld::set_exit_handler(const ExitHandler& act) {
  const std::lock_guard lock(ending_);
  exit_handler_ = act;
}

void MonitoredWorld::abort(const std::string& why, int exit_code) noexcept {
  {
    const std::lock_guard lock(aborting_);  // a second error waits and is not reported
    try {
      if (!std::exchange(aborted_, true)) {
        report_to_agent({.error = why});
        // A broken connection is usually a consequence. The watch finds the cause soon, and its
        // verdict ends this process first.
        if (exit_code == TransientError("").exit_code()) std::this_thread::sleep_for(2 * interval_);
        heartbeat_->failed(why, exit_code);
      }
    } catch (...) {  // out of memory: the others still detect that this rank is gone
    }
  }
  under_.abort(why, exit_code);
}

// Queries the progress of streams from a separate thread, because the query blocks while a driver
// hangs. The heartbeat continues then.
void MonitoredWorld::look() {
  std::unique_lock lock(looking_);
  while (!wakes_.wait_for(lock, interval_, [&] { return leaving_; })) {
    lock.unlock();
    open_directory();
    const auto activity = ring_.activity();
    lock.lock();
    activity_ = activity;
  }
}

// Returns the descriptor; -1: not open yet. Opens outside the lock, because file systems may hang.
int MonitoredWorld::open_directory() {
  const auto number = [this] {
    const std::lock_guard lock(looking_);
    return directory_.number();
  };
  if (path_.empty() || number() >= 0) return number();
  Descriptor opened(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::lock_guard lock(looking_);
  if (!directory_) directory_ = std::move(opened);
  return directory_.number();
}

void MonitoredWorld::end(const Verdict& verdict) {
  std::signal(SIGTERM, SIG_IGN);  // mpirun sends it to all ranks when one died
  end_process(verdict,
              {.rank = rank(), .last_words = [&] {
                 const std::jthread beside([&] {  // in parallel, because either may hang
                   leave_words(verdict.text);
                 });
                 const std::lock_guard lock(ending_);
                 const auto lost = server_ ? server_->lost() : verdict.lost;
                 report_to_agent(
                     {.error = verdict.text, .lost = control_->hosts(lost), .is_verdict = true});
                 if (exit_handler_) exit_handler_(verdict.text, verdict.exit_code, lost);
               }});
}

// Does not sync, because a hanging disk may be the cause. The ring may not answer if a driver
// hangs.
void MonitoredWorld::leave_words(const std::string& why) {
  const int directory = open_directory();  // if a driver hangs, look() did not open it
  if (directory < 0) return;
  mkdirat(directory, "ended", 0755);
  const auto name = "ended" / std::filesystem::path(rank_file(rank(), ".txt"));
  const Descriptor file(
      openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const auto text = str(why, "\n\n", ring_.in_words());
  if (file) [[maybe_unused]]
    const auto written = write(file.number(), text.data(), text.size());
}

}  // namespace lockstep
