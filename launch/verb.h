// Verb: what a person may ask of the program, as a table of its flags. Each is a file of its own,
// x_verb.cpp; launch/command_line.cpp parses what was typed, and prints the help.
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

namespace lockstep {

// Written as kRule.within(1, 1000), kWithDefault, kRule.needing("--choices").
struct FlagRules {
  bool required = false;
  bool shows_default = false;                 // the help has the value from before
  double least = -HUGE_VAL, most = HUGE_VAL;  // of a number
  bool repeats = false;                       // it may be given several times, with a value each
  std::vector<const char*> excludes{};        // flags of the verb that are listed before
  const char* needs = nullptr;                // likewise
  bool* given = nullptr;                      // set where it is

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

  const char* name;   // "--run"; without dashes: an argument that has its place
  Value value;        // where it goes
  const char* topic;  // of the help
  const char* unit;   // of its value: "DIR", "cpu|cuda"; of a bool ""
  std::string help;
  FlagRules rules{};
};

struct Verb {
  const char* name;
  const char* help;
  std::vector<Flag> flags;    // their values outlive it
  std::function<int()> run;   // its exit code
  std::vector<Verb> verbs{};  // in place of flags
};

std::vector<Verb> all_verbs();  // as the help lists them

Verb checkpoint_verb();
Verb completion_verb();
Verb config_verb();
Verb data_verb();
Verb eval_verb();
Verb generate_verb();
Verb plan_verb();
Verb preflight_verb();
Verb report_verb();
Verb train_verb();
Verb watch_verb();

// What several verbs have alike.
inline constexpr const char* kModelForms =
    "a run or its archive, a checkpoint, a Hugging Face directory or an llm.c model";
inline constexpr const char* kTokenizerHelp =
    "bytes, a tokenizer's file, or a directory that holds one (default: the model's own)";
inline constexpr const char* kDeviceHelp = "what computes (default: a GPU where one can be used)";
Flag settings_flag(std::vector<Setting>& settings);  // --set
Flag threads_flag(int& threads);
std::vector<Flag> ranks_flags(ModelRanksOptions& ranks);

}  // namespace lockstep
