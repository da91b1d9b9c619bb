#include "launch/plan/plan.h"
#include "train/layout.h"

namespace lockstep {
namespace {

Json layout_json(const Config& c) {
  return Json::Object{{"replicate", c.layout.replicate},
                      {"shard", c.layout.shard},
                      {"tensor", c.layout.tensor},
                      {"sharding", str(name(c.layout.sharding))},
                      {"reduce", str(name(c.layout.reduce))},
                      {"tensor_chunks", c.layout.tensor_chunks},
                      {"keep_gathered", c.layout.keep_gathered},
                      {"micro_batch", c.train.micro_batch},
                      {"recompute", str(name(c.train.recompute))},
                      {"offload_activations", c.train.offload_activations},
                      {"offload_optimizer", c.train.offload_optimizer}};
}

Json run_json(const RunCosts& costs, const SaveTimes& save, const Cluster& cluster) {
  return Json::Object{{"run_seconds", costs.run_seconds},
                      {"goodput", costs.goodput},
                      {"last_save_seconds", costs.last_save_seconds},
                      {"wall_seconds", costs.wall_seconds},
                      {"save_stall_seconds", save.stall_seconds()},
                      {"save_write_seconds", save.write_seconds},
                      {"write_bytes_per_second", costs.write_bytes_per_second},
                      {"interruption_seconds", costs.interruption_seconds},
                      {"best_interval_seconds", costs.best_interval_seconds},
                      {"best_interval_steps", costs.best_interval_steps},
                      {"best_goodput", costs.best_goodput},
                      {"local_bytes", costs.local.bytes},
                      {"local_kept_bytes", costs.local.kept_bytes},
                      {"local_interval_seconds", costs.local.interval_seconds},
                      {"local_save_seconds", costs.local.save_seconds},
                      {"local_network_share", costs.local.network_share},
                      {"local_lost_seconds", costs.local.lost_seconds},
                      {"cache_bytes_per_token", costs.cache_bytes_per_token},
                      {"energy_joules", costs.energy_joules},
                      {"price", costs.price},
                      {"currency", cluster.currency}};
}

Json search_json(const LayoutSearch& search) {
  Json::Array best, misses;
  for (const auto& one : search.best) {
    Json found = layout_json(one.config);
    found.set("step_seconds", one.estimate.time.total());
    found.set("tokens_per_second", one.estimate.tokens_per_second);
    found.set("mfu", one.estimate.mfu.causal);
    found.set("mfu_square", one.estimate.mfu.square);
    found.set("device_bytes", one.estimate.needed_bytes());
    found.set("why", one.why);
    best.push_back(std::move(found));
  }
  for (const auto& one : search.misses) {
    Json miss = layout_json(one.config);
    miss.set("step_seconds", one.step_seconds);
    miss.set("missing_bytes", one.missing_bytes);
    miss.set("missing_host_bytes", one.missing_host_bytes);
    miss.set("why", one.why);
    misses.push_back(std::move(miss));
  }
  return Json::Object{{"priced", search.priced},
                      {"best", best},
                      {"misses", misses},
                      {"fitting_nodes", search.fitting_nodes},
                      {"tried_nodes", search.tried_nodes}};
}

Json formula_json(const Formula& formula) {
  Json inputs(Json::Object{});
  for (const auto& input : formula.inputs)
    inputs.set(input.name, input.value);
  return Json::Object{{"name", formula.name},
                      {"formula", formula.text},
                      {"inputs", inputs},
                      {"value", formula.value},
                      {"unit", formula.unit}};
}

Json calls_json(const StepCalls& calls, double step_seconds) {
  Json::Array rows;
  for (const auto& row : calls.rows)
    rows.emplace_back(Json::Object{{"name", row.name},
                                   {"calls", row.calls},
                                   {"measured_calls", row.measured_calls},
                                   {"flops", row.flops},
                                   {"bytes", row.bytes},
                                   {"seconds", row.seconds}});
  return Json::Object{{"component", str(name(calls.component))},
                      {"alone_seconds", calls.seconds()},
                      {"step_seconds", step_seconds},
                      {"rows", rows}};
}

}  // namespace

Json plan_json(const Plan& plan) {
  const auto& e = plan.estimate;
  Json json = plan_file_of(e, plan.cluster,
                           plan.corrected ? std::optional(plan.corrected->time) : std::nullopt)
                  .to_json();
  json.set("ranks", e.ranks);
  json.set("nodes", e.save.nodes);
  json.set("layout", layout_json(plan.config));
  json.set("fits", e.fits());
  json.set("missing_bytes", e.missing_bytes());
  json.set("constants_measured", e.constants_measured);
  Json::Array host;
  for (const auto& [name, bytes] : host_memory(e))
    host.emplace_back(Json::Object{{"name", name}, {"bytes", bytes}});
  json.set("host_memory", host);
  json.set("host_capacity_bytes", plan.cluster.host_memory_bytes);
  json.set("missing_host_bytes", e.missing_host_bytes());
  json.set("parameters", parameter_count(plan.config.model));
  json.set("flops_per_token", e.meter.flops_per_token);
  json.set("flops_per_token_square", e.meter.flops_per_token_square);
  json.set("run", run_json(plan.costs, e.save, plan.cluster));
  if (plan.corrected)
    json.set("corrected_run", run_json(plan.corrected_costs, plan.corrected->save, plan.cluster));
  if (!plan.phases.empty()) {
    Json::Array phases;
    for (const auto& phase : plan.phases)
      phases.emplace_back(Json::Object{{"first_step", phase.first_step},
                                       {"last_step", phase.last_step},
                                       {"batch_tokens", phase.config.train.batch_tokens},
                                       {"sequence_length", phase.config.train.sequence_length},
                                       {"seconds", phase.seconds()},
                                       {"memory_bytes", phase.estimate.needed_bytes()},
                                       {"fits", phase.estimate.fits()}});
    json.set("phases", phases);
  }
  if (plan.search) json.set("search", search_json(*plan.search));
  if (!plan.calls.empty()) {
    Json::Array components;
    for (const auto& calls : plan.calls)
      components.push_back(calls_json(calls, e.time[calls.component]));
    json.set("calls", components);
  }
  if (!plan.formulas.empty()) {
    Json::Array formulas;
    for (const auto& formula : plan.formulas)
      formulas.push_back(formula_json(formula));
    json.set("formulas", formulas);
  }
  Json::Array notes;
  for (const auto& note : plan.notes)
    notes.emplace_back(note);
  json.set("notes", notes);
  return json;
}

}  // namespace lockstep
