#include "launch/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <iostream>

#include "core/nearest.h"
#include "core/thread_pool.h"
#include "launch/key_names.h"
#include "launch/verb.h"
#include "launch/version.h"

namespace lockstep {
namespace {

using Run = std::function<int()>;

constexpr const char* kOther = "Other";  // the last topic of each help

std::string full_name(const CLI::App& app) {
  const auto* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

// The help of a verb: usage, description, then its flags by topic, each with unit and default.
class Help : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    std::string text = "usage: " + full_name(*app) + usage(*app) + "\n\n" + app->get_description();
    text += "\n" + verbs(*app);
    auto topics = app->get_groups();
    std::stable_partition(topics.begin(), topics.end(), [](auto& t) { return t != kOther; });
    for (const auto& topic : topics) {
      std::string lines;
      for (const auto* option : app->get_options())
        if (option->get_group() == topic) lines += line(signature(*option), meaning(*option));
      if (!lines.empty()) text += str("\n", topic, ":\n", lines);
    }
    return text;
  }

 private:
  static std::string usage(const CLI::App& app) {
    std::string text = app.get_subcommands(nullptr).empty() ? "" : " VERB";
    for (const auto* option : app.get_options())
      if (option->get_positional())
        text += option->get_required() ? str(" ", signature(*option))
                                       : str(" [", signature(*option), "]");
    return text + " [FLAGS]";
  }

  static std::string verbs(const CLI::App& app) {
    std::string text;
    for (const auto* verb : app.get_subcommands(nullptr))
      text += line(verb->get_name(), verb->get_description());
    return text.empty() ? "" : "\nVerbs:\n" + text;
  }

  // "--run DIR", "CONFIG.toml", "INPUT..."
  static std::string signature(const CLI::Option& option) {
    const auto unit = option.get_type_size() == 0 ? "" : option.get_type_name();
    const auto repeated = option.get_expected_max() > 1 ? "..." : "";
    if (option.get_positional()) return unit + repeated;
    return option.get_name(false, true) + (unit.empty() ? "" : " " + unit) + repeated;
  }

  static std::string meaning(const CLI::Option& option) {
    const auto value = option.get_default_str();
    const auto& text = option.get_description();
    return value.empty() || value == "\"\"" ? text : str(text, " (default ", value, ")");
  }

  static std::string line(std::string left, const std::string& right) {
    constexpr std::size_t kColumn = 28;
    left.insert(0, "  ");
    const bool fits = left.size() + 2 <= kColumn;
    left.resize(fits ? kColumn : left.size(), ' ');
    return left + (fits ? "" : "\n" + std::string(kColumn, ' ')) + right + "\n";
  }
};

// Rejects numbers outside [least, most]; the error names the flag.
CLI::Option* within(CLI::Option* option, double least, double most = HUGE_VAL) {
  return option->check([least, most](const std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return str("expected a number, found ", text);
    if (least <= value && value <= most) return "";
    const auto limit =
        std::isinf(most) ? "" : str(" and at most ", static_cast<std::int64_t>(most));
    return str("expected at least ", least, limit, ", found ", text);
  });
}

CLI::Option* added(CLI::App& app, const Flag& flag) {
  return std::visit(
      [&]<class Value>(const Value& value) -> CLI::Option* {
        if constexpr (std::is_same_v<Value, bool*>)
          return app.add_flag(flag.name, *value, flag.help);
        else if constexpr (std::is_pointer_v<Value>)
          return app.add_option(flag.name, *value, flag.help);
        else
          return app.add_option_function<std::string>(flag.name, value, flag.help);
      },
      flag.value);
}

void add(CLI::App& app, const Flag& flag) {
  const auto& rules = flag.rules;
  auto* option = added(app, flag)->group(flag.topic);
  if (*flag.unit != '\0') option->type_name(flag.unit);
  option->required(rules.required);
  if (rules.shows_default) option->capture_default_str();
  if (rules.least > -HUGE_VAL) within(option, rules.least, rules.most);
  if (rules.repeats && std::holds_alternative<std::vector<std::string>*>(flag.value))
    option->allow_extra_args(false);
  else if (rules.repeats)
    option->trigger_on_parse();
  for (const auto* other : rules.excludes)
    option->excludes(app.get_option(other));
  if (rules.needs != nullptr) option->needs(app.get_option(rules.needs));
  if (rules.given != nullptr)
    option->each([given = rules.given](const std::string&) { *given = true; });
}

void add(CLI::App& app, const Verb& verb, Run& run) {
  auto* added = app.add_subcommand(verb.name, verb.help);
  added->set_help_flag("-h,--help", "print this help")->group(kOther);
  for (const auto& flag : verb.flags)
    add(*added, flag);
  for (const auto& inner : verb.verbs)
    add(*added, inner, run);
  if (verb.verbs.empty())
    added->callback([act = verb.run, &run] { run = act; });
  else
    added->require_subcommand(1);
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* verb : app.get_subcommands(nullptr))
    names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const auto* option : verb.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  return names;
}

// The verb that was probably meant; `compare` is part of `report` here.
std::string meant_verb(const CLI::App& verb, const std::string& unknown) {
  const bool is_comparison = verb.get_parent() == nullptr && unknown == "compare";
  return is_comparison ? "report RUN RUN" : nearest(unknown, verbs_of(verb));
}

// The innermost verb of the arguments: `lockstep data pack` has two levels.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& what) {
  const auto& verb = innermost(app);
  const auto extras = app.remaining(true);
  const auto see = str("; see `", full_name(verb), " --help`");
  const auto verbs = verbs_of(verb);
  if (extras.empty() && !verbs.empty()) throw UsageError("expected a verb" + see);
  if (extras.empty()) throw UsageError(what + see);
  const auto& unknown = extras.front();
  const bool is_flag = unknown.size() > 1 && unknown.front() == '-';
  const bool is_verb = !is_flag && !verbs.empty();
  const auto flags = flags_of(verb);
  if (is_flag && std::ranges::find(flags, "--set") != flags.end())
    if (const auto key = did_you_mean_set(unknown); !key.empty())
      throw UsageError(str("unknown flag ", unknown, key));
  const auto near =
      is_flag ? nearest(unknown.substr(0, unknown.find('=')), flags) : meant_verb(verb, unknown);
  throw UsageError(str(is_flag   ? "unknown flag "
                       : is_verb ? "unknown verb "
                                 : "unexpected argument ",
                       unknown, near.empty() ? "" : str("; did you mean ", near, "?"),
                       near.empty() ? see : ""));
}

// Rewrites an error of CLI11: lower case first letter, arguments by their names in the help.
std::string sentence(std::string text, const CLI::App& verb) {
  if (!text.empty()) text.front() = static_cast<char>(std::tolower(text.front()));
  for (const auto* option : verb.get_options())
    if (const auto name = option->get_name(true);
        option->get_positional() && !name.empty() && text.rfind(name + " ", 0) == 0)
      text.replace(0, name.size(), option->get_type_name());
  constexpr std::string_view kUnread = "could not convert: ", kIs = " = ";
  if (const auto at = text.find(kIs); text.starts_with(kUnread) && at != std::string::npos)
    text = str(text.substr(kUnread.size(), at - kUnread.size()),
               ": expected a whole number, found ", text.substr(at + kIs.size()));
  constexpr std::string_view kTwice = " At Most 1 required but received ";
  if (const auto at = text.find(kTwice); at != std::string::npos)
    text = str(text.substr(0, at), " expected once, given ", text.substr(at + kTwice.size()),
               " times");
  return text;
}

}  // namespace

Flag settings_flag(std::vector<Setting>& settings) {
  return {"--set",
          [&settings](const std::string& text) { settings.push_back(parse_setting(text)); },
          "Configuration",
          "TABLE.KEY=VALUE",
          "set a configuration key (docs/configuration.md); repeatable",
          kRule.repeating()};
}

Flag threads_flag(int& threads) {
  return {"--threads",
          &threads,
          "Host",
          "N",
          "number of CPU threads (default: one per available CPU core)",
          kRule.within(1, static_cast<double>(most_threads()))};
}

std::vector<Flag> sampling_flags(Sampling& sampling) {
  return {{"--temperature", &sampling.temperature, "Sampling", "X",
           "sampling temperature; 0: always the most likely token", kWithDefault.within(0)},
          {"--top-k", &sampling.top_k, "Sampling", "K",
           "sample from the K most likely tokens; 0: from all", kWithDefault.within(0)},
          {"--top-p", &sampling.top_p, "Sampling", "P",
           "sample from the most likely tokens whose probabilities sum to P",
           kWithDefault.within(0, 1)},
          {"--seed", &sampling.seed, "Sampling", "N", "random seed", kWithDefault.within(0)}};
}

std::vector<Flag> ranks_flags(ModelRanksOptions& ranks) {
  constexpr double kMost = 1e6;
  return {{"--tensor", &ranks.tensor, "Ranks", "N",
           "tensor-parallel size: ranks (started by mpirun or srun) that share each matrix",
           kWithDefault.within(1, kMost)},
          {"--shard", &ranks.shard, "Ranks", "N",
           "FSDP size: ranks that each store a part of the weights and all-gather them",
           kWithDefault.within(1, kMost)},
          {"--device", &ranks.device, "Host", "cpu|cuda", kDeviceHelp},
          threads_flag(ranks.threads)};
}

std::vector<Verb> all_verbs() {
  return {data_verb(),      plan_verb(),       train_verb(),  supervise_verb(), ctl_verb(),
          generate_verb(),  chat_verb(),       eval_verb(),   report_verb(),    watch_verb(),
          preflight_verb(), checkpoint_verb(), config_verb(), completion_verb()};
}

int run_command_line(const std::vector<std::string>& arguments) {
  CLI::App app("Lockstep trains GPT-style language models.", "lockstep");
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", version_text, "print version, commit and features")
      ->group(kOther);
  app.set_help_flag("-h,--help", "print this help; of a verb: `VERB --help` or `help VERB`")
      ->group(kOther);
  app.require_subcommand(1);
  Run run;
  auto end = arguments.end();  // of the words for this program
  for (const auto& verb : all_verbs()) {
    add(app, verb, run);
    if (verb.rest == nullptr || arguments.empty() || arguments.front() != verb.name) continue;
    end = std::ranges::find(arguments, "--");
    if (end != arguments.end()) verb.rest->assign(end + 1, arguments.end());
  }
  std::vector<std::string> words(std::make_reverse_iterator(end), arguments.rend());
  const bool asks_help = !words.empty() && words.back() == "help";
  if (asks_help) words.pop_back();
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << innermost(app).help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what();
    return 0;
  } catch (const CLI::ParseError& e) {
    if (!asks_help || !app.remaining(true).empty()) refuse(app, sentence(e.what(), innermost(app)));
  }
  if (asks_help) {
    std::cout << innermost(app).help();
    return 0;
  }
  return run();
}

}  // namespace lockstep
