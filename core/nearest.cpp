#include "core/nearest.h"

#include <algorithm>
#include <vector>

namespace lockstep {

int edit_distance(std::string_view a, std::string_view b) {
  const auto columns = b.size() + 1;
  std::vector<int> before(columns), last(columns), row(columns);  // rows of the distance matrix
  for (std::size_t j = 0; j < columns; ++j)
    last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

namespace {

std::string_view last_part(std::string_view key) {
  return key.substr(key.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  int fewest = std::max(2, static_cast<int>(last_part(word).size()) / 3) + 1;
  for (const auto& candidate : candidates) {
    const int elsewhere = edit_distance(last_part(word), last_part(candidate)) + 1;
    const int edits = std::min(edit_distance(word, candidate), elsewhere);
    if (edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
