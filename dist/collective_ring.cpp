#include "dist/collective_ring.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/progress.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kShown = 64;  // of the collectives left

}  // namespace

Activity::Name Activity::name(std::string_view text) {
  Name name{};
  text.copy(name.data(), name.size() - 1);
  return name;
}

std::string Activity::text(const Name& name) {
  return {name.begin(), std::find(name.begin(), name.end(), '\0')};
}

void CollectiveRing::begin_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  unit_ = {};
}

void CollectiveRing::about(std::string_view unit) {
  const std::lock_guard lock(mutex_);
  unit_ = Activity::name(unit);
}

CollectiveRing::Aside::Aside(CollectiveRing* ring, std::string_view unit) : ring_(ring) {
  if (ring_ == nullptr) return;
  const std::lock_guard lock(ring_->mutex_);
  before_ = std::exchange(ring_->unit_, Activity::name(unit));
}

CollectiveRing::Aside::~Aside() {
  if (ring_ == nullptr) return;
  const std::lock_guard lock(ring_->mutex_);
  ring_->unit_ = before_;
}

std::uint64_t CollectiveRing::begin(std::string_view collective, std::string_view group,
                                    std::int64_t bytes, Event before) {
  const std::lock_guard lock(mutex_);
  advance();  // returns events to their streams, so that after a few steps no new events are needed
  auto& entry = at(++begun_);
  entry = {};
  entry.number = begun_;
  entry.step = step_;
  entry.bytes = bytes;
  entry.collective = Activity::name(collective);
  entry.group = Activity::name(group);
  entry.unit = unit_;
  entry.before = std::move(before);
  // An overwritten entry is lost: the host is far ahead of its device.
  first_open_ = std::max(first_open_, begun_ < kEntries ? 1 : begun_ - kEntries + 1);
  return begun_;
}

void CollectiveRing::add_bytes(std::uint64_t number, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (at(number).number == number) at(number).bytes += bytes;
}

void CollectiveRing::end(std::uint64_t number, Event after) {
  const std::lock_guard lock(mutex_);
  auto& entry = at(number);
  if (entry.number != number) return;
  entry.after = std::move(after);
  entry.enqueued = true;
}

void CollectiveRing::forget_events() {
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries_) {
    entry.before = {};
    entry.after = {};
  }
}

void CollectiveRing::look(Entry& entry) {
  if (!entry.entered && entry.before.is_done()) {
    entry.entered = true;
    made_progress();
  }
  if (!entry.entered || entry.left || !entry.enqueued || !entry.after.is_done()) return;
  entry.left = true;
  entry.before = {};
  entry.after = {};
  made_progress();
}

void CollectiveRing::advance() {
  for (; first_open_ <= begun_; ++first_open_) {
    auto& entry = at(first_open_);
    look(entry);
    if (!entry.left) return;
  }
}

Activity CollectiveRing::activity() {
  const std::lock_guard lock(mutex_);
  advance();
  Activity now;
  now.step = step_;
  now.progress = progress_made();
  const bool inside = first_open_ <= begun_ && at(first_open_).entered;
  now.collectives = inside ? first_open_ : first_open_ - 1;
  now.inside = inside;
  if (now.collectives == 0) return now;
  const auto& last = at(now.collectives);
  now.collective =
      Activity::name(str(Activity::text(last.collective), " (", Activity::text(last.group), ")"));
  now.unit = last.unit;
  return now;
}

std::string CollectiveRing::in_words() {
  const std::lock_guard lock(mutex_);
  advance();
  const auto kept = begun_ < kEntries ? begun_ : kEntries;
  const auto oldest = begun_ - kept + 1;
  const auto first = std::max(oldest, first_open_ > kShown ? first_open_ - kShown : 1);
  std::vector<std::vector<std::string>> rows{
      {"number", "step", "state", "collective", "group", "unit", "bytes"}};
  for (auto number = first; number <= begun_; ++number) {
    auto& entry = at(number);
    look(entry);
    const char* state = entry.left ? "left" : entry.entered ? "inside" : "enqueued";
    rows.push_back({str(number), str(entry.step), state, Activity::text(entry.collective),
                    Activity::text(entry.group), Activity::text(entry.unit), str(entry.bytes)});
  }
  return text_table(rows);
}

}  // namespace lockstep
