#include "launch/config.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <unistd.h>

#include "core/file.h"
#include "core/integer.h"
#include "core/nearest.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/key_names.h"
#include "launch/options.h"
#include "launch/phases.h"
#include "launch/presets.h"
#include "model/token_chunks.h"
#include "train/fp8_sizes.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostConfigBytes = 1 << 20;
constexpr std::string_view kPhase = "phase";

struct Assignment {
  const Option* option;
  TomlValue value;
  std::string origin;
  std::string file;  // file whose lines errors name; empty: none
};

std::vector<std::string> tables() {
  std::vector<std::string> all;
  for (const auto& option : options())
    if (all.empty() || all.back() != option.table()) all.emplace_back(option.table());
  return all;
}

const Option& option_of(const std::string& key, const std::string& origin) {
  if (const auto* option = find_option(key)) return *option;
  throw ConfigError(str(origin, ": unknown key ", key, did_you_mean_key(key)));
}

}  // namespace

// Parses a value from the command line or the environment. A key with string values uses the text
// verbatim, unless it is a quoted string or an array.
TomlValue value_of(const Setting& setting, const Option& option) {
  const auto parsed = parse_toml_value(setting.value);
  Config scratch;
  const auto field = option.field(scratch);
  const bool takes_text = std::holds_alternative<std::string*>(field) ||
                          std::holds_alternative<std::vector<std::string>*>(field) ||
                          std::holds_alternative<Choice>(field);
  const bool is_text = parsed && (std::holds_alternative<std::string>(*parsed) ||
                                  std::holds_alternative<std::vector<std::string>>(*parsed));
  const bool opens = setting.value.find_first_of("\"'[{") == 0;
  if (is_text || (parsed && (!takes_text || opens))) return *parsed;
  const bool is_utf8 = parse_toml_value(toml_quoted(setting.value)).has_value();
  if (!is_utf8 || (opens && !parsed))
    throw ConfigError(
        str(setting.origin, ": ", setting.key, ": invalid TOML value: ", setting.value));
  return setting.value;
}

namespace {

std::vector<Assignment> assignments_of_file(const TomlDocument& document, const std::string& name) {
  const auto known = tables();
  for (const auto& table : document.tables) {
    if (std::find(known.begin(), known.end(), table.name) != known.end()) continue;
    throw ConfigError(
        str(name, ":", table.line, ": unknown table [", table.name, "]",
            table.name == kPhase ? "; did you mean [[phase]]?" : did_you_mean_table(table.name)));
  }
  std::vector<Assignment> all;
  for (const auto& entry : document.entries) {
    if (entry.key == kPhase) continue;
    const auto origin = str(name, ":", entry.line);
    all.push_back({&option_of(entry.key, origin), entry.value, origin, name});
  }
  return all;
}

void set_key(const Assignment& a, ResolvedConfig& resolved) {
  int line = 0;
  const auto wrong = assign(*a.option, resolved.values, a.value, &line);
  const auto origin = line > 0 && !a.file.empty() ? str(a.file, ":", line) : a.origin;
  if (!wrong.empty()) throw ConfigError(str(origin, ": ", a.option->key, ": ", wrong));
  resolved.origins.insert_or_assign(std::string(a.option->key), a.origin);
}

// Two keys for one thing. A later layer replaces the key of an earlier one, so a command line may
// give tokens where a file has steps.
struct Alternatives {
  std::string_view key, other;
};
constexpr Alternatives kAlternatives[] = {{"train.steps", "train.tokens"},
                                          {"schedule.warmup_steps", "schedule.warmup_tokens"},
                                          {"schedule.decay_fraction", "schedule.decay_steps"},
                                          {"data.train", "data.source"}};

// The order in which origins override each other.
int precedence(std::string_view origin) {
  if (origin.find(kOfPhase) != origin.npos) return 4;  // phases without what layers above set
  if (origin.starts_with("--set")) return 3;
  if (origin.starts_with("environment ")) return 2;
  return origin.starts_with("default") ? 0 : 1;
}

// 0 and empty lists mean that the other key holds.
bool is_unset(const TomlValue& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  return (integer != nullptr && *integer == 0) || (list != nullptr && list->empty());
}

// Removes the assignments of keys that a key of a later layer replaces. Throws ConfigError if one
// layer sets both.
void remove_replaced(std::vector<Assignment>& all) {
  const auto last_of = [&](std::string_view key) {
    return std::ranges::find(all.rbegin(), all.rend(), key,
                             [](const Assignment& a) { return a.option->key; });
  };
  for (const auto& [key, other] : kAlternatives) {
    const auto a = last_of(key), b = last_of(other);
    if (a == all.rend() || b == all.rend() || is_unset(a->value) || is_unset(b->value)) continue;
    const int difference = precedence(a->origin) - precedence(b->origin);
    if (difference == 0 && key == "data.train") continue;  // check_data
    if (difference == 0)
      throw ConfigError(str(a->origin, ": ", key, " and ", other, " (", b->origin,
                            ") are both set; remove one of them"));
    std::erase_if(all, [replaced = difference > 0 ? other : key](const Assignment& assignment) {
      return assignment.option->key == replaced;
    });
  }
}

void replace_automatic(std::vector<Assignment>& all, DType automatic) {
  for (auto& assignment : all)
    if (const auto* text = std::get_if<std::string>(&assignment.value);
        assignment.option->key == "precision.compute" && text != nullptr && *text == "auto") {
      assignment.value = std::string(name(automatic));
      assignment.origin += kAutomatic;
    }
}

// Sets model.family first, because it decides the defaults of the other keys of the model.
void set_all(const std::vector<Assignment>& all, ResolvedConfig& resolved) {
  for (const auto& a : all)
    if (a.option->key == "model.family") set_key(a, resolved);
  resolved.values.model = family_defaults(resolved.values.model.family);
  for (const auto& a : all)
    set_key(a, resolved);
}

// Begins an error about `key`: "a.toml:7: model.width". If a key of `text` overrides the file and
// `key` does not, that key is the cause: "--set: model.heads is 7: model.width (a.toml:7)".
std::string origin_and_key(const ResolvedConfig& resolved, std::string_view key,
                           std::string_view text) {
  const auto& of_key = resolved.origins.find(key)->second;
  const Option* cause = nullptr;
  std::string_view origin = of_key;
  for (const auto& option : options()) {
    const auto other = resolved.origins.find(option.key);
    const auto at = text.find(option.key);
    if (other == resolved.origins.end() || at == text.npos) continue;
    const auto end = at + option.key.size();
    const bool goes_on = end < text.size() && (text[end] == '_' || std::isalnum(text[end]) != 0);
    if (goes_on || precedence(other->second) <= std::max(precedence(origin), 1)) continue;
    cause = &option;
    origin = other->second;
  }
  if (cause == nullptr) return str(origin, ": ", key);
  return str(origin, ": ", cause->key, " is ", to_toml(*cause, resolved.values), ": ", key, " (",
             of_key, ")");
}

void fill_defaults(ResolvedConfig& resolved, const std::string& name) {
  for (const auto& option : options()) {
    if (resolved.origins.count(option.key) != 0) continue;
    if (option.required())
      throw ConfigError(str(name, ": ", option.key, " is not set: expected ", expected(option)));
    if (option.derive) {
      option.derive(resolved.values);
      const auto value = parse_toml_value(to_toml(option, resolved.values));
      resolved.origins.emplace(option.key, name);
      if (const auto wrong = assign(option, resolved.values, *value); !wrong.empty())
        throw ConfigError(str(origin_and_key(resolved, option.key, option.rule), ": ", wrong,
                              ", the default (", option.rule,
                              "); set this key, or the keys that the default depends on"));
    }
    resolved.origins.insert_or_assign(
        std::string(option.key), option.rule.empty() ? "default" : str("default: ", option.rule));
  }
}

struct ToJson {
  Json operator()(const std::vector<std::string>& values) const {
    Json::Array array;
    for (const auto& value : values)
      array.emplace_back(value);
    return array;
  }
  Json operator()(const TomlTables& tables) const {
    Json::Array array;
    for (const auto& table : tables.tables) {
      Json json;
      for (const auto& entry : table)
        json.set(entry.key, std::visit(*this, entry.value));
      array.push_back(json);
    }
    return array;
  }
  Json operator()(const TomlOther& other) const { LOCKSTEP_FAIL("a value is ", other.kind); }
  template <class Value>
  Json operator()(const Value& value) const {
    return value;
  }
};

// Formats the result of ToJson as TOML, which differs from JSON in objects. A list has one value
// per line.
std::string toml_of(const Json& json) {
  if (json.is_object()) {
    std::string text;
    for (const auto& [key, value] : json.as_object())
      text += str(text.empty() ? "" : ", ", key, " = ", toml_of(value));
    return "{" + text + "}";
  }
  if (!json.is_array()) return json.dump();
  std::string text;
  for (const auto& value : json.as_array())
    text += toml_of(value) + ",\n";
  return "[" + text + "]";
}

std::string tensor_ranks_of_fp8(const ModelConfig& m, Fp8Matmuls fp8) {
  std::string sizes;
  for (std::int64_t t = 1; t <= m.kv_heads; ++t)
    if (m.kv_heads % t == 0 && m.heads % t == 0 && has_fp8_matmuls(m, fp8, t))
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(t);
  return sizes;
}

// Consistency checks values that are valid alone but may conflict with each other.
class Consistency {
 public:
  explicit Consistency(const ResolvedConfig& resolved) : resolved_(resolved) {}

  // Throws ConfigError with the origin of the key, the key and its value unless `condition` holds.
  void require(bool condition, std::string_view key, const std::string& expectation) const {
    if (condition) return;
    const auto* option = find_option(key);
    throw ConfigError(str(origin_and_key(resolved_, key, expectation), " is ",
                          to_toml(*option, resolved_.values), ", expected ", expectation));
  }

  void check_model() const {
    const auto& m = resolved_.values.model;
    require(m.heads % m.kv_heads == 0, "model.kv_heads",
            str("a divisor of model.heads (", m.heads, ")"));
    const bool sized = resolved_.origins.find("model.head_size")->second.rfind("default", 0) != 0;
    // gpt2 has no separate head size. For llama3, `transformers` loads no other width.
    const bool divides = m.family == Family::gpt2 || m.family == Family::llama3;
    require(m.width % m.heads == 0 || (sized && !divides), "model.width",
            str("a multiple of model.heads (", m.heads, ")",
                divides ? str(" for ", name(m.family)) : ", or set model.head_size"));
    require(m.learned_positions || m.head_size % 2 == 0, "model.head_size",
            "an even number, because rotary positions rotate pairs");
    const auto& scaling = resolved_.values.rope_scaling;
    require(scaling.low_factor < scaling.high_factor, "model.rope_scaling_low",
            str("less than model.rope_scaling_high (", scaling.high_factor, ")"));
    if (m.family == Family::gpt2) check_gpt2();
  }

  void check_layout() const {
    const auto& l = resolved_.values.layout;
    require(l.keep_gathered == 0 || divides_weights(l.sharding), "layout.keep_gathered",
            "0 unless layout.sharding is \"full\" or \"weights\": otherwise weights are "
            "all-gathered at "
            "most once per step");
    require(l.reduce != Reduce::bf16 || resolved_.values.precision.compute == DType::bf16,
            "layout.reduce",
            "\"fp32\" or \"nccl\" with precision.compute = \"fp32\"; or set precision.compute to "
            "\"bf16\"");
    require(l.keep_gathered <= resolved_.values.model.layers, "layout.keep_gathered",
            str("at most model.layers (", resolved_.values.model.layers, ")"));
    const auto& t = resolved_.values.train;
    const auto tokens = t.micro_batch * t.sequence_length;
    const auto multiple = chunk_multiple(l.tensor, l.tensor_chunks, resolved_.values.precision.fp8);
    require(l.tensor == 1 || l.tensor_chunks == 1 || tokens % multiple == 0, "layout.tensor_chunks",
            str("1, or a micro-batch of a multiple of ", multiple, " tokens; it has ", tokens));
  }

  void check_train() const {
    const auto& t = resolved_.values.train;
    const auto T = t.sequence_length;
    require(T <= resolved_.values.model.max_positions, "train.sequence_length",
            str("at most model.max_positions (", resolved_.values.model.max_positions, ")"));
    const auto batch = std::max<std::int64_t>(1, (t.batch_tokens + T / 2) / T) * T;
    require(t.batch_tokens % T == 0, "train.batch_tokens",
            str("a multiple of train.sequence_length (", T, "), such as ", batch));
    require(t.micro_batch <= t.batch_tokens / T, "train.micro_batch",
            str("at most the sequences of a step (", t.batch_tokens / T, ")"));
    require(!t.offloads() || t.cuda_graphs != Config::CudaGraphs::on, "train.cuda_graphs",
            str("\"auto\" or \"off\" with train.offload_",
                t.offload_activations ? "activations" : "optimizer",
                ", because CUDA graphs do not include its copies"));
    require(resolved_.values.schedule.warmup_steps <= t.steps, "schedule.warmup_steps",
            str("at most train.steps (", t.steps, "); the default is 2% of train.steps"));
    require(resolved_.values.schedule.decay_steps <= t.steps, "schedule.decay_steps",
            str("at most train.steps (", t.steps, ")"));
  }

  void check_data(const std::string& name) const {
    const auto& d = resolved_.values.data;
    if (d.train.empty() && d.source.empty())
      throw ConfigError(str(name, ": no training data; set data.train or tables [[data.source]]"));
    if (!d.train.empty() && !d.source.empty())
      throw ConfigError(str(resolved_.origins.find("data.source")->second,
                            ": data.source and data.train (",
                            resolved_.origins.find("data.train")->second,
                            ") are both set; list all datasets in data.source"));
    require(d.shuffle_shards == 0 || d.rows == RowKind::automatic || d.rows == RowKind::windows,
            "data.shuffle_shards", "0 unless data.rows is \"windows\"");
  }

  void check_precision() const {
    const auto& p = resolved_.values.precision;
    if (p.fp8 == Fp8Matmuls::off) return;
    require(p.compute == DType::bf16, "precision.fp8",
            "\"off\" with precision.compute = \"fp32\"; or set precision.compute to \"bf16\"");
    const auto multiple = size_multiple(weight_scaling(p.fp8));
    const auto& m = resolved_.values.model;
    for (const auto size : {m.width, m.attention_width(), m.qkv_heads() * m.head_size, m.mlp_width})
      require(size % multiple == 0, "precision.fp8",
              str(p.fp8 == Fp8Matmuls::tensor ? "\"off\"" : "\"tensor\" or \"off\"",
                  ": this value needs matrix sizes that are multiples of ", multiple,
                  ", and one is ", size));
    const auto ranks = resolved_.values.layout.tensor;
    require(has_fp8_matmuls(m, p.fp8, ranks), "layout.tensor",
            str(tensor_ranks_of_fp8(m, p.fp8), ": precision.fp8 needs a multiple of ", multiple,
                " in each rank's part of q, k, v and of the MLP"));
    const auto& t = resolved_.values.train;
    require(t.micro_batch * t.sequence_length % multiple == 0, "train.micro_batch",
            str("a multiple of ", multiple / std::gcd(multiple, t.sequence_length),
                ": precision.fp8 needs a multiple of ", multiple, " tokens per micro-batch"));
  }

  void check_checkpoint() const {
    const auto& c = resolved_.values.checkpoint;
    require(!c.partner_copies || !c.local_directory.empty(), "checkpoint.partner_copies",
            "checkpoint.local_directory to be set too: partners copy local checkpoints");
    require(c.archive_directory.empty() || c.keep_every_steps > 0, "checkpoint.archive_directory",
            "checkpoint.keep_every_steps to be set too: it selects the archived checkpoints");
  }

  void check_log() const {
    const auto& l = resolved_.values.log;
    const auto& m = resolved_.values.model;
    const bool is_named = std::filesystem::path(l.prometheus_file).extension() == ".prom";
    require(l.prometheus_file.empty() || is_named, "log.prometheus_file",
            "a name that ends in .prom, which node exporter reads and no other file of a run has");
    if (l.sample_every_steps == 0) return;
    require(m.vocabulary != ByteTokenizer::kVocabulary ||
                static_cast<std::int64_t>(l.sample_prompt.size()) + 1 < m.max_positions,
            "log.sample_prompt",
            str("fewer than ", m.max_positions - 1, " bytes with model.max_positions (",
                m.max_positions, ")"));
  }

 private:
  void check_gpt2() const {
    const auto& m = resolved_.values.model;
    require(m.kv_heads == m.heads, "model.kv_heads", str("model.heads (", m.heads, ") for gpt2"));
    require(m.head_size * m.heads == m.width, "model.head_size",
            str("model.width / model.heads (", m.width / m.heads, ") for gpt2"));
    require(resolved_.values.rope_scaling.factor == 1, "model.rope_scaling_factor",
            "1 for gpt2, which has no rotary positions");
  }

  const ResolvedConfig& resolved_;
};

std::string upper(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string variable_of(std::string_view key) {
  return "LOCKSTEP_" + upper(key);
}

}  // namespace

Setting parse_setting(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == text.npos || equals == 0)
    throw UsageError(str("--set ", text, ": expected table.key=value"));
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), "--set"};
}

namespace {

// The known variable that a misspelt LOCKSTEP_ variable probably means; "": none.
std::string misspelt(const std::string& variable, const std::vector<std::string>& variables) {
  constexpr std::string_view kBegin = "LOCKSTEP_";
  if (!variable.starts_with(kBegin)) return "";
  std::vector<std::string> ends;
  for (const auto& one : variables)
    ends.push_back(one.substr(kBegin.size()));
  const auto near = nearest(variable.substr(kBegin.size()), ends);
  return near.empty() ? near : str(kBegin, near);
}

}  // namespace

std::vector<Setting> environment_settings(const char* const* environment) {
  std::vector<std::string> variables;
  for (const auto& option : options())
    variables.push_back(variable_of(option.key));
  std::vector<Setting> settings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const auto equals = entry.find('=');
    const std::string variable(entry.substr(0, equals));
    const auto of_table = [&](const auto& t) {
      return variable.rfind(variable_of(t) + "_", 0) == 0;
    };
    const auto known = tables();
    const auto origin = "environment " + variable;
    if (equals == entry.npos) continue;
    if (std::none_of(known.begin(), known.end(), of_table)) {
      if (const auto near = misspelt(variable, variables); !near.empty())
        throw ConfigError(str(origin, ": unknown key; did you mean ", near, "?"));
      continue;
    }
    const auto at = std::find(variables.begin(), variables.end(), variable);
    if (at == variables.end())
      throw ConfigError(str(origin, ": unknown key", did_you_mean_variable(variable, variables)));
    const auto& option = options()[static_cast<std::size_t>(at - variables.begin())];
    settings.push_back({std::string(option.key), std::string(entry.substr(equals + 1)), origin});
  }
  return settings;
}

namespace {

// Resolves a configuration without its phases.
ResolvedConfig resolve_one(const TomlDocument& document, const std::string& name,
                           const std::vector<Setting>& settings, int ranks, DType automatic) {
  auto all = assignments_of_file(document, name);
  for (const auto& setting : settings) {
    const auto& option = option_of(setting.key, setting.origin);
    all.push_back({&option, value_of(setting, option), setting.origin, ""});
  }
  remove_replaced(all);
  replace_automatic(all, automatic);
  ResolvedConfig resolved;
  resolved.values.layout.ranks = ranks;
  set_all(all, resolved);
  fill_defaults(resolved, name);
  const Consistency consistency(resolved);
  consistency.check_model();
  consistency.check_layout();
  consistency.check_train();
  consistency.check_data(name);
  consistency.check_checkpoint();
  consistency.check_log();
  consistency.check_precision();
  auto& values = resolved.values;
  if (values.rope_scaling.factor > 1) values.model.rope_scaling = values.rope_scaling;
  try {
    values.model.validate();
  } catch (const ConfigError& error) {  // "model.width is ..."
    const std::string what = error.what();
    const auto origin = resolved.origins.find(what.substr(0, what.find(' ')));
    throw ConfigError(str(origin == resolved.origins.end() ? name : origin->second, ": ", what));
  }
  return resolved;
}

}  // namespace

ResolvedConfig resolve_config(std::string_view text, const std::string& name,
                              const std::vector<Setting>& settings, int ranks, DType automatic,
                              const Amendments& changes) {
  const auto document = parse_toml(text, name);
  auto resolved = resolve_one(document, name, settings, ranks, automatic);
  const auto phases = std::ranges::find(document.entries, kPhase, &TomlEntry::key);
  const bool has_phases = phases != document.entries.end();
  if (!has_phases && changes.empty()) return resolved;
  const auto* tables = has_phases ? std::get_if<TomlTables>(&phases->value) : nullptr;
  if (has_phases && tables == nullptr)
    throw ConfigError(str(name, ":", phases->line, ": phase: expected tables [[phase]]"));
  resolve_phases(has_phases ? *tables : TomlTables{}, changes, name, resolved,
                 [&](const std::vector<Setting>& more) {
                   auto with_phase = settings;
                   with_phase.insert(with_phase.end(), more.begin(), more.end());
                   return resolve_one(document, name, with_phase, ranks, automatic);
                 });
  return resolved;
}

ConfigText read_config(const std::filesystem::path& named,
                       const std::vector<Setting>& command_line) {
  auto settings = environment_settings(environ);
  settings.insert(settings.end(), command_line.begin(), command_line.end());
  const auto file = config_file(named);
  std::string text;
  try {
    text = read_text(file, kMostConfigBytes);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& e) {
    throw ConfigError(e.what());
  }
  return {std::move(text), file.string(), std::move(settings)};
}

ResolvedConfig load_config(const std::filesystem::path& named,
                           const std::vector<Setting>& command_line, int ranks, DType automatic) {
  const auto config = read_config(named, command_line);
  return resolve_config(config.text, config.name, config.settings, ranks, automatic);
}

std::string derived_axis_in_words(const ResolvedConfig& config, std::int64_t ranks_per_host) {
  const auto& l = config.values.layout;
  const auto is_set = [&](const char* key) {
    return !config.origins.find(key)->second.starts_with("default");
  };
  const bool has_shard = is_set("layout.shard"), has_replicate = is_set("layout.replicate");
  const bool is_partial = has_shard ? !has_replicate : has_replicate || is_set("layout.tensor");
  if (l.ranks == 1 || !is_partial || l.replicate * l.shard * l.tensor != l.ranks) return "";
  const auto hosts = divide_up(l.shard * l.tensor, ranks_per_host);
  return str(has_shard ? "layout.replicate" : "layout.shard", " is not set: it is ",
             has_shard ? l.replicate : l.shard, " (", l.ranks, " ranks / (",
             has_shard ? str("layout.shard ", l.shard) : str("layout.replicate ", l.replicate),
             " x layout.tensor ", l.tensor, ")); each copy of the model spans ", hosts,
             hosts == 1 ? " host" : " hosts");
}

std::string to_toml(const ResolvedConfig& config) {
  const auto comment = [](std::string origin) {  // replaces characters that a comment cannot hold
    std::replace_if(
        origin.begin(), origin.end(), [](unsigned char c) { return c < 0x20; }, '?');
    return origin;
  };
  std::string text;
  for (const auto& table : tables()) {
    text += str(text.empty() ? "[" : "\n[", table, "]\n");
    for (const auto& option : options()) {
      if (option.table() != table) continue;
      const auto& origin = config.origins.find(option.key)->second;
      // A derived default is a comment, so that the next run with this file derives it again.
      const bool follows = !option.rule.empty() && origin.rfind("default", 0) == 0;
      auto line = str(follows ? "# " : "", option.name(), " = ", to_toml(option, config.values));
      constexpr std::size_t kComment = 40;
      const auto last = line.size() - (line.rfind('\n') + 1);  // npos + 1 is 0
      line.append(std::max(last + 2, kComment) - last, ' ');
      text += str(line, "# ", comment(origin), "\n");
    }
  }
  return text + to_toml(config.phases);
}

std::string toml_text(const TomlValue& value) {
  return toml_of(std::visit(ToJson{}, value));
}

std::string model_to_toml(const ModelConfig& model) {
  Config config;
  config.model = model;
  if (model.rope_scaling) config.rope_scaling = *model.rope_scaling;
  std::string text = "[model]\n";
  for (const auto& option : options())
    if (option.table() == "model") text += str(option.name(), " = ", to_toml(option, config), "\n");
  return text;
}

Json to_json(const Config& config) {
  Json json;
  for (const auto& option : options())
    json.set(std::string(option.key),
             std::visit(ToJson{}, *parse_toml_value(to_toml(option, config))));
  return json;
}

ResolvedConfig config_from_json(const Json& json, const std::string& origin) {
  const auto is_replaced = [&](const std::string& key) {
    return std::ranges::any_of(kAlternatives, [&](const Alternatives& keys) {
      if (keys.other.ends_with("tokens")) return key == keys.other;  // the steps are exact
      const Json* other = json.find(keys.other);
      return key == keys.key && other != nullptr && !is_unset(*parse_toml_value(toml_of(*other)));
    });
  };
  std::vector<Setting> settings;
  for (const auto& [key, value] : json.as_object())
    if (!is_replaced(key)) settings.push_back({key, toml_of(value), origin});
  return resolve_config("", origin, settings);
}

}  // namespace lockstep
