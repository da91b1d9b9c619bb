#include "launch/report/run_files.h"

#include <charconv>
#include <limits>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/json.h"
#include "core/toml.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = 1 << 20;
constexpr std::int64_t kMostRecordBytes = 64 << 20;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// Uncomments derived values, which a run writes as comments ("# kv_heads = 4   # default: ...").
std::string with_following(const std::string& text) {
  std::string all;
  for (const auto& line : lines_of(text)) {
    const bool follows = line.starts_with("# ") && line.find(" = ") != line.npos &&
                         line.find("  # default") != line.npos;
    all += (follows ? line.substr(2) : line) + "\n";
  }
  return all;
}

// The comment after a value.
std::string origin_in(const std::string& line) {
  const auto at = line.rfind(" # ");
  return at == line.npos ? "" : line.substr(at + 3);
}

std::string in_toml(const TomlValue& value);

struct InToml {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return toml_number(value); }
  std::string operator()(const std::string& value) const { return toml_quoted(value); }
  std::string operator()(const std::vector<std::string>& values) const {
    std::string text;
    for (const auto& value : values)
      text += (text.empty() ? "" : ", ") + toml_quoted(value);
    return "[" + text + "]";
  }
  std::string operator()(const TomlTables& all) const {
    std::string text;
    for (const auto& table : all.tables) {
      std::string members;
      for (const auto& entry : table)
        members += str(members.empty() ? "" : ", ", entry.key, " = ", in_toml(entry.value));
      text += str(text.empty() ? "{" : ", {", members, "}");
    }
    return "[" + text + "]";
  }
  std::string operator()(const TomlOther& other) const { return other.kind; }
};

std::string in_toml(const TomlValue& value) {
  return std::visit(InToml{}, value);
}

// Display names of members of "numerics".
constexpr std::pair<const char*, const char*> kFacts[] = {{"device", "device"},
                                                          {"driver", "driver"},
                                                          {"nccl", "NCCL"},
                                                          {"cublaslt", "cuBLASLt"},
                                                          {"cpu_level", "CPU instructions"},
                                                          {"threads", "CPU threads"},
                                                          {"attention", "attention"}};

void take_facts(const Json& numerics, std::map<std::string, std::string>& facts) {
  for (const auto& [member, shown] : kFacts)
    if (const Json* value = numerics.find(member))
      if (const auto text = value->is_string() ? value->as_string() : value->dump(); !text.empty())
        facts[shown] = text;
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// The amendments of a checkpoint (docs/formats.md) by kind, with their number and steps.
Facts amendments_of(const Json& about) {
  struct Kind {
    const char* name;
    int count = 0;
    std::string steps{};
    void add(const std::string& at) { steps += str(count++ == 0 ? ": " : ", ", at); }
  };
  Kind rollbacks{"rollbacks"}, ranges{"skipped ranges"}, extensions{"extensions"},
      changes{"live changes"};
  const Json* amendments = about.find("amendments");
  if (amendments == nullptr) return {};
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const Json& amendment : amendments->as_array()) {
    const auto step = [&](const char* key) { return integer_at(amendment, key, 0, kMost); };
    const auto& request = text_at(amendment, "request");
    if (request.find("from_step ") != request.npos)
      rollbacks.add(str("to step ", step("at_step")));
    else if (request.starts_with("skip_steps "))
      ranges.add(str("steps ", step("first_skipped"), " to ", step("last_skipped")));
    else if (request == "extend")
      extensions.add(str("after step ", step("at_step")));
    if (const Json* settings = amendment.find("settings")) {
      std::string text;
      for (const Json& setting : settings->as_array())
        text += " " + setting.as_string();
      changes.add(str("after step ", step("at_step"), text));
    }
  }
  Facts facts;
  for (const Kind& kind : {rollbacks, ranges, extensions, changes})
    if (kind.count > 0) facts.emplace_back(kind.name, str(kind.count, kind.steps));
  return facts;
}

}  // namespace

std::vector<ConfigurationValue> read_configuration(const std::filesystem::path& run) {
  const auto path = run / "config.toml";
  if (!path_exists(path)) return {};
  const auto text = with_following(read_text(path, kMostBytes));
  const auto lines = lines_of(text);
  std::vector<ConfigurationValue> values;
  for (const auto& entry : parse_toml(text, path.string()).entries) {
    const auto line = static_cast<std::size_t>(entry.line - 1);
    values.push_back(
        {entry.key, in_toml(entry.value), line < lines.size() ? origin_in(lines[line]) : ""});
  }
  return values;
}

std::optional<std::int64_t> planned_steps(const std::vector<ConfigurationValue>& configuration) {
  for (const auto& [key, value, origin] : configuration) {
    if (key != "train.steps") continue;
    std::int64_t steps = 0;
    const auto* end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, steps);
    if (read.ec == std::errc() && read.ptr == end && steps > 0) return steps;
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> read_environment(
    const std::filesystem::path& run) {
  std::map<std::string, std::string> facts;
  Facts amendments;
  const auto checkpoints = run / "checkpoints";
  if (const auto steps = checkpoint_steps(checkpoints); !steps.empty()) {
    const auto path = checkpoint_path(checkpoints, steps.back()) / kCheckpointManifestName;
    const auto manifest = Json::parse(read_text(path, kMostRecordBytes), path.string(), 16);
    in_context(
        [&] {
          const Json* about = manifest.find("about");
          if (about == nullptr) return;
          if (const Json* numerics = about->find("numerics")) take_facts(*numerics, facts);
          amendments = amendments_of(*about);
        },
        path.string());
  }
  if (const auto path = run / "numerics.json"; path_exists(path)) {
    const auto numerics = Json::parse(read_text(path, kMostRecordBytes), path.string());
    in_context([&] { take_facts(numerics, facts); }, path.string());
  }
  std::vector<std::pair<std::string, std::string>> environment;
  for (const auto& [member, shown] : kFacts)
    if (const auto found = facts.find(shown); found != facts.end()) environment.push_back(*found);
  environment.insert(environment.end(), amendments.begin(), amendments.end());
  return environment;
}

std::map<int, std::filesystem::path> abandoned_metrics(const std::filesystem::path& run) {
  constexpr std::string_view kBegin = "metrics.before-";
  std::map<int, std::filesystem::path> files;
  for (const auto& path : directory_entries(run)) {
    const auto name = path.filename().string();
    int rollback = 0;
    if (name.starts_with(kBegin))
      std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), rollback);
    if (rollback > 0 && name == str(kBegin, rollback, ".jsonl")) files[rollback] = path;
  }
  return files;
}

}  // namespace lockstep
