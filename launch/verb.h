// Verb describes a command of the program as a table of its flags. Each verb has its own file,
// x_verb.cpp. launch/command_line.cpp parses the arguments and prints the help.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launch/config.h"
#include "launch/ranks.h"
#include "model/sampler.h"

namespace lockstep {

// Constraints of a flag, written as kRule.within(1, 1000), kWithDefault,
// kRule.needing("--choices").
struct FlagRules {
  bool required = false;
  bool shows_default = false;                 // the help prints the initial value
  double least = -HUGE_VAL, most = HUGE_VAL;  // range of a number
  bool repeats = false;                       // the flag may occur several times
  std::vector<const char*> excludes{};        // flags that conflict; listed before this one
  const char* needs = nullptr;                // flag that must be given too; listed before this one
  bool* given = nullptr;                      // set to true if the flag is given

  FlagRules within(double from, double to = HUGE_VAL) const {
    return with([&](auto& rules) { rules.least = from, rules.most = to; });
  }
  FlagRules excluding(std::vector<const char*> others) const {
    return with([&](auto& rules) { rules.excludes = std::move(others); });
  }
  FlagRules needing(const char* other) const {
    return with([&](auto& rules) { rules.needs = other; });
  }
  FlagRules repeating() const {
    return with([](auto& rules) { rules.repeats = true; });
  }
  FlagRules telling(bool* whether) const {
    return with([&](auto& rules) { rules.given = whether; });
  }

  template <class Change>
  FlagRules with(Change change) const {
    auto rules = *this;
    change(rules);
    return rules;
  }
};
inline const FlagRules kRule, kRequired{.required = true}, kWithDefault{.shows_default = true};

struct Flag {
  using Value = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, float*, double*,
                             std::string*, std::optional<std::int64_t>*, std::vector<std::string>*,
                             std::function<void(const std::string& text)>>;

  const char* name;   // "--run"; without dashes: a positional argument
  Value value;        // destination of the value
  const char* topic;  // heading in the help
  const char* unit;   // form of the value: "DIR", "cpu|cuda"; a bool has ""
  std::string help;
  FlagRules rules{};
};

struct Verb {
  const char* name;
  const char* help;
  std::vector<Flag> flags;                   // the destinations of their values outlive the verb
  std::function<int()> run;                  // returns the exit code
  std::vector<Verb> verbs{};                 // inner verbs, instead of flags
  std::vector<std::string>* rest = nullptr;  // destination of the words after "--"
};

std::vector<Verb> all_verbs();  // as the help lists them

Verb chat_verb();
Verb checkpoint_verb();
Verb completion_verb();
Verb config_verb();
Verb ctl_verb();
Verb data_verb();
Verb eval_verb();
Verb generate_verb();
Verb plan_verb();
Verb preflight_verb();
Verb report_verb();
Verb supervise_verb();
Verb train_verb();
Verb watch_verb();

// The state of a run, as `watch` prints it if its output is not a terminal. Throws DataError if the
// run has no step.
std::vector<std::string> state_of_run(const std::filesystem::path& run);

// Texts and flags that several verbs share.
inline constexpr const char* kModelForms =
    "a run or its archive, a checkpoint, a Hugging Face directory or an llm.c model";
inline constexpr const char* kTokenizerHelp =
    "bytes, a tokenizer file, or a directory with one (default: the tokenizer of the model)";
inline constexpr const char* kDeviceHelp =
    "compute device (default: cuda if a GPU is usable, otherwise cpu)";
Flag settings_flag(std::vector<Setting>& settings);  // --set
Flag threads_flag(int& threads);
std::vector<Flag> sampling_flags(Sampling& sampling);
std::vector<Flag> ranks_flags(ModelRanksOptions& ranks);

}  // namespace lockstep
