#include "launch/plan/plan_errors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/file.h"
#include "core/log.h"
#include "core/median.h"
#include "core/units.h"
#include "train/layout.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep residuals 1";
constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;
constexpr double kLeastSeconds = 1e-9;  // least planned time for which a ratio is meaningful

Component component_named(const std::string& text) {
  for (std::size_t i = 0; i < kComponents; ++i)
    if (const auto component = static_cast<Component>(i); text == name(component)) return component;
  throw DataError(str("unknown component \"", text, "\" of a step"));
}

double seconds_at(const Json& json, const char* key) {
  const double seconds = json.at(key).as_double();
  if (!(seconds >= 0 && seconds < 1e9))
    throw DataError(str(key, ": expected seconds, at least 0, found ", seconds));
  return seconds;
}

PlanErrorRun parse_run(const Json& json) {
  PlanErrorRun run{.key = text_at(json, "key"), .planned = {}, .measured = {}};
  if (run.key.empty()) throw DataError("key: expected a run description, found an empty string");
  std::set<Component> seen;
  for (const Json& one : json.at("components").as_array()) {
    const auto component = component_named(text_at(one, "name"));
    if (!seen.insert(component).second)
      throw DataError(str("components: duplicate ", name(component)));
    run.planned[component] = seconds_at(one, "planned_seconds");
    run.measured[component] = seconds_at(one, "measured_seconds");
  }
  return run;
}

std::string model_in_words(const ModelConfig& m) {
  return str(name(m.family), " ", human_count(static_cast<double>(parameter_count(m))), " (",
             m.layers, " layers of ", m.width, ", heads ", m.heads, "/", m.kv_heads, " of ",
             m.head_size, ", mlp ", m.mlp_width, ", vocabulary ", m.vocabulary, ")");
}

std::string precision_in_words(const Config::Precision& p) {
  const char* fp8 = p.fp8 == Fp8Matmuls::off      ? ""
                    : p.fp8 == Fp8Matmuls::tensor ? " and fp8"
                                                  : " and fp8 in blocks";
  return str(name(p.compute), fp8,
             p.compute == DType::bf16 && !p.master_weights ? ", no masters" : "",
             p.moments == DType::fp32 ? "" : str(", moments ", name(p.moments)));
}

std::string attention_in_words(const Config& c) {
  using Attention = Config::Attention;
  const char* engine = c.train.attention == Attention::cudnn ? ", attention by cuDNN"
                       : c.train.attention == Attention::own ? ", attention by own kernels"
                                                             : "";
  return str(engine, c.data.document_mask ? ", documents masked" : "");
}

// True if two times are similar: errors of short calls do not carry over to long ones.
bool is_alike(double one, double other) {
  constexpr double kMost = 4;
  return one >= kLeastSeconds && one <= kMost * other && other <= kMost * one;
}

StepTime corrected_by(const PlanErrorRun& run, const StepTime& planned) {
  StepTime time = planned;
  for (std::size_t i = 0; i < kComponents; ++i) {
    const double before = run.planned.seconds[i], took = run.measured.seconds[i];
    time.seconds[i] =
        before >= kLeastSeconds ? planned.seconds[i] * took / before : planned.seconds[i] + took;
  }
  return time;
}

}  // namespace

std::string plan_error_key(const Config& c) {
  const auto& l = c.layout;
  const auto threads = c.train.threads;
  return str(
      model_in_words(c.model), ", ", c.train.micro_batch, " x ", c.train.sequence_length, " of ",
      c.train.batch_tokens, " tokens, ", precision_in_words(c.precision), attention_in_words(c),
      ", replicate ", l.replicate, " x shard ", l.shard, " x tensor ", l.tensor, ", sharding ",
      name(l.sharding), l.reduce == Reduce::fp32 ? "" : str(", reduce ", name(l.reduce)),
      l.tensor > 1 && l.tensor_chunks > 1 ? str(", tensor chunks ", l.tensor_chunks) : "",
      l.keep_gathered > 0 ? str(", ", l.keep_gathered, " kept gathered") : "", ", ",
      in_words(c.train.recompute), c.train.offload_activations ? ", activations offloaded" : "",
      c.train.offload_optimizer ? ", optimizer offloaded" : "",
      threads > 0 ? str(", ", threads, " threads") : "");
}

std::filesystem::path PlanErrors::file_beside(const std::filesystem::path& cluster) {
  auto name = cluster.filename();
  if (name.extension() == ".json") name.replace_extension();
  return cluster.parent_path() / (name.string() + ".residuals.json");
}

PlanErrors PlanErrors::read(const std::filesystem::path& file) {
  if (!path_exists(file)) return {};
  try {
    return parse(Json::parse(read_text(file, kMostBytes), file.string()));
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    const std::string what = error.what();
    throw DataError(what.starts_with(file.string()) ? what : str(file.string(), ": ", what));
  }
}

PlanErrors PlanErrors::read_or_set_aside(const std::filesystem::path& file) {
  try {
    return read(file);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    const std::filesystem::path aside = str(file.string(), ".damaged");
    if (path_exists(aside)) throw;
    rename_durably(file, aside);
    log_warning(error.what(), "; the file was renamed to ", aside.string(),
                ", and a new file is started");
    return {};
  }
}

void PlanErrors::write(const std::filesystem::path& file) const {
  write_text(file, str(to_json().dump(2), "\n"));
}

void PlanErrors::add(PlanErrorRun run) {
  std::erase_if(runs_, [&](const PlanErrorRun& one) { return one.key == run.key; });
  runs_.push_back(std::move(run));
  if (runs_.size() > kMostRuns) runs_.erase(runs_.begin());
}

std::optional<StepTime> PlanErrors::corrected(const std::string& key,
                                              const StepTime& planned) const {
  const auto same = std::ranges::find(runs_, key, &PlanErrorRun::key);
  if (same != runs_.end()) return corrected_by(*same, planned);
  StepTime time = planned;
  bool is_any = false;
  for (std::size_t i = 0; i < kComponents; ++i) {
    std::vector<double> ratios;
    for (const auto& run : runs_)
      if (is_alike(run.planned.seconds[i], planned.seconds[i]))
        ratios.push_back(run.measured.seconds[i] / run.planned.seconds[i]);
    if (ratios.empty()) continue;
    time.seconds[i] *= median(ratios);
    is_any = true;
  }
  return is_any ? std::optional(time) : std::nullopt;
}

PlanErrors PlanErrors::parse(const Json& json) {
  const auto& format = text_at(json, "format");
  if (format != kFormat)
    throw DataError(str("format: expected \"", kFormat, "\", found \"", format, "\""));
  PlanErrors plan_errors;
  for (const Json& run : json.at("runs").as_array())
    plan_errors.add(parse_run(run));
  return plan_errors;
}

Json PlanErrors::to_json() const {
  Json::Array runs;
  for (const auto& run : runs_) {
    Json::Array components;
    for (std::size_t i = 0; i < kComponents; ++i)
      if (run.planned.seconds[i] > 0 || run.measured.seconds[i] > 0)
        components.emplace_back(Json::Object{{"name", name(static_cast<Component>(i))},
                                             {"planned_seconds", run.planned.seconds[i]},
                                             {"measured_seconds", run.measured.seconds[i]}});
    runs.emplace_back(Json::Object{{"key", run.key}, {"components", components}});
  }
  return Json::Object{{"format", kFormat}, {"runs", runs}};
}

}  // namespace lockstep
