#include "data/remote/shard_cache.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRangeBytes = 8 * PartFile::kBlockBytes;  // bytes of a request
constexpr auto kSoon = std::chrono::milliseconds(50);  // retry: another process fetches it
constexpr auto kLater = std::chrono::seconds(1);       // retry: the cache is full
constexpr auto kMuchLater = std::chrono::seconds(30);  // retry: failed, no thread waits for it

Descriptor copy_of(const Descriptor& file) {
  Descriptor copy(fcntl(file.number(), F_DUPFD_CLOEXEC, 0));
  if (!copy) fail_io("a shard of the cache", "cannot open", errno);
  return copy;
}

}  // namespace

// A shard that is being fetched. mutex_ of the cache protects all members except the work of `part`
// and the hasher, which belongs to the thread that set is_hashing.
struct ShardCache::Job {
  enum class State : std::uint8_t { queued, beginning, fetching, finishing, done };

  CachedShard shard;
  State state = State::queued;
  Clock::time_point not_before{}, no_room_since{};
  int waiting = 0;  // threads in open()
  std::unique_ptr<PartFile> part;
  std::vector<ByteRange> left;  // still to be requested, last one first
  int running = 0;              // connections
  bool one_stream = false;      // the server ignores ranges
  bool was_wrong = false;       // its hash was wrong once
  bool is_hashing = false;
  Hasher hasher;
  std::int64_t hashed = 0;  // bytes
  std::exception_ptr error;

  void ask_for_missing() {
    left.clear();
    const auto missing = part->missing();
    if (one_stream && !missing.empty()) left.push_back({missing.front().first, shard.bytes});
    if (!one_stream)
      for (const auto& range : missing)
        for (auto first = range.first; first < range.end; first += kRangeBytes)
          left.push_back({first, std::min(first + kRangeBytes, range.end)});
    std::reverse(left.begin(), left.end());
  }
  std::int64_t front() const {  // bytes before the first gap
    const auto missing = part->missing();
    return missing.empty() ? shard.bytes : missing.front().first;
  }
};

ShardCache::ShardCache(const Config& config, Remote& remote)
    : config_(config), remote_(remote), directory_(config.directory, config.most_bytes) {
  LOCKSTEP_CHECK(config.connections > 0, "a cache of ", config.connections, " connections");
  try {
    for (int i = 0; i < config.connections; ++i)
      threads_.push_back(start_thread([this] { work(); }));
  } catch (...) {
    end();
    throw;
  }
}

ShardCache::~ShardCache() {
  end();
}

void ShardCache::end() {
  stop();
  for (auto& thread : threads_)
    thread.join();
}

void ShardCache::stop() {
  const std::scoped_lock lock(mutex_);
  stop_ = true;
  has_work_.notify_all();
  has_changed_.notify_all();
}

ShardCache::Counts ShardCache::counts() const {
  const std::scoped_lock lock(mutex_);
  auto counts = counts_;
  counts.fetched_bytes = fetched_bytes_;
  counts.evicted = directory_.evicted();
  if (busy_ > 0)
    counts.fetching_seconds += std::chrono::duration<double>(Clock::now() - busy_since_).count();
  return counts;
}

void ShardCache::count_connection(int change) {
  if (busy_ == 0) busy_since_ = Clock::now();
  busy_ += change;
  if (busy_ == 0)
    counts_.fetching_seconds += std::chrono::duration<double>(Clock::now() - busy_since_).count();
}

Descriptor ShardCache::open(const CachedShard& shard) {
  std::unique_lock lock(mutex_);
  const auto begin = Clock::now();
  bool was_there = true;
  for (;;) {
    if (stop_) throw AccessError(str(shard.url, ": the shard cache has stopped"));
    auto file = copy_of_held(shard.hash);
    if (!file) {
      file = directory_.open(shard.hash, shard.bytes);
      if (file) hold(shard.hash, copy_of(file), /*is_wanted=*/true);
    }
    if (file) {
      ++(was_there ? counts_.hits : counts_.misses);
      if (!was_there)
        counts_.waited_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      return file;
    }
    was_there = false;
    there_.erase(shard.hash);
    auto& job = job_of(shard);
    if (job.state == Job::State::done) {  // the shard was already removed
      job.state = Job::State::queued;
      job.error = nullptr;
    }
    if (job.waiting++ == 0 && job.state == Job::State::queued) job.not_before = {};
    has_work_.notify_all();
    has_changed_.wait(lock, [&] { return stop_ || job.state == Job::State::done; });
    const auto error = job.error;
    if (--job.waiting == 0 && job.state == Job::State::done) jobs_.erase(shard.hash);
    if (error) std::rethrow_exception(error);
  }
}

void ShardCache::set_ahead(const std::vector<CachedShard>& ahead) {
  const std::scoped_lock lock(mutex_);
  ahead_ = ahead;
  places_.clear();
  for (std::size_t i = 0; i < ahead_.size(); ++i)
    places_.emplace(ahead_[i].hash, i);
  std::erase_if(jobs_, [&](const auto& entry) {
    const auto& job = *entry.second;
    return job.state == Job::State::queued && job.waiting == 0 && !is_ahead(entry.first);
  });
  std::erase_if(there_, [&](const auto& hash) { return !is_ahead(hash); });
  for (const auto& shard : ahead_)
    if (held_.count(shard.hash) == 0 && there_.count(shard.hash) == 0) job_of(shard);
  has_work_.notify_all();
}

ShardCache::Job& ShardCache::job_of(const CachedShard& shard) {
  auto& job = jobs_[shard.hash];
  if (!job) {
    job = std::make_unique<Job>();
    job->shard = shard;
  }
  return *job;
}

bool ShardCache::is_ahead(const std::string& hash) const {
  return places_.count(hash) != 0;
}

// If too many are open, closes one: the least recently used one that is not ahead, else the one
// farthest ahead. Does not close this one if it is needed now.
void ShardCache::hold(const std::string& hash, Descriptor file, bool is_wanted) {
  if (is_ahead(hash)) there_.insert(hash);
  held_[hash] = {std::move(file), ++uses_};
  if (held_.size() <= kMostHeld) return;
  const auto rank = [&](const auto& held) {  // the smallest rank is closed
    const auto place = places_.find(held.first);
    if (is_wanted && held.first == hash) return std::pair(2, std::int64_t{0});
    return place == places_.end() ? std::pair(0, held.second.used)
                                  : std::pair(1, -static_cast<std::int64_t>(place->second));
  };
  held_.erase(std::min_element(held_.begin(), held_.end(),
                               [&](const auto& a, const auto& b) { return rank(a) < rank(b); }));
}

Descriptor ShardCache::copy_of_held(const std::string& hash) {
  const auto found = held_.find(hash);
  if (found == held_.end()) return {};
  found->second.used = ++uses_;
  auto copy = copy_of(found->second.file);
  futimens(copy.number(), nullptr);  // marks it as used now
  return copy;
}

// Whether a shard may be removed: all except those being fetched and the first `kept` ahead.
bool ShardCache::may_go(const std::string& hash, std::size_t kept) {
  const std::scoped_lock lock(mutex_);
  const auto place = places_.find(hash);
  if (jobs_.count(hash) != 0 || (place != places_.end() && place->second < kept)) return false;
  held_.erase(hash);
  there_.erase(hash);
  return true;
}

// ---- the threads ----

void ShardCache::work() {
  RemoteReader reader(remote_, stop_);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::vector<Job*> order;
    for (const auto& [hash, job] : jobs_)
      if (job->waiting > 0 || !is_ahead(hash)) order.push_back(job.get());
    for (const auto& shard : ahead_)
      if (const auto found = jobs_.find(shard.hash); found != jobs_.end())
        order.push_back(found->second.get());
    const auto worked =
        std::any_of(order.begin(), order.end(), [&](Job* job) { return step(*job, reader, lock); });
    if (worked) continue;
    if (order.empty())
      has_work_.wait(lock);
    else
      has_work_.wait_for(lock, kSoon);
  }
}

// Does some work of the job if possible; returns whether it did. The job may be gone then.
bool ShardCache::step(Job& job, RemoteReader& reader, std::unique_lock<std::mutex>& lock) {
  if (job.state == Job::State::queued && job.not_before <= Clock::now()) {
    begin(job, lock);
    return true;
  }
  if (job.state == Job::State::fetching && !job.left.empty()) {
    fetch(job, reader, lock);
    return true;
  }
  return false;
}

void ShardCache::begin(Job& job, std::unique_lock<std::mutex>& lock) {
  using Taken = CacheDirectory::Taken;
  job.state = Job::State::beginning;
  const bool wanted = job.waiting > 0;
  auto kept = ahead_.size();
  Taken taken = Taken::no_room;
  Descriptor whole;
  std::exception_ptr error;
  lock.unlock();
  try {
    // A shard that a thread waits for displaces shards ahead, last one first.
    for (;;) {
      taken = directory_.take(
          job.shard.hash, job.shard.bytes,
          [&](const std::string& hash) { return may_go(hash, kept); }, job.part);
      if (taken != Taken::no_room || !wanted || kept == 0) break;
      kept -= std::max<std::size_t>(kept / 8, 1);
    }
    if (taken == Taken::whole) whole = directory_.open(job.shard.hash, job.shard.bytes);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) return fail(job, error);
  job.state = Job::State::queued;
  const auto now = Clock::now();
  if (taken == Taken::here) {
    job.state = Job::State::fetching;
    job.hasher = Hasher();
    job.hashed = 0;
    job.ask_for_missing();
    check(job, lock);
  } else if (whole) {
    keep_whole(job, std::move(whole));
  } else if (taken == Taken::no_room) {
    if (job.no_room_since == Clock::time_point{} || !wanted) job.no_room_since = now;
    if (now - job.no_room_since > std::chrono::duration<double>(config_.room_seconds))
      return fail(job, std::make_exception_ptr(AccessError(str(
                           directory_.path().string(), ": not enough space for a shard of ",
                           job.shard.bytes, " bytes: the cache limit is ", directory_.most_bytes(),
                           " bytes, and all cached shards are in use; raise data.cache_bytes"))));
    job.not_before = now + (wanted ? Clock::duration(kSoon) : Clock::duration(kLater));
  } else {
    job.not_before = now + kSoon;
  }
  has_changed_.notify_all();
  has_work_.notify_all();
}

void ShardCache::fetch(Job& job, RemoteReader& reader, std::unique_lock<std::mutex>& lock) {
  const auto range = job.left.back();
  job.left.pop_back();
  ++job.running;
  count_connection(1);
  const bool may_skip = job.one_stream;
  std::exception_ptr error;
  bool has_ranges = true;
  lock.unlock();
  try {
    has_ranges = reader.read(job.shard.url, range, job.shard.bytes, may_skip,
                             [&](std::span<const std::byte> bytes, std::int64_t offset) {
                               job.part->write(bytes, offset);
                               fetched_bytes_ += static_cast<std::int64_t>(bytes.size());
                             });
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  count_connection(-1);
  if (!error) hash_front(job, lock);
  --job.running;
  if (error && !job.error) job.error = error;
  job.one_stream |= !has_ranges;
  if (job.error || job.one_stream) job.left.clear();
  check(job, lock);
}

// Continues the job after a connection has finished its range, or if none is needed.
void ShardCache::check(Job& job, std::unique_lock<std::mutex>& lock) {
  if (job.running > 0 || !job.left.empty()) return;
  if (job.error) return fail(job, std::exchange(job.error, nullptr));
  job.ask_for_missing();
  if (job.left.empty()) finish(job, lock);
}

// Hashes the bytes before the first gap while other threads fetch.
void ShardCache::hash_front(Job& job, std::unique_lock<std::mutex>& lock) {
  if (job.is_hashing) return;
  job.is_hashing = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    std::vector<std::byte> piece(static_cast<std::size_t>(PartFile::kBlockBytes));
    for (const auto front = job.front(); job.hashed < front && !stop_;) {
      const auto count = std::min(PartFile::kBlockBytes, front - job.hashed);
      const auto bytes = std::span(piece).first(static_cast<std::size_t>(count));
      job.part->read(bytes, job.hashed);
      job.hasher.add(bytes);
      job.hashed += count;
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  job.is_hashing = false;
  if (error && !job.error) job.error = error;
}

void ShardCache::finish(Job& job, std::unique_lock<std::mutex>& lock) {
  job.state = Job::State::finishing;
  hash_front(job, lock);
  if (stop_) return;
  auto error = std::exchange(job.error, nullptr);
  Descriptor whole;
  bool is_right = false;
  lock.unlock();
  try {
    const auto found = job.hasher.hex();
    is_right = found == job.shard.hash;
    if (!error && is_right) whole = job.part->keep();
    if (!error && !is_right && job.was_wrong) {
      job.part->remove();
      throw DataError(str(job.shard.url, ": the XXH3-128 of its bytes is ", found,
                          ", dataset.json specifies ", job.shard.hash,
                          "; it was fetched twice. Check that the object belongs to the same "
                          "dataset as dataset.json"));
    }
    if (!error && !is_right) job.part->forget();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) return fail(job, error);
  if (!is_right) {
    log_own_warning(
        job.shard.url,
        ": the XXH3-128 of the fetched bytes differs from dataset.json; fetching again");
    job.was_wrong = true;
    job.state = Job::State::fetching;
    job.hasher = Hasher();
    job.hashed = 0;
    job.ask_for_missing();
    has_work_.notify_all();
    return;
  }
  job.part.reset();
  ++counts_.fetched;
  keep_whole(job, std::move(whole));
  has_changed_.notify_all();
}

// Ends a job; threads that wait for it still find the file.
void ShardCache::keep_whole(Job& job, Descriptor file) {
  hold(job.shard.hash, std::move(file), job.waiting > 0);
  job.state = Job::State::done;
  if (job.waiting == 0) jobs_.erase(std::string(job.shard.hash));
}

void ShardCache::fail(Job& job, std::exception_ptr error) {
  job.part.reset();  // received bytes stay for the next attempt
  job.left.clear();
  job.was_wrong = false;
  if (job.waiting > 0) {
    job.error = std::move(error);
    job.state = Job::State::done;
  } else if (!is_ahead(job.shard.hash)) {
    jobs_.erase(std::string(job.shard.hash));
  } else {
    if (!stop_) try {
        std::rethrow_exception(error);
      } catch (const std::exception& reason) {
        log_own_warning("cannot prefetch a shard yet: ", reason.what());
      }
    job.state = Job::State::queued;
    job.not_before = Clock::now() + kMuchLater;
  }
  has_changed_.notify_all();
}

}  // namespace lockstep
