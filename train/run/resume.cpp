#include "train/run/resume.h"

#include <algorithm>

#include "checkpoint/checkpointer.h"
#include "core/cpu.h"
#include "core/log.h"
#include "model/families.h"
#include "train/layout.h"
#include "train/schedule.h"
#include "train/step/numerics.h"

namespace lockstep {
namespace {

Json to_json(const SlidingWindow& window) {
  Json::Array values;
  for (const double value : window.values())
    values.emplace_back(value);
  return values;
}

SlidingWindow window_in(const Json& json) {
  SlidingWindow window;
  for (const auto& value : json.as_array())
    window.add(value.as_double());
  return window;
}

template <class Value>
void check_same(const char* key, const Value& before, const Value& now, std::int64_t step,
                const char* why) {
  if (before != now)
    throw ConfigError(str(key, " is ", now, ", but was ", before, " up to step ", step, "; ", why,
                          ": set it back, or start a new run with --init-from"));
}

// The model with default values in all members that may differ.
ModelConfig essence(ModelConfig model) {
  const ModelConfig neutral = family_defaults(model.family);
  model.init_std = neutral.init_std;
  model.scale_residual_init = neutral.scale_residual_init;
  if (!model.learned_positions) {
    model.max_positions = neutral.max_positions;
    if (model.no_rope_every > model.layers) model.no_rope_every = 0;  // matches no layer
    if (model.rope_scaling && model.rope_scaling->factor == 1) model.rope_scaling.reset();
    return model;
  }
  model.rope_theta = neutral.rope_theta;
  model.rope_scaling = neutral.rope_scaling;
  model.no_rope_every = neutral.no_rope_every;
  return model;
}

void log_other_sources(const std::vector<Stretch::Source>& before,
                       const std::vector<Stretch::Source>& now) {
  using Source = Stretch::Source;
  const auto is_in = [](const std::vector<Source>& sources, const Source& source) {
    return std::ranges::find(sources, source.fingerprint, &Source::fingerprint) != sources.end();
  };
  for (const auto& source : before)
    if (!is_in(now, source)) log_warning("data: ", source.name, " is no longer read");
  for (const auto& source : now)
    if (!is_in(before, source))
      log_warning("data: ", source.name, " is a new source; it starts at its sample ",
                  source.counter);
}

void log_other_length(std::int64_t before, std::int64_t now, RowKind kind) {
  if (before == now) return;
  log_info("data: rows have ", now, " tokens from this step on, ", before, " before",
           kind == RowKind::packed ? "; they are packed again and start their next epoch"
           : kind == RowKind::windows
               ? "; their order differs, so the rest of the epoch repeats some tokens and skips "
                 "others"
               : "");
}

// The value of a key that `before` may lack.
double number_in(const Json& before, const char* key, double otherwise) {
  const Json* value = before.find(key);
  return value != nullptr ? value->as_double() : otherwise;
}

Json to_json(const std::vector<Config::RatePhase>& phases) {
  Json all = Json::Array{};
  for (const auto& phase : phases) {
    Json json;
    json.set("from_step", phase.from_step);
    json.set("kind", str(kDecayNames[static_cast<std::size_t>(phase.schedule.kind)]));
    json.set("warmup_steps", phase.schedule.warmup_steps);
    json.set("decay_steps", phase.schedule.decay_steps);
    json.set("decay_fraction", phase.schedule.decay_fraction);
    json.set("final_ratio", phase.schedule.final_ratio);
    if (phase.peak) json.set("peak", *phase.peak);
    if (phase.is_live) json.set("is_live", true);
    all.push(json);
  }
  return all;
}

Config::Decay decay_in(const Json& name) {
  return static_cast<Config::Decay>(std::ranges::find(kDecayNames, name.as_string()) -
                                    kDecayNames.begin());
}

std::vector<Config::RatePhase> rate_phases_in(const Json& json) {
  std::vector<Config::RatePhase> phases;
  for (const auto& one : json.as_array()) {
    auto& phase = phases.emplace_back();
    phase.from_step = one.at("from_step").as_integer();
    phase.schedule.kind = decay_in(one.at("kind"));
    phase.schedule.warmup_steps = one.at("warmup_steps").as_integer();
    phase.schedule.decay_steps = one.at("decay_steps").as_integer();
    phase.schedule.decay_fraction = one.at("decay_fraction").as_double();
    phase.schedule.final_ratio = one.at("final_ratio").as_double();
    if (const Json* peak = one.find("peak")) phase.peak = peak->as_double();
    phase.is_live = one.find("is_live") != nullptr;
  }
  return phases;
}

// The configuration with the schedule that a checkpoint planned.
Config planned(const Json& about, Config config) {
  const Json& before = about.at("configuration");
  // Live changes are not mistakes: the plan is that with them.
  if (const Json* json = about.find("rate_phases")) {
    using Phase = Config::RatePhase;
    auto phases = rate_phases_in(*json);
    std::erase_if(phases, [&](const Phase& phase) {
      const auto is_replaced = [&](const Phase& now) {
        return now.is_live && now.from_step == phase.from_step;
      };
      return phase.is_live || std::ranges::any_of(config.rate_phases, is_replaced);
    });
    std::ranges::copy_if(config.rate_phases, std::back_inserter(phases), &Phase::is_live);
    std::ranges::stable_sort(phases, {}, &Phase::from_step);
    config.rate_phases = std::move(phases);
  }
  const auto integer = [&](const char* key, std::int64_t& value) {
    if (const Json* was = before.find(key)) value = was->as_integer();
  };
  auto& schedule = config.schedule;
  if (const Json* kind = before.find("schedule.kind"))
    schedule.kind = static_cast<Config::Decay>(std::ranges::find(kDecayNames, kind->as_string()) -
                                               kDecayNames.begin());
  integer("train.steps", config.train.steps);
  integer("schedule.warmup_steps", schedule.warmup_steps);
  integer("schedule.decay_steps", schedule.decay_steps);
  schedule.decay_fraction = number_in(before, "schedule.decay_fraction", schedule.decay_fraction);
  schedule.final_ratio = number_in(before, "schedule.final_ratio", schedule.final_ratio);
  config.optimizer.learning_rate =
      number_in(before, "optimizer.learning_rate", config.optimizer.learning_rate);
  return config;
}

// Older checkpoints have only the last value of the key.
std::string start_in(const Json& about) {
  if (const Json* from = about.find("started_from")) return from->as_string();
  const Json* from = about.at("configuration").find("train.init_from");
  return from != nullptr ? from->as_string() : "";
}

std::string changes_of_precision(const Json& before, const Json& settings) {
  std::string changes;
  for (const auto& [key, now] : settings.as_object())
    if (const Json* was = before.find(key); key.starts_with("precision.") && was != nullptr)
      if (was->dump() != now.dump())
        changes += str(changes.empty() ? "" : ", ", key, " from ", was->dump(), " to ", now.dump());
  return changes;
}

}  // namespace

Json describe_run(const RunProgress& progress, const RunFacts& facts) {
  const Config& config = facts.config;
  Json data;
  data.set("seed", static_cast<std::int64_t>(config.data.seed));
  data.set("first_sample", progress.first_sample);
  data.set("sequence_length", config.train.sequence_length);
  data.set("rows", name(config.data.rows));
  data.set("shuffle_shards", config.data.shuffle_shards);
  data.set("stretches", to_json(facts.history));
  Json numerics;
  numerics.set("device", facts.device);
  numerics.set("cpu_level", name(cpu_level()));
  numerics.set("threads", facts.threads);
  numerics.set("attention", facts.attention);
  numerics.set("reduce", str(name(config.layout.reduce)));
  numerics.set("tensor_chunks", config.layout.tensor_chunks);
  if (facts.numerics != nullptr) add_to(numerics, *facts.numerics);
  Json statistics;
  statistics.set("loss", to_json(progress.statistics.loss));
  statistics.set("grad_norm", to_json(progress.statistics.grad_norm));
  Json about;
  about.set("step", progress.step);
  about.set("tokens_seen", progress.tokens_seen);
  about.set("last_good_checkpoint", progress.good_step);
  about.set("data", data);
  about.set("model", config_to_huggingface(config.model));
  about.set("numerics", numerics);
  about.set("configuration", facts.settings);
  about.set("rate_phases", to_json(config.rate_phases));
  about.set("amendments", to_json(progress.amendments));
  about.set("started_from", progress.started_from);
  about.set("statistics", statistics);
  return about;
}

RunProgress progress_in(const Json& about) {
  const Json& statistics = about.at("statistics");
  return {.step = about.at("step").as_integer(),
          .first_sample = about.at("data").at("first_sample").as_integer(),
          .tokens_seen = about.at("tokens_seen").as_integer(),
          .good_step = about.at("last_good_checkpoint").as_integer(),
          .statistics = {.loss = window_in(statistics.at("loss")),
                         .grad_norm = window_in(statistics.at("grad_norm"))},
          .amendments = amendments_in(about),
          .started_from = start_in(about)};
}

std::optional<std::filesystem::path> imported_weights(const std::filesystem::path& checkpoints,
                                                      World& world) {
  const auto path = checkpoint_path(checkpoints, 0);
  const bool mine = world.rank() == 0 &&
                    checkpoint_steps(checkpoints) == std::vector<std::int64_t>{0} &&
                    read_manifest(path).about.find("imported_from") != nullptr;
  const bool is_there = world.exchange(mine ? "imported" : "").front() == "imported";
  return is_there ? std::optional(path) : std::nullopt;
}

DataHistory check_resume(const Json& about, const RunFacts& facts, CarryOver carry,
                         bool allow_dataset_change) {
  const auto step = about.at("step").as_integer();
  if (about.find("data") == nullptr)
    throw ConfigError(str("the checkpoint of step ", step,
                          " contains only weights: start a new run from it with --init-from"));
  const std::string where = str("the checkpoint of step ", step, " holds");
  auto saved = config_from_huggingface(about.at("model"), where);
  saved.rope_theta = facts.config.model.rope_theta;  // may change, for longer sequences
  check_same_model(saved, facts.config.model, where);
  const Json& data = about.at("data");
  check_same("data.seed", data.at("seed").as_integer(),
             static_cast<std::int64_t>(facts.config.data.seed), step,
             "the order of the data would change");
  const auto& now = facts.config.data;
  // Older checkpoints lack both.
  const Json *rows = data.find("rows"), *shards = data.find("shuffle_shards");
  check_same("data.rows", rows != nullptr ? rows->as_string() : name(RowKind::windows),
             std::string(name(now.rows)), step, "the rows of the data would change");
  check_same("data.shuffle_shards", shards != nullptr ? shards->as_integer() : 0,
             now.shuffle_shards, step, "the order of the data would change");
  const auto sample = data.at("first_sample").as_integer();
  return continued(history_before(sample, history_in(data)), sample, facts.history.back(), carry,
                   allow_dataset_change);
}

std::optional<Amendment> check_extension(const Json& about, const RunProgress& progress,
                                         const Config& config, const Json& settings, bool extend) {
  constexpr double kJump = 1.1;
  const auto step = progress.step;
  const Json& before = about.at("configuration");
  const Config then = planned(about, config);
  const auto steps = then.train.steps;
  const bool has_ended = step >= steps, is_longer = config.train.steps > steps;
  if (step == 0 || config.train.steps <= step) return std::nullopt;

  const auto schedule = schedule_at(then, progress.amendments, step);
  const double rate = schedule.at(step);
  const double next = has_ended ? rate : learning_rate_at(then, progress.amendments, step + 1);
  const double now = learning_rate_at(config, progress.amendments, step + 1);
  const bool decays = schedule.schedule.kind != Config::Decay::constant &&
                      (has_ended || step >= schedule.last_before_decay());
  const bool jumps = now > kJump * next || kJump * now < next;
  const auto precision = changes_of_precision(before, settings);

  if (!extend && is_longer && (has_ended || decays)) {
    const auto stable = schedule.last_before_decay();
    const bool was_stable = decays && stable > schedule.begin + schedule.schedule.warmup_steps;
    throw ConfigError(
        str("train.steps is ", config.train.steps, ", but the run ",
            has_ended ? "has ended at step " : "is in its decay, which ends at step ", steps,
            "; pass --extend to train to step ", config.train.steps,
            " from the current learning rate of ", rate,
            was_stable ? str(", go back to a checkpoint of step ", stable,
                             " or earlier, before the decay, with --from-step")
                       : "",
            ", or choose another directory with --run",
            precision.empty() ? "" : str("; the precision differs, too: ", precision)));
  }
  if (!extend && jumps)
    throw ConfigError(str("the learning rate would jump from ", next, " to ", now, " at step ",
                          step + 1,
                          "; restore optimizer.learning_rate, the keys of [schedule] and "
                          "train.steps, pass --extend to accept the jump, or choose another "
                          "directory with --run"));
  if (!extend && !precision.empty())
    throw ConfigError(str("the precision would change after step ", step, ": ", precision,
                          "; restore it, pass --extend to accept the change, or choose another "
                          "directory with --run"));
  if (!is_longer || !decays) return std::nullopt;
  const bool has_new_peak =
      number_in(before, "optimizer.learning_rate", config.optimizer.learning_rate) !=
      config.optimizer.learning_rate;
  return extension_at(step, rate, has_new_peak ? config.optimizer.learning_rate : rate, steps);
}

void check_same_start(const std::string& then, const Config& config) {
  const auto whole = [](const std::string& path) {
    auto whole_path = std::filesystem::weakly_canonical(std::filesystem::absolute(path));
    return whole_path.has_filename() ? whole_path : whole_path.parent_path();
  };
  const auto& now = config.train.init_from;
  if (now.empty() || (!then.empty() && whole(now) == whole(then))) return;
  throw ConfigError(str("train.init_from is ", now, ", but the run started from ",
                        then.empty() ? "random weights" : then,
                        ": leave it unset to resume the run, or choose another directory with "
                        "--run"));
}

void log_changes(const Json& about, const RunFacts& facts) {
  const Json& before = about.at("configuration");
  const auto dump = [](const Json* value) { return value ? value->dump() : "not set"; };
  for (const auto& [key, now] : facts.settings.as_object())
    if (const auto old = dump(before.find(key)); old != now.dump())
      log_info("changed: ", key, ": ", old, " -> ", now.dump());
  const auto saved = config_from_huggingface(about.at("model"), "the checkpoint");
  if (!saved.learned_positions && saved.rope_theta != facts.config.model.rope_theta)
    log_warning("model.rope_theta is ", facts.config.model.rope_theta, " from step ",
                about.at("step").as_integer() + 1, " on, ", saved.rope_theta,
                " before: the model has to adapt to it");
  const auto& data = about.at("data");
  // Without the stretches of --skip-steps, which the log has already.
  const auto sample = data.at("first_sample").as_integer();
  const auto history = history_before(sample, history_in(data));
  const auto current = history_before(sample + 1, facts.history);
  if (history != current) {
    log_info("data: from sample ", sample, " on ", in_words(current.back()), "; before, ",
             in_words(history.back()));
    log_other_sources(history.back().sources, current.back().sources);
    log_other_length(history.back().length, current.back().length, facts.config.data.rows);
  }
  const Json& numerics = about.at("numerics");
  const auto computer = [](const std::string& device, std::string_view level, std::int64_t threads,
                           const std::string& attention) {
    return device == "cpu" ? str(level, " and ", threads, threads == 1 ? " thread" : " threads")
                           : str(device, " and attention by ", attention);
  };
  const Json* attention = numerics.find("attention");  // older checkpoints lack it
  const auto then =
      computer(numerics.at("device").as_string(), numerics.at("cpu_level").as_string(),
               numerics.at("threads").as_integer(),
               attention != nullptr ? attention->as_string() : "own kernels");
  const auto now = computer(facts.device, name(cpu_level()), facts.threads, facts.attention);
  if (then != now)
    log_warning("step ", about.at("step").as_integer(), " was computed with ", then, ", now ", now,
                ": training continues, but is not bit-identical");
  const auto compare = [&](const char* key, std::string_view was, std::string_view is) {
    if (was != is)
      log_warning("layout.", key, " is ", is, ", but was ", was, " up to step ",
                  about.at("step").as_integer(),
                  ": training continues, but is not bit-identical; set it back to keep the bits");
  };
  // Older checkpoints lack both.
  const auto& layout = facts.config.layout;
  const Json *reduce = numerics.find("reduce"), *chunks = numerics.find("tensor_chunks");
  compare("reduce", reduce != nullptr ? reduce->as_string() : name(Reduce::fp32),
          name(layout.reduce));
  if (layout.tensor > 1)
    compare("tensor_chunks", str(chunks != nullptr ? chunks->as_integer() : 1),
            str(layout.tensor_chunks));
}

void check_same_model(const ModelConfig& found, const ModelConfig& expected,
                      const std::string& where) {
  const ModelConfig there = essence(found), here = essence(expected);
  if (there == here) return;
  const auto check = [&](const char* key, const auto& is_there, const auto& is_here) {
    if (is_there != is_here)
      throw ConfigError(
          str(where, " a model with ", key, " = ", is_there, ", but model.", key, " is ", is_here));
  };
  check("family", std::string(name(there.family)), std::string(name(here.family)));
  check("layers", there.layers, here.layers);
  check("width", there.width, here.width);
  check("heads", there.heads, here.heads);
  check("kv_heads", there.kv_heads, here.kv_heads);
  check("head_size", there.head_size, here.head_size);
  check("mlp_width", there.mlp_width, here.mlp_width);
  check("vocabulary", there.vocabulary, here.vocabulary);
  check("tied_head", there.tied_head, here.tied_head);
  check("qkv_bias", there.qkv_bias, here.qkv_bias);
  check("out_bias", there.out_bias, here.out_bias);
  check("mlp_bias", there.mlp_bias, here.mlp_bias);
  check("norm_epsilon", there.norm_epsilon, here.norm_epsilon);
  if (here.learned_positions) {
    check("max_positions", there.max_positions, here.max_positions);
  } else {
    const RopeScaling none{.factor = 1};
    const auto a = there.rope_scaling.value_or(none), b = here.rope_scaling.value_or(none);
    check("rope_theta", there.rope_theta, here.rope_theta);
    check("no_rope_every", there.no_rope_every, here.no_rope_every);
    check("rope_scaling_factor", a.factor, b.factor);
    check("rope_scaling_low", a.low_factor, b.low_factor);
    check("rope_scaling_high", a.high_factor, b.high_factor);
    check("rope_scaling_context", a.original_context, b.original_context);
  }
  throw ConfigError(
      str(where, " a ", name(here.family), " model whose norms or activation differ"));
}

}  // namespace lockstep
