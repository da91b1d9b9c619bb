#include "launch/phases.h"

#include <algorithm>
#include <array>

#include "core/integer.h"
#include "core/log.h"
#include "launch/key_names.h"
#include "launch/options.h"

namespace lockstep {
namespace {

constexpr std::string_view kFromStep = "from_step", kFromTokens = "from_tokens";

bool is_of_rate(std::string_view key) {
  return key.starts_with("schedule.") || key == "optimizer.learning_rate";
}

// A resume accepts other values of these keys.
bool may_change(std::string_view key) {
  constexpr std::array kFixed{"train.steps",        "train.tokens", "train.seed",
                              "train.init_from",    "data.seed",    "data.rows",
                              "data.shuffle_shards"};
  if (std::ranges::find(kFixed, key) != kFixed.end()) return false;
  const auto table = key.substr(0, key.find('.'));
  if (table == "model") return key == "model.rope_theta";
  return table != "precision";
}

// Whether `lockstep ctl set` may change the key. Of data.source only the weights may change.
bool may_change_live(std::string_view key) {
  constexpr std::array kKeys{"train.batch_tokens",     "train.weight_hash_every_steps",
                             "train.most_skipped",     "data.source",
                             "checkpoint.every_steps", "checkpoint.most_failed",
                             "checkpoint.keep_last",   "checkpoint.keep_every_steps",
                             "checkpoint.keep_best",   "log.every_steps",
                             "log.tensorboard",        "log.sample_every_steps",
                             "log.sample_tokens",      "plan.compare_every_steps"};
  return key.starts_with("optimizer.") || key.starts_with("schedule.") ||
         key.starts_with("eval.") || std::ranges::find(kKeys, key) != kKeys.end();
}

constexpr std::string_view kOfRequest = "request ";  // begins the origin of a live setting
// A live setting has the negative number of its request as its line.
bool is_live(const TomlEntry& entry) {
  return entry.line < 0;
}

// Appends the settings of a live change to a table.
void append(const Amendment& change, std::vector<TomlEntry>& table) {
  const auto number = request_number(change.request);
  const auto origin = str(kOfRequest, number);
  for (const auto& text : change.settings) {
    const auto at = text.find('=');
    const Setting setting{text.substr(0, at), at == text.npos ? "" : text.substr(at + 1), origin};
    const auto* option = find_option(setting.key);
    if (option == nullptr)
      throw ConfigError(str(origin, ": unknown key ", setting.key, did_you_mean_key(setting.key)));
    table.push_back({setting.key, value_of(setting, *option), -static_cast<int>(number)});
  }
}

// Reads a phase; positions are those of the phases before it.
class Reader {
 public:
  Reader(const std::string& name, const ResolvedConfig& base)
      : name_(name), base_(base), parts_{{0, 0, base.values.train.batch_tokens}} {
    for (const auto& [key, origin] : base.origins)
      rate_is_set_outside_ = rate_is_set_outside_ || (is_of_rate(key) && is_outside(origin));
  }

  void read(const std::vector<TomlEntry>& table,
            FunctionRef<ResolvedConfig(const std::vector<Setting>& settings)> resolve) {
    ++number_;
    Phase phase;
    std::vector<const TomlEntry*> of_rate;
    for (const auto& entry : table) {
      if (entry.key == kFromStep || entry.key == kFromTokens) {
        begin(entry, phase);
        continue;
      }
      check_key(entry);
      if (!is_live(entry) && is_hidden(entry.key)) {
        log_info("phase ", number_, ": ", entry.key, " is ignored: --set or the environment sets ",
                 is_of_rate(entry.key) ? "the schedule" : "it", " for the whole run");
        continue;
      }
      const auto value = toml_text(entry.value);
      phase.settings.push_back({entry.key, value, str(origin(entry), kOfPhase, number_, ")")});
      if (is_of_rate(entry.key))
        of_rate.push_back(&entry);
      else
        settings_.push_back(phase.settings.back()), phase.restarts = true;
    }
    replace_other_data(table);
    if (phase.begin.empty())
      throw ConfigError(str(table.empty() ? name_ : origin(table.front()), ": phase ", number_,
                            " has neither from_step nor from_tokens"));
    phase.values = resolve(settings_).values;
    check_sources(table, phase);
    if (is_live(table.front())) phase.begin.clear();
    if (!of_rate.empty()) rates_.push_back(rate(of_rate, phase));
    parts_.push_back({phase.from_step, tokens_, phase.values.train.batch_tokens});
    phases_.push_back(std::move(phase));
  }

  // The step after which a table begins; 0 if it has none, which read() reports.
  std::int64_t begin_of(const std::vector<TomlEntry>& table) const {
    for (const auto& entry : table)
      if (entry.key == kFromStep || entry.key == kFromTokens)
        return entry.key == kFromStep ? count_in(entry) : step_of(count_in(entry));
    return 0;
  }

  // Gives all phases the whole schedule. Warns of phases that begin after the end of the run.
  void finish(ResolvedConfig& base) {
    const auto tokens = base.values.train.tokens;
    const auto steps = tokens > 0 ? step_of(tokens) : base.values.train.steps;
    for (std::size_t i = 0; i < phases_.size(); ++i)
      if (phases_[i].from_step >= steps) {
        phases_[i].restarts = false;
        log_warning("phase ", i + 1, " begins after step ", phases_[i].from_step,
                    ", but the run has ", steps, " steps: it has no effect");
      }
    base.phases = std::move(phases_);
    const auto complete = [&](Config& values) {
      values.rate_phases = rates_;
      values.schedule = base.values.schedule;  // also if its default depends on the batch
      values.train.steps = steps;
    };
    complete(base.values);
    for (auto& phase : base.phases)
      complete(phase.values);
  }

 private:
  // A command line and the environment hold for all phases. With one key of the schedule they set
  // all of it.
  static bool is_outside(std::string_view origin) {
    return origin.starts_with("--") || origin.starts_with("environment ");
  }
  bool is_hidden(std::string_view key) const {
    const auto other = key == "data.train"    ? std::string_view("data.source")
                       : key == "data.source" ? std::string_view("data.train")
                                              : key;
    return (is_of_rate(key) && rate_is_set_outside_) ||
           is_outside(base_.origins.find(key)->second) ||
           is_outside(base_.origins.find(other)->second);
  }

  // data.source and data.train replace each other.
  void replace_other_data(const std::vector<TomlEntry>& table) {
    const auto sets = [&](std::string_view key) {
      return std::ranges::find(table, key, &TomlEntry::key) != table.end();
    };
    const bool source = sets("data.source"), train = sets("data.train");
    if (source != train && !is_hidden("data.train"))
      settings_.push_back({source ? "data.train" : "data.source", "[]", settings_.back().origin});
  }

  std::string origin(const TomlEntry& entry) const {
    return is_live(entry) ? str(kOfRequest, -entry.line) : str(name_, ":", entry.line);
  }

  // A live change may change only the weights of the sources.
  void check_sources(const std::vector<TomlEntry>& table, const Phase& phase) const {
    const auto paths = [](const Config& config) {
      std::vector<std::vector<std::string>> all;
      for (const auto& source : config.data.sources())
        all.push_back(source.paths);
      return all;
    };
    const auto& before = phases_.empty() ? base_.values : phases_.back().values;
    for (const auto& entry : table)
      if (is_live(entry) && entry.key == "data.source" && paths(before) != paths(phase.values))
        throw ConfigError(str(origin(entry),
                              ": data.source: expected the sources that the run reads, in their "
                              "order, with other weights"));
  }

  void check_key(const TomlEntry& entry) const {
    if (find_option(entry.key) == nullptr)
      throw ConfigError(
          str(origin(entry), ": unknown key ", entry.key, did_you_mean_key(entry.key)));
    if (is_live(entry) && !may_change_live(entry.key))
      throw ConfigError(str(
          origin(entry), ": ", entry.key, ": cannot change while the run trains",
          may_change(entry.key) ? "; stop the run, and add a [[phase]] to its configuration" : ""));
    if (!may_change(entry.key))
      throw ConfigError(str(origin(entry), ": ", entry.key,
                            ": cannot change in a phase; set it in the table [",
                            entry.key.substr(0, entry.key.find('.')), "]"));
  }

  // The first step at which the run has seen this number of tokens.
  std::int64_t step_of(std::int64_t tokens) const {
    const auto after = std::ranges::lower_bound(parts_, tokens, {}, &Part::tokens);
    const auto& part = after == parts_.begin() ? *after : *std::prev(after);
    return part.from_step + divide_up(tokens - part.tokens, part.batch_tokens);
  }

  std::int64_t count_in(const TomlEntry& entry) const {
    const auto* whole = std::get_if<std::int64_t>(&entry.value);
    const auto* real = std::get_if<double>(&entry.value);
    const auto count = whole != nullptr  ? *whole
                       : real != nullptr ? static_cast<std::int64_t>(*real)
                                         : std::int64_t{0};
    if (count < 1 || count > 1'000'000'000'000'000)
      throw ConfigError(str(origin(entry), ": ", entry.key, ": expected a positive integer, found ",
                            describe(entry.value)));
    return count;
  }

  void begin(const TomlEntry& entry, Phase& phase) {
    const auto count = count_in(entry);
    if (!phase.begin.empty())
      throw ConfigError(str(origin(entry), ": phase ", number_,
                            " has both from_step and from_tokens; remove one of them"));
    phase.begin = str(entry.key, " = ", count);
    phase.from_step = entry.key == kFromStep ? count : step_of(count);
    if (phase.from_step <= step_)
      throw ConfigError(str(origin(entry), ": phase ", number_, " begins after step ",
                            phase.from_step, ", expected a step after ", step_, ", where phase ",
                            number_ - 1, " begins; list the phases in order"));
    tokens_ += (phase.from_step - step_) * parts_.back().batch_tokens;
    step_ = phase.from_step;
  }

  Config::RatePhase rate(const std::vector<const TomlEntry*>& entries, const Phase& phase) const {
    Config scratch = phase.values;
    const auto kind = rates_.empty() ? phase.values.schedule.kind : rates_.back().schedule.kind;
    scratch.schedule = {.kind = kind};
    Config::RatePhase rate{.from_step = phase.from_step, .schedule = {}, .peak = {}};
    rate.is_live = std::ranges::any_of(entries, [](const auto* entry) { return is_live(*entry); });
    std::vector<std::string_view> set;
    for (const auto* entry : entries) {
      if (const auto wrong = assign(*find_option(entry->key), scratch, entry->value);
          !wrong.empty())
        throw ConfigError(str(origin(*entry), ": ", entry->key, ": ", wrong));
      set.emplace_back(entry->key);
      if (entry->key == "optimizer.learning_rate") rate.peak = scratch.optimizer.learning_rate;
    }
    const auto is_set = [&](std::string_view key) { return std::ranges::count(set, key) > 0; };
    for (const char* key : {"schedule.decay_fraction", "schedule.final_ratio"})
      if (!is_set(key)) find_option(key)->derive(scratch);
    if (scratch.schedule.warmup_tokens > 0) find_option("schedule.warmup_steps")->derive(scratch);
    rate.schedule = scratch.schedule;
    return rate;
  }

  const std::string& name_;
  const ResolvedConfig& base_;
  bool rate_is_set_outside_ = false;
  // Steps with one batch.
  struct Part {
    std::int64_t from_step, tokens, batch_tokens;
  };
  std::vector<Part> parts_;
  int number_ = 0;
  std::int64_t step_ = 0, tokens_ = 0;  // of the run where the newest phase begins
  std::vector<Setting> settings_;       // of all phases so far, without the schedule
  std::vector<Config::RatePhase> rates_;
  std::vector<Phase> phases_;
};

}  // namespace

void resolve_phases(const TomlTables& tables, const Amendments& changes, const std::string& name,
                    ResolvedConfig& base,
                    FunctionRef<ResolvedConfig(const std::vector<Setting>& settings)> resolve) {
  Reader reader(name, base);
  Amendments live = changes;
  std::ranges::stable_sort(live, {}, &Amendment::at_step);
  auto next = live.begin();
  const auto append_next = [&](std::vector<TomlEntry>& table) {
    for (const auto at = next->at_step; next != live.end() && next->at_step == at; ++next)
      append(*next, table);
  };
  const auto read_live = [&] {
    const auto number = static_cast<int>(request_number(next->request));
    std::vector<TomlEntry> table{{std::string(kFromStep), next->at_step, -number}};
    append_next(table);
    reader.read(table, resolve);
  };
  for (auto table : tables.tables) {
    while (next != live.end() && next->at_step < reader.begin_of(table))
      read_live();
    if (next != live.end() && next->at_step == reader.begin_of(table)) append_next(table);
    reader.read(table, resolve);
  }
  while (next != live.end())
    read_live();
  reader.finish(base);
}

std::string to_toml(const std::vector<Phase>& phases) {
  std::string text;
  for (const auto& phase : phases) {
    if (phase.begin.empty()) continue;
    text += str("\n[[phase]]\n", phase.begin, "\n");
    for (const auto& setting : phase.settings)
      if (!setting.origin.starts_with(kOfRequest))
        text += str(setting.key, " = ", setting.value, "\n");
  }
  return text;
}

}  // namespace lockstep
