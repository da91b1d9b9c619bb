#include "launch/watch/curve.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "launch/watch/line.h"

namespace lockstep {

namespace {

double mean_loss(const Bucket& bucket) {
  return bucket[Metric::loss].mean();
}

// Drops the first buckets while their loss is far above the rest (above the third quartile by 1.5
// times the interquartile range): a steep fall at the start would leave no rows for later losses. A
// loss that rises later is kept.
std::span<const Bucket> without_fall(std::span<const Bucket> buckets) {
  std::vector<double> sorted;
  for (const Bucket& bucket : buckets)
    if (const double mean = mean_loss(bucket); std::isfinite(mean)) sorted.push_back(mean);
  if (sorted.empty()) return buckets;
  std::sort(sorted.begin(), sorted.end());
  const auto quarter = sorted.size() / 4;
  const double low = sorted[quarter], high = sorted[sorted.size() - 1 - quarter];
  const double fence = high + 1.5 * (high - low);
  const auto first =
      std::ranges::find_if(buckets, [&](const Bucket& b) { return mean_loss(b) <= fence; });
  return {first, buckets.end()};
}

}  // namespace

// Range of the finite means, without a fall at the start.
Curve::Range Curve::range_of(const std::vector<Bucket>& buckets) {
  const auto shown = without_fall(buckets);
  std::vector<double> means;
  for (const Bucket& bucket : shown)
    if (const double mean = mean_loss(bucket); std::isfinite(mean)) means.push_back(mean);
  if (means.empty()) return {};
  std::sort(means.begin(), means.end());
  const auto cut = means.size() / 200;  // drops outliers, which would hide the rest
  Range range{.low = means[cut], .high = means[means.size() - 1 - cut]};
  for (const Bucket& bucket : shown)
    if (const double mean = bucket[Metric::validation_loss].mean(); std::isfinite(mean))
      range = {.low = std::min(range.low, mean), .high = std::max(range.high, mean)};
  if (range.high <= range.low) {
    const double around = std::max(std::abs(range.low) / 20, 1e-6);
    range = {.low = range.low - around, .high = range.high + around};
  }
  return range;
}

Curve::Curve(const Buckets& steps, int columns, int rows)
    : buckets_(steps.all()),
      range_(range_of(buckets_)),
      labels_(std::max(width_of(loss_text(range_.low)), width_of(loss_text(range_.high))) + 1),
      columns_(columns - labels_),
      rows_(rows),
      few_(evaluations(buckets_) <= columns / 8),
      loss_(columns_, rows),
      validation_(columns_, rows) {
  if (buckets_.empty()) return;
  draw(loss_, Metric::loss, true);
  draw(validation_, Metric::validation_loss, false);
  if (few_) return;
  draw(validation_, Metric::validation_loss, true);
  loss_.add(validation_);
}

std::vector<std::string> Curve::lines(Style style) const {
  const auto dots = [&](int column, int row) {
    return style.utf8 || loss_.is_empty(column, row) ? loss_.character(column, row) : "*";
  };
  std::vector<std::string> all;
  for (int row = 0; row < rows_; ++row) {
    Line line(labels_ + columns_, style);
    const auto label = row == 0           ? loss_text(range_.high)
                       : row == rows_ - 1 ? loss_text(range_.low)
                                          : std::string();
    line.add(right(label, labels_ - 1) + " ", kFaint);
    for (int column = 0; column < columns_; ++column)
      if (validation_.is_empty(column, row))
        line.add(dots(column, row), kCurve);
      else
        line.add(few_ ? "o" : dots(column, row), kValidation);
    all.push_back(line.text());
  }
  Line steps(labels_ + columns_, style);
  const auto first = std::to_string(buckets_.front().first_step);
  const auto last = std::to_string(buckets_.back().last_step);
  steps.gap(labels_).add(first, kFaint);
  const auto above = said_above();
  int left = columns_ - width_of(first) - width_of(last);
  if (width_of(above) < left) {
    steps.add(above, kFaint);
    left -= width_of(above);
  }
  steps.gap(left).add(last, kFaint);
  all.push_back(steps.text());
  return all;
}

int Curve::evaluations(const std::vector<Bucket>& buckets) {
  return static_cast<int>(std::ranges::count_if(
      buckets, [](const Bucket& b) { return b[Metric::validation_loss].count > 0; }));
}

std::string Curve::said_above() const {
  double most = range_.high;
  for (const Bucket& bucket : buckets_)
    if (const double mean = mean_loss(bucket); std::isfinite(mean)) most = std::max(most, mean);
  return most > range_.high ? str("  above: up to ", loss_text(most)) : "";
}

int Curve::x_of(const Bucket& bucket) const {
  const auto first = buckets_.front().first_step, last = buckets_.back().last_step;
  const auto middle = bucket.first_step + (bucket.last_step - bucket.first_step) / 2;
  const double share = static_cast<double>(middle - first) /
                       static_cast<double>(std::max(last - first, std::int64_t{1}));
  return static_cast<int>(std::lround(share * (loss_.width() - 1)));
}

int Curve::y_of(double value) const {
  const double span = range_.high - range_.low;
  const double share = std::isfinite(span) ? (range_.high - value) / span : 0;
  return static_cast<int>(std::lround(std::clamp(share, -1.0, 2.0) * (loss_.height() - 1)));
}

void Curve::draw(Braille& to, Metric metric, bool joined) const {
  bool has = false;
  int x = 0, y = 0;
  for (const Bucket& bucket : buckets_) {
    const double value = bucket[metric].mean();
    if (!std::isfinite(value)) {
      has = has && !joined;
      continue;
    }
    const int next_x = x_of(bucket), next_y = y_of(value);
    if (joined && has)
      to.line(x, y, next_x, next_y);
    else
      to.dot(next_x, next_y);
    x = next_x, y = next_y, has = true;
  }
}

}  // namespace lockstep
