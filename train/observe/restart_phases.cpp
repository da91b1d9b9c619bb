#include "train/observe/restart_phases.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace lockstep {
namespace {

// Takes `wanted` seconds from those that are left, or as many as there are.
double take(double wanted, double& left) {
  const double taken = std::min(std::max(wanted, 0.0), left);
  left -= taken;
  return taken;
}

std::string time_in_words(double seconds) {
  return seconds < 60 ? human_seconds(seconds) : human_eta(seconds);
}

}  // namespace

void RestartPhases::add_gap(double seconds, const RestartSeconds& measured) {
  double left = std::max(seconds, 0.0);
  prepare += take(measured.prepare, left);
  judge += take(measured.judge, left);
  (measured == RestartSeconds() ? stopped : detect) += left;
}

void RestartPhases::add_start(double seconds, const StartSeconds& measured) {
  double left = std::max(seconds, 0.0);
  meet += take(measured.meet, left);
  load += take(measured.load, left);
  setup += left;
}

std::array<std::pair<const char*, double>, 7> RestartPhases::parts() const {
  return {{{"stopped", stopped},
           {"detect", detect},
           {"judge", judge},
           {"prepare", prepare},
           {"meet", meet},
           {"setup", setup},
           {"load", load}}};
}

double RestartPhases::total() const {
  double sum = 0;
  for (const auto& part : parts())
    sum += part.second;
  return sum;
}

std::string in_words(const RestartPhases& phases) {
  std::string text = str("restart: ", time_in_words(phases.total()), " without a step");
  const char* separator = ": ";
  for (const auto& [phase, seconds] : phases.parts())
    if (seconds > 0)
      text += str(std::exchange(separator, ", "), phase, " ", time_in_words(seconds));
  return text;
}

}  // namespace lockstep
