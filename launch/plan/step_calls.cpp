#include "launch/plan/step_calls.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "launch/plan/cluster_step.h"
#include "launch/plan/cluster_topology.h"
#include "launch/plan/estimate.h"
#include "train/layout.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

void add(StepCalls::Row& row, const Op& op, const CallTime& time, std::int64_t times) {
  const auto n = static_cast<double>(times);
  row.name = op.name;
  row.calls += times;
  if (time.is_measured) row.measured_calls += times;
  row.flops += n * op.flops;
  row.bytes += n * static_cast<double>(op.bytes);
  row.seconds += n * time.seconds;
}

}  // namespace

double StepCalls::seconds() const {
  double sum = 0;
  for (const Row& row : rows)
    sum += row.seconds;
  return sum;
}

std::vector<StepCalls> step_calls(const Cluster& cluster, const StepProgram& program) {
  std::array<std::map<std::string, StepCalls::Row, std::less<>>, kComponents> found;
  std::array<std::pair<double, const Op*>, kComponents> longest{};  // of estimated calls
  const CallTimes times(cluster, program);
  const auto& entries = program.log->entries();
  const auto& ends = program.micro_ends;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    if (entry.what != OpLog::What::op || entry.op.is_nothing()) continue;
    const bool is_middle = ends.size() == 3 && i >= ends[0] && i < ends[1];
    const auto component = static_cast<std::size_t>(component_of(entry.op, entry.within));
    const auto time = times.alone(entry.op);
    add(found[component][entry.op.name], entry.op, time, is_middle ? program.micro_batches - 2 : 1);
    if (!time.is_measured && time.seconds > longest[component].first)
      longest[component] = {time.seconds, &entry.op};
  }
  std::vector<StepCalls> all;
  for (std::size_t c = 0; c < kComponents; ++c) {
    if (found[c].empty()) continue;
    StepCalls calls{.component = static_cast<Component>(c), .rows = {}, .longest = {}};
    if (longest[c].second != nullptr) calls.longest = times.explain(*longest[c].second);
    for (const auto& [name, row] : found[c])
      calls.rows.push_back(row);
    std::ranges::stable_sort(calls.rows, std::greater{}, &StepCalls::Row::seconds);
    all.push_back(std::move(calls));
  }
  return all;
}

std::vector<StepCalls> step_calls(const Cluster& cluster, const Config& config,
                                  TensorAcross across) {
  const Config c = planned_on(cluster, config);
  const auto training = training_config(c);
  const auto launched = launched_on(cluster, training.mesh.world());
  const auto topology = placed_in(training.mesh, launched, across);
  return step_calls(cluster,
                    record_step(training, Device{cluster.device}, threads_of(c), 0, &topology));
}

}  // namespace lockstep
