#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/units.h"
#include "launch/plan/plan.h"
#include "launch/plan/plan_band.h"

namespace lockstep {
namespace {

std::string memory(std::int64_t bytes) {
  return human_memory(static_cast<double>(bytes));
}

std::string left(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string percent(double share) {
  if (std::isnan(share)) return "n/a";
  return str(three_digits(100 * share), "%");
}

std::string words_of(std::string text) {
  if (text == "numbers") return "step results";  // the name in JSON
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string row(const std::string& name, const std::string& value, const std::string& more = "") {
  return str("  ", left(name, 28), right(value, 12), more.empty() ? "" : "  ", more, "\n");
}

// "22.2 s to 26.3 s".
template <class Words>
std::string range(double low, double high, const Words& words) {
  return str(trimmed(words(low)), " to ", trimmed(words(high)));
}

// The range of a time, an energy or a price: "(22.2 s to 26.3 s)"; empty: unknown.
template <class Words>
std::string in_band(const Plan& plan, double value, const Words& words) {
  const auto band = plan_band(plan.cluster, plan.estimate.ranks).band;
  if (!band.is_known()) return "";
  return str("(", range(band.low * value, band.high * value, words), ")");
}

std::string heading(const Plan& plan) {
  const auto& c = plan.config;
  const bool on_gpus = plan.cluster.device == Device::Kind::cuda;
  const auto nodes = plan.estimate.save.nodes;
  return str(name(c.model.family), ", ", human_count(static_cast<double>(parameter_count(c.model))),
             " parameters, on ", plan.cluster.name, ": ", plan.estimate.ranks,
             on_gpus ? str(" x ", plan.cluster.hardware.name)
                     : std::string(plan.estimate.ranks == 1 ? " rank" : " ranks"),
             " in ", nodes, nodes == 1 ? " node" : " nodes", "\n", layout_in_words(c), "; ",
             with_commas(c.train.batch_tokens), " tokens a step, sequences of ",
             with_commas(c.train.sequence_length), "\n");
}

// "of 79 GiB: fits, 3 GiB free".
std::string in_room(std::int64_t sum, std::int64_t capacity, std::int64_t missing) {
  const auto left_over = std::max<std::int64_t>(capacity - sum, 0);
  return str("of ", memory(capacity),
             missing == 0 ? str(": fits, ", memory(left_over), " free")
                          : str(": ", memory(missing), " too much"));
}

// The host memory of ranks that compute on GPUs.
std::string host_table(const Plan& plan) {
  const auto& e = plan.estimate;
  const auto ranks = e.room.ranks;
  const auto capacity = plan.cluster.host_memory_bytes;
  std::string text = str("\nMemory of a host, for ", ranks, ranks == 1 ? " rank\n" : " ranks\n");
  for (const auto& [name, bytes] : host_memory(e))
    text += row(words_of(name), memory(ranks * bytes));
  const auto sum = ranks * e.bytes.sum().pinned;
  return text + row("sum", memory(sum),
                    capacity > 0 ? in_room(sum, capacity, ranks * e.missing_host_bytes())
                                 : std::string("host_memory_bytes is not set"));
}

std::string memory_table(const Plan& plan) {
  const auto& e = plan.estimate;
  const bool on_gpus = plan.cluster.device == Device::Kind::cuda;
  std::string text = "\nMemory of a rank\n";
  for (std::size_t i = 0; i < kPurposes; ++i)
    if (e.by_purpose[i] > 0)
      text += row(words_of(name(static_cast<Purpose>(i))), memory(e.by_purpose[i]));
  if (!on_gpus)
    for (const auto& [name, bytes] : host_memory(e))
      text += row(words_of(name), memory(bytes));
  if (e.bytes.nccl > 0) text += row("NCCL", memory(e.bytes.nccl));
  text += row("constants", memory(e.constant_bytes),
              str(e.constants_measured ? "measured" : "assumed", ": context, libraries"));
  text += row("sum", memory(e.needed_bytes()),
              in_room(e.needed_bytes(), e.capacity_bytes, e.missing_bytes()));
  return on_gpus ? text + host_table(plan) : text;
}

// The times and rates between which 80 % of similar runs are.
std::string band_line(const Plan& plan) {
  const auto& e = plan.estimate;
  const auto [band, runs] = plan_band(plan.cluster, e.ranks);
  if (!band.is_known()) return "";
  const auto tokens = [](double rate) { return human_count(rate); };
  const auto mfu = [](double share) { return percent(share); };
  const bool has_mfu =
      e.meter.peak_flops > 0 && !e.meter.is_peak_too_low(e.tokens_per_second / band.low);
  return str(
      "  range ", range(band.low * e.time.total(), band.high * e.time.total(), human_seconds), ", ",
      range(e.tokens_per_second / band.high, e.tokens_per_second / band.low, tokens), " tokens/s",
      has_mfu ? str(", MFU ", range(e.mfu.causal / band.high, e.mfu.causal / band.low, mfu))
              : std::string(),
      " (errors of 80 % of ", runs, ")\n");
}

std::string time_table(const Plan& plan) {
  const auto& e = plan.estimate;
  const bool corrects = plan.corrected.has_value();
  std::string text =
      str("\n", corrects ? left("Time of a step", 50) + "corrected" : "Time of a step", "\n");
  for (std::size_t i = 0; i < kComponents; ++i) {
    const auto component = static_cast<Component>(i);
    const double seconds = e.time[component],
                 better = corrects ? plan.corrected->time[component] : 0;
    if (!e.time.shows(component) && !(corrects && plan.corrected->time.shows(component))) continue;
    text += row(in_words(component), human_seconds(seconds),
                str(right(percent(seconds / e.time.total()), 6),
                    corrects ? str("   ", right(human_seconds(better), 8)) : std::string()));
  }
  text +=
      row("step", human_seconds(e.time.total()),
          corrects ? str("         ", right(human_seconds(plan.corrected->time.total()), 8)) : "");
  const auto rates = [&](const StepTime& time) {
    const auto rate = str(human_count(e.tokens_per_second_of(time)), " tokens/s, ");
    const auto mfu = e.mfu_of(time);
    if (e.meter.is_peak_too_low(e.tokens_per_second_of(time)))
      return str(rate,
                 "MFU n/a: the measured peak of the device is too low for this rate; measure it "
                 "again while the host is idle (lockstep preflight)");
    return e.meter.peak_flops > 0 ? str(rate, "MFU ", percent(mfu.causal), " (causal attention), ",
                                        percent(mfu.square), " (full square)")
                                  : str(rate, "MFU unknown: the peak of the device is unknown");
  };
  if (corrects) text += str("  corrected: ", rates(plan.corrected->time), "\n");
  return str(text, "  ", rates(e.time), "\n", band_line(plan));
}

std::string search_table(const LayoutSearch& search) {
  if (search.best.empty()) return str("\nLayouts: none fits", nothing_fits(search), "\n");
  std::string text =
      str("\nLayouts (", search.priced, " that fit were estimated; memory per rank)\n");
  for (std::size_t i = 0; i < search.best.size(); ++i) {
    const auto& one = search.best[i];
    text +=
        str("  ", i + 1, "  ", right(human_seconds(one.estimate.time.total()), 8), "  MFU ",
            percent(one.estimate.mfu.causal), "  ", right(memory(one.estimate.needed_bytes()), 8),
            "  ", layout_in_words(one.config), "\n     ", one.why, "\n");
  }
  if (search.misses.empty()) return text;
  text += "Faster than the first layout, but too large\n";
  for (const auto& one : search.misses)
    text += str("  ", one.why, "\n");
  return text;
}

std::string after_blank(const std::string& text) {
  return text.empty() ? text : " " + text;
}

// Formats durations below a minute with fractions, and longer ones like "2h01m".
std::string duration(double seconds) {
  return seconds < 60 ? human_seconds(seconds) : human_eta(seconds);
}

std::string wall_time(const RunCosts& costs) {
  return costs.goodput > 0 ? duration(costs.wall_seconds) : std::string("never");
}

std::string energy(double joules) {
  constexpr std::array kUnits{" Wh", " kWh", " MWh", " GWh"};
  double value = joules / 3600;
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit)
    value /= 1000;
  return trimmed(three_digits(value)) + kUnits[unit];
}

std::string price(double amount, const Cluster& cluster) {
  const auto number = amount < 99.95 ? trimmed(three_digits(amount)) : human_count(amount);
  return str(number, " ", cluster.currency);
}

// The costs of the run with step times corrected by earlier runs.
std::string corrected_run(const RunCosts& costs, const Cluster& cluster) {
  return str("  corrected: training ", duration(costs.run_seconds), ", with interruptions ",
             wall_time(costs),
             costs.energy_joules > 0 ? ", " + energy(costs.energy_joules) : std::string(),
             costs.price > 0 ? ", " + price(costs.price, cluster) : std::string(), "\n");
}

std::string checkpoints(const Plan& plan) {
  const auto& save = plan.estimate.save;
  const bool only_at_end = save.interval_steps >= plan.config.train.steps;
  return str(only_at_end ? std::string("only at the end")
                         : str(human_seconds(save.stall_seconds()), " lost per checkpoint; ",
                               human_bytes(plan.costs.write_bytes_per_second),
                               "/s needed to write it in time"),
             save.write_seconds > 0
                 ? str("; the last one ends ", human_seconds(plan.costs.last_save_seconds),
                       " after the last step")
                 : std::string());
}

// Rows of checkpoints in the hosts' own directories.
std::string local_rows(const Plan& plan) {
  const auto& local = plan.costs.local;
  if (local.bytes == 0) return "";
  const bool copies = local.survive();
  const auto capacity = plan.cluster.host_memory_bytes;
  const auto share =
      capacity > 0
          ? str(", ",
                percent(static_cast<double>(local.kept_bytes) / static_cast<double>(capacity)),
                " of its memory, if the directory is in memory")
          : std::string();
  return row("local checkpoints", human_bytes(static_cast<double>(local.kept_bytes)),
             str("of a host: two", copies ? ", and two of its partner" : "", share)) +
         row("local save", trimmed(human_seconds(local.save_seconds)),
             str("every ", human_seconds(local.interval_seconds), ": ",
                 human_bytes(static_cast<double>(local.bytes)), " of a host",
                 copies ? str(", also to its partner with ", percent(local.network_share),
                              " of the network")
                        : std::string())) +
         row("lost per interruption", human_seconds(local.lost_seconds),
             copies ? "on average, with the restart, if no host is lost with its partner; goodput "
                      "uses this value"
                    : "on average, with the restart, if no host loses its files; goodput uses the "
                      "checkpoints in the run's directory instead");
}

double all_tokens(const Plan& plan) {
  if (plan.phases.empty())
    return static_cast<double>(plan.config.train.steps) *
           static_cast<double>(plan.config.train.batch_tokens);
  double tokens = 0;
  for (const auto& phase : plan.phases)
    tokens += static_cast<double>(phase.last_step - phase.first_step + 1) *
              static_cast<double>(phase.config.train.batch_tokens);
  return tokens;
}

// One line for each phase: its steps, their tokens, the time of one, and the memory.
std::string phases_table(const Plan& plan) {
  std::string text = "\nPhases\n";
  for (const auto& phase : plan.phases) {
    const auto& c = phase.config;
    text += row(
        str("to step ", with_commas(phase.last_step)), duration(phase.seconds()),
        str(human_seconds(phase.seconds() /
                          static_cast<double>(phase.last_step - phase.first_step + 1)),
            " a step of ", human_count(static_cast<double>(c.train.batch_tokens)),
            " tokens in sequences of ", c.train.sequence_length, "; ",
            memory(phase.estimate.needed_bytes()), phase.estimate.fits() ? "" : ": does not fit"));
  }
  return text;
}

std::string run_table(const Plan& plan) {
  const auto& costs = plan.costs;
  const auto& e = plan.estimate;
  const auto& c = plan.config;
  std::string text = "\nThe run\n";
  text += row("training", duration(costs.run_seconds),
              str(human_count(all_tokens(plan)), " tokens in ", with_commas(c.train.steps),
                  " steps", after_blank(in_band(plan, costs.run_seconds, duration))));
  text += row("goodput", percent(costs.goodput),
              str("an interruption every ", human_eta(costs.interruption_seconds), ", ",
                  duration(plan.cluster.restart_seconds), " to restart"));
  text += row("with interruptions", wall_time(costs),
              costs.goodput > 0 ? in_band(plan, costs.wall_seconds, duration) : std::string());
  text += row("checkpoint", human_bytes(static_cast<double>(e.save.bytes)), checkpoints(plan));
  text += local_rows(plan);
  if (costs.best_interval_steps > 0)
    text +=
        row("best interval",
            str(with_commas(costs.best_interval_steps),
                costs.best_interval_steps == 1 ? " step" : " steps"),
            str(duration(costs.best_interval_seconds), ", goodput ", percent(costs.best_goodput),
                costs.local.survive() ? " without partner copies" : ""));
  text += row("KV cache", human_bytes(static_cast<double>(costs.cache_bytes_per_token)),
              str("per token; ",
                  human_bytes(static_cast<double>(costs.cache_bytes_per_token) *
                              static_cast<double>(c.train.sequence_length)),
                  " per sequence, in generation"));
  if (costs.energy_joules > 0)
    text += row("energy", energy(costs.energy_joules), in_band(plan, costs.energy_joules, energy));
  const auto money = [&](double amount) { return price(amount, plan.cluster); };
  if (costs.price > 0) text += row("price", money(costs.price), in_band(plan, costs.price, money));
  if (plan.corrected) text += corrected_run(plan.corrected_costs, plan.cluster);
  return text;
}

bool is_communication(Component component) {
  return component >= Component::communication_tensor && component <= Component::communication_host;
}

// Describes how the time of a component in the step differs from the sum of its calls.
std::string in_the_step(const StepCalls& calls, const StepTime& time) {
  const double seconds = time[calls.component], more = seconds - calls.seconds();
  const auto in_step = human_seconds(seconds);
  if (in_step == human_seconds(calls.seconds())) return "the same in the step";
  const auto now = str(in_step, " in the step: ", human_seconds(std::abs(more)));
  if (more < 0) return str(now, " less, hidden by concurrent streams");
  return str(now, " more, slowed by concurrent streams",
             is_communication(calls.component) ? " or by late ranks" : "");
}

std::string rate(const StepCalls::Row& row) {
  if (!(row.seconds > 0)) return "";
  if (row.flops > 0) return str(human_count(row.flops / row.seconds), " FLOP/s");
  return str(human_bytes(row.bytes / row.seconds), "/s");
}

std::string source(const StepCalls::Row& row) {
  if (row.measured_calls == 0) return "estimated";
  if (row.measured_calls == row.calls) return "measured";
  return str(with_commas(row.measured_calls), " measured");
}

std::string calls_table(const Plan& plan) {
  const auto line = [](const std::string& name, const std::string& calls, const std::string& flops,
                       const std::string& bytes, const std::string& seconds,
                       const std::string& more) {
    return str("  ", left(name, 28), right(calls, 9), right(flops, 11), right(bytes, 9),
               right(seconds, 10), more.empty() ? "" : "  ", more, "\n");
  };
  std::string text = "\nCalls of a rank in a step, with the time of each call alone\n" +
                     line("", "calls", "FLOPs", "bytes", "time", "");
  for (const auto& calls : plan.calls) {
    text += line(in_words(calls.component), "", "", "", human_seconds(calls.seconds()),
                 in_the_step(calls, plan.estimate.time));
    for (const auto& row : calls.rows)
      text +=
          line("  " + row.name, with_commas(row.calls),
               row.flops > 0 ? formatted("%.3g", row.flops) : std::string(), human_bytes(row.bytes),
               human_seconds(row.seconds), str(left(rate(row), 12), "  ", source(row)));
  }
  const auto& time = plan.estimate.time;
  if (time.shows(Component::other))
    text += line(
        in_words(Component::other), "", "", "", "",
        str(human_seconds(time[Component::other]), " in the step: no calls, the host is late"));
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::string explanation(const std::vector<Formula>& formulas) {
  std::string text = "\nFormulas (docs/planning.md)\n";
  for (const auto& formula : formulas) {
    text += str("  ", formula.name, " = ", formula.text, "\n    = ", number(formula.value),
                formula.unit.empty() ? "" : " ", formula.unit, "\n");
    std::string line;
    for (const auto& input : formula.inputs)
      line += str(line.empty() ? "" : ", ", input.name, " = ", number(input.value));
    text += str("    ", line, "\n");
  }
  return text;
}

}  // namespace

std::string nothing_fits(const LayoutSearch& search) {
  std::string text;
  for (const auto& one : search.misses)
    text += str("\n  ", one.why);
  if (search.fitting_nodes > 0)
    text += str("\n  fits on ", with_commas(search.fitting_nodes),
                search.fitting_nodes == 1 ? " whole node" : " such nodes");
  else if (search.tried_nodes > 0)
    text += str("\n  does not fit on up to ", with_commas(search.tried_nodes), " such nodes");
  return text;
}

std::string plan_text(const Plan& plan) {
  std::string text = heading(plan) + memory_table(plan) + time_table(plan);
  if (plan.search) text += search_table(*plan.search);
  if (!plan.phases.empty()) text += phases_table(plan);
  text += run_table(plan);
  if (!plan.calls.empty()) text += calls_table(plan);
  if (!plan.formulas.empty()) text += explanation(plan.formulas);
  if (!plan.notes.empty()) text += "\n";
  for (const auto& note : plan.notes)
    text += str("Note: ", note, "\n");
  return text;
}

}  // namespace lockstep
