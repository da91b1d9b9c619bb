#include "tests/sim/job.h"

#include <array>

namespace lockstep::sim {
namespace {

constexpr Micros kStep = kSecond;
constexpr std::uint64_t kCollectives = 10;  // of a step

Bytes32 draw(Random& random) {
  Bytes32 bytes;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const auto word = random.next();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return bytes;
}

}  // namespace

// Rank is a rank's process: it joins twice, as Control and Heartbeat do, and sends heartbeats.
class Job::Rank final : public Endpoint {
 public:
  Rank(Job& job, int rank) : job_(job), rank_(rank) {}

  void start() {
    alive_ = true;
    ++job_.alive_;
    deadline_ = job_.kernel_.now() + micros(job_.options_.start);
    join(Channel::control);
  }

  void arrived(int connection, std::span<const std::byte> bytes) override {
    if (connection == heart_.connection)
      take(heart_, bytes);
    else if (connection == control_.connection)
      take(control_, bytes);
  }

  void closed(int connection) override {
    if (!alive_) return;
    if (connection == heart_.connection && heartbeat_)
      return end(lost(" died: it closed its connection"));
    auto& line = connection == heart_.connection ? heart_ : control_;
    if (connection != line.connection || line.is_joined) return;  // rank 0 reports why, or is dead
    line.connection = -1;
    if (job_.kernel_.now() + pause_ > deadline_) return end({.text = "rank 0 cannot be reached"});
    job_.kernel_.after(pause_ + pause_ * (rank_ % 16) / 16, [this, channel = line.channel] {
      if (alive_) join(channel);
    });
    pause_ = std::min(2 * pause_, kSecond);
  }

  void writable(int connection) override {
    if (connection == control_.connection)
      send_messages();
    else
      send();
  }

  void message(int to, Bytes body) {
    append(unsent_, {FrameKind::message, to, "m", std::move(body)});
    send_messages();
  }

  void kill() {
    if (!std::exchange(alive_, false)) return;
    --job_.alive_;
    if (is_training_) job_.set_blocking(*this, true);
    job_.net_.kill(this);
    job_.ends_[index()].at = job_.kernel_.now();
    job_.on_end(rank_);
  }

  void set_paused(bool paused) {
    paused_ = paused;
    if (is_training_) job_.set_blocking(*this, paused || stalled_ || cut_);
    job_.net_.set_paused(this, paused);
    if (!paused && std::exchange(missed_, false)) turn();
  }

  bool alive_ = false, paused_ = false, stalled_ = false, cut_ = false;
  bool blocks_ = false;
  Micros blocks_since_ = 0;

 private:
  struct Line {
    Channel channel;
    int connection = -1;
    std::optional<Greeting> greeting{};
    Bytes head{};
    bool is_proven = false, is_joined = false;
  };

  static Micros micros(Milliseconds time) { return time.count() * kMillisecond; }
  std::size_t index() const { return static_cast<std::size_t>(rank_); }
  const HostClock& clock() const {
    return job_.clocks_[static_cast<std::size_t>(rank_ / job_.options_.slots)];
  }
  Deadline local() const { return clock().of(job_.kernel_.now()); }

  void join(Channel channel) {
    auto& line = channel == Channel::control ? control_ : heart_;
    line = {.channel = channel};
    line.connection =
        job_.net_.connect(this, job_.host_of(rank_), job_.host_of(0), job_.options_.port);
    line.greeting.emplace(
        job_.secret_,
        Introduction{channel, rank_, job_.ranks(), {str("h", job_.host_of(rank_)), 1000 + rank_}},
        draw(job_.kernel_.random));
    job_.net_.send(line.connection, this, line.greeting->hello());
  }

  void take(Line& line, std::span<const std::byte> bytes) {
    if (!alive_) return;
    if (!line.is_joined) {
      line.head.insert(line.head.end(), bytes.begin(), bytes.end());
      if (!line.is_proven && line.head.size() >= sizeof(Bytes32)) {
        job_.net_.send(line.connection, this, line.greeting->proof(take_32(line.head)));
        line.is_proven = true;
      }
      if (line.is_proven && line.head.size() >= sizeof(Bytes32)) {
        if (!line.greeting->accepts(take_32(line.head)))
          return end({.text = "rank 0 has another secret"});
        line.is_joined = true;
        if (line.channel == Channel::heartbeat) train();
        const auto rest = std::exchange(line.head, {});
        if (!rest.empty()) take(line, rest);
      }
      return;
    }
    if (line.channel == Channel::heartbeat) return listen(bytes);
    reader_.add(bytes);
    while (const auto frame = reader_.next()) {
      if (frame->kind == FrameKind::message) received_ += frame->body.size();
      if (frame->kind == FrameKind::refused)
        return end({.text = as_text(frame->body), .exit_code = frame->peer});
      if (frame->kind == FrameKind::roster) {
        pause_ = 20 * kMillisecond;
        join(Channel::heartbeat);
      }
    }
  }

  static Bytes32 take_32(Bytes& bytes) {
    Bytes32 taken;
    std::copy_n(bytes.begin(), taken.size(), taken.begin());
    bytes.erase(bytes.begin(), bytes.begin() + sizeof taken);
    return taken;
  }

  void train() {
    is_training_ = true;
    heartbeat_.emplace(job_.options_.timing, local());
    if (++job_.training_ == job_.ranks()) job_.began_ = job_.kernel_.now();
    job_.set_blocking(*this, paused_ || stalled_ || cut_);
    turn();
  }

  void listen(std::span<const std::byte> bytes) {
    try {
      if (const auto verdict = heartbeat_->bytes(bytes, local())) {
        if (job_.options_.delivers_verdicts || rank_ != job_.ranks() - 1) end(*verdict);
      }
    } catch (const Error& error) {
      end(lost(str(" is unreachable: ", error.what())));
    }
  }

  void turn() {
    if (!alive_) return;
    if (paused_) {
      missed_ = true;
      return;
    }
    const auto verdict = heartbeat_->time(local(), [this] { return job_.activity_of(*this); });
    send();
    if (verdict) return end(*verdict);
    job_.kernel_.at(clock().until(heartbeat_->due()), [this] { turn(); });
  }

  void send() {
    if (alive_ && heartbeat_ && !heartbeat_->unsent().empty())
      heartbeat_->sent(job_.net_.send(heart_.connection, this, heartbeat_->unsent()));
  }

  void send_messages() {
    if (!alive_) return;
    const auto sent = job_.net_.send(control_.connection, this, unsent_);
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
    job_.net_.set_writing(control_.connection, this, !unsent_.empty());
  }

  Verdict lost(const std::string& what) {
    auto verdict = heartbeat_->lost(what);
    send();
    return verdict;
  }

  void end(const Verdict& verdict) {
    if (!alive_) return;
    job_.kernel_.trace("rank ", rank_, " ends: ", verdict.text);
    job_.kernel_.note(index());
    job_.ends_[index()] = {job_.kernel_.now(), verdict.text, verdict.exit_code, verdict.is_own};
    job_.kill(rank_);
  }

  friend class Job;
  Job& job_;
  int rank_;
  Line control_{.channel = Channel::control}, heart_{.channel = Channel::heartbeat};
  FrameReader reader_;
  Bytes unsent_;  // messages
  std::size_t received_ = 0;
  std::optional<HeartbeatProtocol> heartbeat_;
  bool is_training_ = false, missed_ = false;
  Micros deadline_ = 0, pause_ = 20 * kMillisecond;
};

// Server is the control server in rank 0's process.
class Job::Server final : public Endpoint, private ControlActions {
 public:
  explicit Server(Job& job)
      : job_(job),
        protocol_({.ranks = job.ranks(),
                   .secret = job.secret_,
                   .start = job.options_.start,
                   .timing = job.options_.server_timing},
                  *this, local()) {
    job_.net_.listen(job_.host_of(0), job_.options_.port, this);
    wake_at_due();
  }

  void accepted(int connection) override {
    if (!alive_) return;
    const auto id =
        static_cast<std::size_t>(protocol_.opened("client", draw(job_.kernel_.random), local()));
    if (id == lines_.size()) lines_.emplace_back();
    lines_[id] = connection;
    ids_[connection] = static_cast<int>(id);
  }
  void arrived(int connection, std::span<const std::byte> bytes) override {
    const auto found = ids_.find(connection);
    if (!alive_ || found == ids_.end()) return;
    protocol_.bytes(found->second, bytes, local());
    if (bytes.size() < kPieceBytes)
      turn_soon();
    else
      turn();  // more must not be read before it
  }
  void closed(int connection) override {
    const auto found = ids_.find(connection);
    if (!alive_ || found == ids_.end()) return;
    protocol_.closed(found->second);
    turn_soon();
  }
  void writable(int connection) override {
    const auto found = ids_.find(connection);
    if (!alive_ || found == ids_.end()) return;
    protocol_.ready(found->second);
    turn_soon();
  }

  void kill() {
    alive_ = false;
    job_.net_.stop_listening(job_.host_of(0), job_.options_.port);
    job_.net_.kill(this);
  }
  void set_paused(bool paused) {
    paused_ = paused;
    job_.net_.set_paused(this, paused);
    if (!paused) turn_soon();
  }
  std::size_t queued_bytes() const { return protocol_.queued_bytes(); }

 private:
  Deadline local() const { return job_.clocks_.front().of(job_.kernel_.now()); }

  // A turn serves all events of a moment.
  void turn_soon() {
    if (std::exchange(turning_, true)) return;
    job_.kernel_.after(0, [this] {
      turning_ = false;
      turn();
    });
  }
  void turn() {
    if (!alive_ || paused_) return;
    protocol_.time(local());
    wake_at_due();
  }
  void wake_at_due() {
    const auto due = job_.clocks_.front().until(protocol_.due());
    if (due == woken_at_) return;
    woken_at_ = due;
    job_.kernel_.at(due, [this, due] {
      if (due == woken_at_) turn();
    });
  }

  std::size_t send(int id, std::span<const std::byte> bytes) override {
    return job_.net_.send(line(id), this, bytes);
  }
  void watch(int id, bool reading, bool writing) override {
    job_.net_.set_reading(line(id), this, reading || !job_.options_.heeds_pauses);
    job_.net_.set_writing(line(id), this, writing);
  }
  void close(int id) override {
    ids_.erase(line(id));
    job_.net_.close(line(id), this);
  }
  void connected(int /*ranks*/) override {}
  void aborted(const Verdict& verdict) override {
    job_.verdicts_.push_back(verdict);
    job_.verdict_at_ = job_.kernel_.now();
    job_.kernel_.trace("verdict: ", verdict.text);
    for (const char letter : verdict.text)
      job_.kernel_.note(static_cast<std::uint64_t>(letter));
  }
  int line(int id) const { return lines_[static_cast<std::size_t>(id)]; }

  Job& job_;
  ControlProtocol protocol_;
  std::vector<int> lines_;  // connections by id
  std::map<int, int> ids_;
  bool alive_ = true, paused_ = false, turning_ = false;
  Micros woken_at_ = -1;
};

Job::Job(Kernel& kernel, Net& net, JobOptions options, std::vector<int> host_of)
    : kernel_(kernel),
      net_(net),
      options_(options),
      host_of_(std::move(host_of)),
      secret_(draw(kernel.random)),
      starts_(static_cast<std::size_t>(ranks()), true),
      ends_(static_cast<std::size_t>(ranks())) {
  for (int place = 0; place < options_.hosts; ++place)
    clocks_.push_back(HostClock::draw(kernel.random));
  for (int rank = 0; rank < ranks(); ++rank)
    ranks_.push_back(std::make_unique<Rank>(*this, rank));
}

Job::~Job() = default;

void Job::start_rank(int rank, Micros when) {
  kernel_.at(when, [this, rank] {
    if (!net_.is_up(host_of(rank))) return;
    if (rank == 0) server_ = std::make_unique<Server>(*this);
    at(rank).start();
  });
}

void Job::start_all() {
  for (int rank = 0; rank < ranks(); ++rank)
    if (starts_[static_cast<std::size_t>(rank)])
      start_rank(rank, kernel_.now() + kernel_.random.between(0, kSecond));
}

void Job::kill(int rank) {
  at(rank).kill();
  if (rank == 0 && server_) server_->kill();
}

void Job::pause(int rank, Micros duration) {
  at(rank).set_paused(true);
  if (rank == 0 && server_) server_->set_paused(true);
  kernel_.after(duration, [this, rank] {
    if (rank == 0 && server_) server_->set_paused(false);
    at(rank).set_paused(false);
  });
}

void Job::stall(int rank) {
  at(rank).stalled_ = true;
  set_blocking(at(rank), true);
}
void Job::block(int rank) {
  at(rank).cut_ = true;
  set_blocking(at(rank), true);
}
void Job::unblock(int rank) {
  at(rank).cut_ = false;
  set_blocking(at(rank), at(rank).stalled_ || at(rank).paused_ || !at(rank).alive_);
}

void Job::power_off(int host) {
  net_.power_off(host);
  for (int rank = 0; rank < ranks(); ++rank)
    if (host_of(rank) == host) kill(rank);
}

void Job::send(int from, int to, Bytes body) {
  at(from).message(to, std::move(body));
}
std::size_t Job::received(int rank) const {
  return at(rank).received_;
}

bool Job::is_alive(int rank) const {
  return at(rank).alive_;
}

std::int64_t Job::step() const {
  if (began_ < 0) return 0;
  return 1 + ((frozen_ >= 0 ? frozen_ : kernel_.now()) - began_) / kStep;
}

std::size_t Job::queued_bytes() const {
  return server_ ? server_->queued_bytes() : 0;
}

void Job::set_blocking(Rank& rank, bool blocks) {
  if (std::exchange(rank.blocks_, blocks) == blocks) return;
  blocking_ += blocks ? 1 : -1;
  if (blocking_ == 1 && blocks) frozen_ = kernel_.now();
  if (blocking_ == 0 && began_ >= 0) {
    began_ += kernel_.now() - frozen_;
    frozen_ = -1;
  }
}

// While a rank blocks, the others are inside the next collective, and no rank makes progress.
Activity Job::activity_of(const Rank& rank) const {
  if (began_ < 0) return {};
  const auto moved = (frozen_ >= 0 ? frozen_ : kernel_.now()) - began_;
  const bool waits = blocking_ > 0 && !rank.blocks_;
  return {.step = step(),
          .collectives = kCollectives * static_cast<std::uint64_t>(step()) + (waits ? 1 : 0),
          .inside = waits,
          .progress = static_cast<std::uint64_t>(moved / (100 * kMillisecond)) + (waits ? 1 : 0),
          .collective = Activity::name("all_gather"),
          .unit = Activity::name("layer 7")};
}

}  // namespace lockstep::sim
