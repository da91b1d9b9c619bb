#include "launch/report/buckets.h"

#include <cmath>

namespace lockstep {
namespace {

void add_to(Bucket::Values& a, const Bucket::Values& b) {
  if (b.count == 0) return;
  a.low = std::min(a.low, b.low);
  a.high = std::max(a.high, b.high);
  a.sum += b.sum;
  a.count += b.count;
  a.last = b.last;
}

// Adds the lines of b, which follow those of a.
void add_to(Bucket& a, const Bucket& b) {
  if (a.lines == 0) a.first_step = b.first_step;
  a.last_step = b.last_step;
  a.lines += b.lines;
  for (std::size_t i = 0; i < kMetrics; ++i)
    add_to(a.values[i], b.values[i]);
}

Bucket bucket_of(const StepMetrics& line) {
  Bucket bucket{.first_step = line.step, .last_step = line.step, .lines = 1, .values = {}};
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (const double v = line.values[i]; !std::isnan(v))
      bucket.values[i] = {.low = v, .high = v, .sum = v, .count = 1, .last = v};
  return bucket;
}

}  // namespace

void Buckets::add(const StepMetrics& line) {
  if (buckets_.empty() || buckets_.back().lines == lines_each_) {
    if (buckets_.size() == most_) {
      for (std::size_t i = 0; i < most_; i += 2) {
        add_to(buckets_[i], buckets_[i + 1]);
        buckets_[i / 2] = buckets_[i];
      }
      buckets_.resize(most_ / 2);
      lines_each_ *= 2;
    }
    buckets_.emplace_back();
  }
  add_to(buckets_.back(), bucket_of(line));
}

double Buckets::mean(Metric metric) const {
  Bucket::Values all;
  for (const Bucket& bucket : buckets_)
    add_to(all, bucket[metric]);
  return all.mean();
}

}  // namespace lockstep
