#include "tests/sim/training.h"

#include <cstring>

#include "checkpoint/load.h"
#include "checkpoint/ranges.h"
#include "checkpoint/restore_plan.h"
#include "core/file.h"

namespace lockstep::sim {
namespace {

namespace fs = std::filesystem;

constexpr Micros kTimeOfStep = kSecond;
constexpr Micros kMostGrace = 3 * kSecond;  // of a process that continues after its job's end
constexpr std::int64_t kElements = 120;     // of the state

bool is_checkpoint_name(const fs::path& path) {
  const auto name = path.filename().string();
  return path.parent_path() == Training::kCheckpoints && name.starts_with("step-") &&
         name.find('.') == std::string::npos;
}
std::int64_t step_of(const fs::path& checkpoint) {
  return std::stoll(checkpoint.filename().string().substr(5));
}

}  // namespace

struct Training::Attempt {
  struct Meeting {
    std::vector<std::optional<std::string>> said{};
    int count = 0;
    std::vector<Fibers::Ticket> waiting{};
  };
  int number = 0;
  std::vector<int> hosts{};  // by rank
  std::vector<Process*> processes{};
  std::map<std::pair<std::string, int>, Meeting> meetings{};
  bool over = false;  // its ranks were told to end
};

// SimWorld passes texts between the processes of an attempt, in virtual time.
class Training::SimWorld final : public World {
 public:
  SimWorld(Training& run, Attempt& attempt, int rank, const Process& process)
      : run_(run), attempt_(attempt), rank_(rank), process_(process) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(attempt_.hosts.size()); }
  std::unique_ptr<Communicator> connect(const GroupConfig&) override { return nullptr; }
  std::vector<std::string> exchange(const std::string& mine) override {
    auto& meeting = next("exchange");
    say(meeting, mine);
    return all(meeting);
  }
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override {
    auto& meeting = next("gather " + tag);
    say(meeting, mine);
    return rank_ == 0 ? all(meeting) : std::vector<std::string>();
  }
  std::string broadcast(const std::string& tag, const std::string& text) override {
    auto& meeting = next("broadcast " + tag);
    if (rank_ == 0) say(meeting, text);
    wait(meeting, [&] { return meeting.said[0].has_value(); });
    return *meeting.said[0];
  }
  void abort(const std::string&, int) noexcept override {}

 private:
  using Meeting = Attempt::Meeting;
  Meeting& next(const std::string& tag) {
    auto& meeting = attempt_.meetings[{tag, rounds_[tag]++}];
    meeting.said.resize(attempt_.hosts.size());
    return meeting;
  }
  void say(Meeting& meeting, const std::string& text) {
    if (process_.dead) throw TransientError("killed");
    meeting.said[static_cast<std::size_t>(rank_)] = text;
    ++meeting.count;
    run_.kernel.after(run_.kernel.random.between(200, 3'000), [this, &meeting, &run = run_] {
      for (const auto& ticket : std::exchange(meeting.waiting, {}))
        run.fibers.wake(ticket);
    });
  }
  template <class Ready>
  void wait(Meeting& meeting, const Ready& ready) {
    while (!ready()) {
      if (process_.dead || attempt_.over) throw TransientError("the job ended");
      meeting.waiting.push_back(run_.fibers.ticket());
      run_.fibers.block();
    }
    if (process_.dead) throw TransientError("killed");
  }
  std::vector<std::string> all(Meeting& meeting) {
    wait(meeting, [&] { return meeting.count == size(); });
    std::vector<std::string> texts;
    for (const auto& text : meeting.said)
      texts.push_back(*text);
    return texts;
  }

  Training& run_;
  Attempt& attempt_;
  int rank_;
  const Process& process_;
  std::map<std::string, int> rounds_;
};

Training::Training(Kernel& its_kernel, TrainingOptions options)
    : kernel(its_kernel),
      fibers(its_kernel),
      disk(its_kernel, fibers, options.hosts),
      options_(std::move(options)),
      up_(static_cast<std::size_t>(options_.hosts), true) {
  make_directories(kCheckpoints);
  for (int host = 0; host < options_.hosts; ++host)
    make_directories(local_of(host));
  disk.renamed = [this](auto& process, const auto& operation) { check_rename(process, operation); };
}

Training::~Training() {
  done_ = true;
  for (auto& attempt : attempts_)
    attempt->over = true;
  fibers.kill_all();
}

// The samples of a step are its number.
std::uint64_t Training::chain(std::int64_t step) {
  while (std::ssize(chain_) <= step)
    chain_.push_back(
        mix64(chain_.back() ^ (kGolden64 * static_cast<std::uint64_t>(std::ssize(chain_)))));
  return chain_[static_cast<std::size_t>(step)];
}

void Training::start() {
  auto& attempt = *attempts_.emplace_back(std::make_unique<Attempt>());
  attempt.number = starts();
  for (int host = 0; host < options_.hosts; ++host)
    if (up_[static_cast<std::size_t>(host)]) attempt.hosts.push_back(host);
  kernel.trace("start ", attempt.number, " on ", attempt.hosts.size(), " hosts");
  for (const int host : attempt.hosts)
    attempt.processes.push_back(&fibers.start_process(host));
  for (std::size_t rank = 0; rank < attempt.hosts.size(); ++rank)
    fibers.start(*attempt.processes[rank], [this, &attempt, rank] {
      run_rank(attempt, static_cast<int>(rank), *attempt.processes[rank]);
    });
}

void Training::run_rank(Attempt& attempt, int rank, Process& process) {
  SimWorld world(*this, attempt, rank, process);
  try {
    train(attempt, rank, process, world);
    return;
  } catch (const std::exception& error) {
    if (!process.dead)
      kernel.trace("start ", attempt.number, ": rank ", rank, " failed: ", error.what());
  }
  if (!process.dead) fail_attempt(attempt, 100 * kMillisecond);
}

void Training::train(Attempt& attempt, int rank, Process& process, World& world) {
  std::optional<Epoch> epoch;
  if (rank == 0) epoch.emplace(Epoch::claim(kCheckpoints));
  const auto number = std::stoll(world.exchange(epoch ? str(epoch->number()) : "").front());
  if (!epoch) epoch.emplace(kCheckpoints, number);
  process.epoch = number;

  const auto first = kElements * rank / world.size();
  const auto count = kElements * (rank + 1) / world.size() - first;
  std::vector<std::uint32_t> memory(static_cast<std::size_t>(count));
  const Shape whole{kElements};
  const std::vector<StateSlice> state = {
      {.name = "w",
       .whole = whole,
       .split = unsplit(whole),
       .piece = {0, first, first + count},
       .local = Tensor{reinterpret_cast<std::byte*>(memory.data()), Shape{count}, DType::fp32,
                       Device{}}}};
  const auto fill = [&](std::int64_t step) {
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] =
          static_cast<std::uint32_t>(mix64(chain(step) + static_cast<std::uint64_t>(first) + i));
  };
  const int host = attempt.hosts[static_cast<std::size_t>(rank)];
  const HostRanks machine{.ranks = {rank}, .own_directory = options_.has_local};
  const auto local = local_of(host);
  Checkpointer of_run({kCheckpoints, &*epoch}, state, {.last = options_.keep_last}, &world);
  std::optional<Checkpointer> of_host;
  std::optional<CheckpointCopier> copier;
  if (options_.has_local) {
    of_host.emplace(local, state, Retention{.last = 2}, &world, machine);
    copier.emplace(world, local, CheckpointDirectory(kCheckpoints, &*epoch), machine.ranks);
  }

  // Resume, as RunCheckpoints does.
  const auto must_find = announced_;
  auto candidates = of_run.candidates();
  const auto newest_here = candidates.empty() ? -1 : candidates.front().step;
  std::vector<std::int64_t> shared_steps;
  for (const auto& candidate : candidates)
    shared_steps.push_back(candidate.step);
  if (copier) {
    std::vector<Checkpointer::Candidate> same, others;
    for (const auto& found : HostRestore(world, local, kCheckpoints, machine).find(shared_steps)) {
      if (found.was_copied && found.step > newest_here) continue;
      (found.is_shared ? same : others)
          .push_back({.step = found.step, .load = [&, found](auto accept) {
                        return restore(attempt, world, found, state, accept);
                      }});
    }
    candidates.insert(candidates.begin(), same.begin(), same.end());
    candidates.insert(candidates.end(), others.begin(), others.end());
  }
  std::ranges::stable_sort(candidates,
                           [](const auto& a, const auto& b) { return a.step > b.step; });
  const auto about = of_run.load_first(candidates, [](const Json&) {});
  std::int64_t step = about ? about->as_integer() : 0;
  if (rank == 0) kernel.trace("start ", attempt.number, " resumes at step ", step);
  if (about) {
    const auto loaded = memory;
    fill(step);
    if (loaded != memory) kernel.violate(3, "step ", step, " has another state");
  }
  // A stale start may see what its successor has not finished.
  if (rank == 0 && newest_epoch_ == number) {
    const bool from_shared = std::exchange(loses_copies, false);
    if (from_shared)
      announced_ = step;
    else if (step < must_find)
      kernel.violate(2, "step ", must_find, " was announced, and the next start found step ", step);
    if (from_shared && step != std::max<std::int64_t>(newest_here, 0))
      kernel.violate(2, "step ", step, " is loaded, and not step ", newest_here,
                     " of the shared directory");
    const int interval = (from_shared ? 2 : 1) * options_.save_every;  // a second save is copied
    if (!storage_is_faulty && last_step_ - step > interval + 1)
      kernel.violate(6, last_step_ - step, " steps are repeated");
  }

  while (step < options_.goal) {
    world.exchange("");
    fibers.sleep(kTimeOfStep);
    if (process.dead) return;
    fill(++step);
    if (rank == 0 && newest_epoch_ == number) last_step_ = std::max(last_step_, step);
    if (step % options_.save_every != 0) continue;
    try {
      if (of_host) {
        int act = 0;
        of_host->save(step, Json(step), {}, [&] {
          if (++act == 3) copy_to_partner(attempt.hosts, world, step, local);
        });
        if (rank == 0) announce(step, *epoch);
        if (step % (2 * options_.save_every) == 0)
          copier->copy(step, {.last = options_.keep_last}, {});
      } else {
        of_run.save(step, Json(step));
        if (rank == 0) announce(step, *epoch);
      }
    } catch (const DataError& error) {  // training continues, as the product does
      if (rank == 0) kernel.trace("step ", step, " is not saved: ", error.what());
      epoch->check();
    }
  }
  if (rank == 0 && !process.dead && newest_epoch_ == number) done_ = true;
}

// HostRestore::load() gets ranges of other hosts by sockets. Here each rank reads their disks; the
// plan and the ranges are the product's.
Json Training::restore(const Attempt& attempt, World& world, const HostRestore::Found& found,
                       const std::vector<StateSlice>& state,
                       FunctionRef<void(const Json& about)> accept) const {
  const AllRanks ranks(&world, "restore");
  Json about;
  ranks.act_if(true, [&] {
    std::vector<HeldFiles> held;
    fs::path any;
    for (std::size_t host = 0; host < attempt.hosts.size(); ++host) {
      const auto path = checkpoint_path(local_of(attempt.hosts[host]), found.step);
      const auto id = manifest_id(path);
      if (!id || id->hash != found.save) continue;
      any = path;
      const auto manifest = manifest_of(path);
      auto& files = held.emplace_back(HeldFiles{.host = static_cast<int>(host),
                                                .step = found.step,
                                                .save = id->hash,
                                                .files_in_all = manifest.files.size(),
                                                .files = {}});
      for (std::size_t f = 0; f < manifest.files.size(); ++f)
        if (path_exists(path / manifest.files[f].name)) files.files.push_back(f);
    }
    if (held.empty()) throw DataError("no host has the save any more");
    std::set<std::pair<std::int64_t, std::string>> shared;
    if (found.is_shared) shared.emplace(found.step, found.save);
    const auto plan = plan_restore(held, shared).front();
    const auto manifest = manifest_of(any);
    accept(manifest.about);
    for (const auto& range : needed_ranges(any.string(), manifest, state, Match::exact)) {
      const int source = plan.source_of(range.file(), world.rank());
      if (source == RestorePlan::kNowhere) throw DataError("no host has a file of the save");
      const auto directory =
          source == RestorePlan::kShared
              ? kCheckpoints
              : fs::path(local_of(attempt.hosts[static_cast<std::size_t>(source)]));
      const auto file =
          open_checked(checkpoint_path(directory, found.step), manifest.files[range.file()]);
      PieceReader reader;
      const auto hash = load_range(range, state[range.target], [&](auto use) {
        reader.read(file, range.offset(), range.bytes(), use);
      });
      if (range.is_whole())
        check_hash(file, range.offset(), range.tensor->name, range.slice->hash, hash);
    }
    about = manifest.about;
  });
  return about;
}

// Partners does this by sockets: each host gets the files of the host whose partner it is.
void Training::copy_to_partner(const std::vector<int>& hosts, World& world, std::int64_t step,
                               const fs::path& local) const {
  const AllRanks ranks(&world, "partners");
  const auto count = hosts.size();
  if (count == 1) return;
  ranks.act_if(true, [&] {
    std::size_t giver = 0;
    while (options_.partner(giver, count) != static_cast<std::size_t>(world.rank()))
      ++giver;
    const auto name = rank_file(static_cast<int>(giver), ".safetensors");
    const auto from = UnfinishedCheckpoint::path_of(local_of(hosts[giver]), step) / name;
    const auto bytes = read_text(from, std::int64_t{1} << 20);
    const auto to = UnfinishedCheckpoint::path_of(local, step) / name;
    RangeWriter writer(to, to, RangeWriter::Way::direct, RangeWriter::Start::empty);
    writer.write(std::as_bytes(std::span(bytes)));
    writer.commit();
  });
}

// Rank 0 reports that a step is saved.
void Training::announce(std::int64_t step, const Epoch& epoch) {
  const auto* process = Fibers::current();
  if (process->dead) return;
  kernel.trace("step ", step, " is saved by epoch ", epoch.number());
  kernel.note(static_cast<std::uint64_t>(step));
  announced_ = std::max(announced_, step);
  // If another start has taken over, the checkpoint must be in its list.
  if (options_.has_local || newest_epoch_ == epoch.number()) return;
  kernel.after(0, [this, step] {
    const auto counted = checkpoint_steps(kCheckpoints);
    if (std::ranges::find(counted, step) == counted.end() &&
        (counted.empty() || counted.back() < step))
      kernel.violate(2, "step ", step, " was announced and does not count");
  });
}

void Training::check_rename(Process& process, const Files::Operation& operation) {
  const fs::path from = operation.path, to = operation.to;
  if (to.parent_path() == kCheckpoints / "epochs" && to.extension().empty()) {
    newest_epoch_ = std::stoll(to.filename().string());
    claimed_at_ = kernel.now();
    process.epoch = newest_epoch_;
    kernel.trace("process ", process.number, " has epoch ", newest_epoch_);
    return;
  }
  if (process.epoch == 0 || process.epoch >= newest_epoch_) return;
  if (is_checkpoint_name(from) && operation.issued > claimed_at_)
    kernel.violate(1, "epoch ", process.epoch, " removed ", from.string(), " after epoch ",
                   newest_epoch_, " had begun");
  if (is_checkpoint_name(to) && EpochRecord::newest(kCheckpoints)->counts(step_of(to), to))
    kernel.violate(1, "epoch ", process.epoch, " saved ", to.string(), " in epoch ", newest_epoch_);
}

std::size_t Training::ranks() const {
  return attempts_.back()->hosts.size();
}

Process* Training::rank_0() {
  return attempts_.empty() ? nullptr : attempts_.back()->processes.front();
}

// Another start follows, unless one is planned already.
void Training::fail_attempt(Attempt& attempt, Micros after) {
  kernel.after(after, [this, &attempt] { end(attempt); });
}

void Training::end(Attempt& attempt) {
  if (std::exchange(attempt.over, true)) return;
  kernel.trace("start ", attempt.number, " ends");
  for (auto* process : attempt.processes)
    if (!process->paused) fibers.kill(*process);
  if (done_ || std::exchange(waits_, true)) return;
  kernel.after(kernel.random.between(200, 2'000) * kMillisecond, [this] {
    waits_ = false;
    const bool any = std::ranges::find(up_, true) != up_.end();
    const bool newest_is_over = attempts_.back()->over;
    if (!done_ && any && newest_is_over) start();
  });
}

void Training::kill(Process& process) {
  if (process.dead) return;
  kernel.trace("process ", process.number, " is killed");
  fibers.kill(process);
  for (auto& attempt : attempts_)
    if (std::ranges::find(attempt->processes, &process) != attempt->processes.end())
      fail_attempt(*attempt, kernel.random.between(50, 300) * kMillisecond);
}

// After five seconds the others end the job. The process ends soon after it continues.
void Training::pause(Process& process, Micros time) {
  if (process.dead || process.paused) return;
  kernel.trace("process ", process.number, " stops for ", time / kMillisecond, " ms");
  fibers.pause(process, time);
  for (auto& attempt : attempts_)
    if (std::ranges::find(attempt->processes, &process) != attempt->processes.end()) {
      if (time > 5 * kSecond) fail_attempt(*attempt, kernel.random.between(5'000, 6'000) * 1'000);
      kernel.after(time + kernel.random.between(0, kMostGrace), [this, &process, &run = *attempt] {
        if (run.over) fibers.kill(process);
      });
    }
}

void Training::power_off(int host, Micros time, bool loses_disk) {
  kernel.trace("host ", host, " has no power", loses_disk ? ", and loses its disk" : "");
  up_[static_cast<std::size_t>(host)] = false;
  for (auto& attempt : attempts_)
    for (auto* process : attempt->processes)
      if (process->host == host && !process->dead) {
        fibers.kill(*process);
        fail_attempt(*attempt, kernel.random.between(5'000, 6'000) * kMillisecond);
      }
  disk.lose_power(host);
  if (loses_disk) {
    disk.lose_disk(host);
    make_directories(local_of(host));
  }
  kernel.after(time, [this, host] {
    up_[static_cast<std::size_t>(host)] = true;
    if (!done_ && attempts_.back()->over && !waits_) start();
  });
}

void Training::lose_shared_power() {
  kernel.trace("the storage loses power");
  for (auto& attempt : attempts_)
    for (auto* process : attempt->processes)
      kill(*process);
  disk.lose_shared_power();
}

}  // namespace lockstep::sim
