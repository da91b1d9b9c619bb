// Finds the key of the configuration that a user probably means by another name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// A key, and what transformers, Megatron-LM, torchtitan, nanotron, litgpt and nanoGPT call it.
struct KeyNames {
  std::string_view keys;    // one, or "optimizer.beta1 or optimizer.beta2"
  std::string_view names;   // separated by blanks
  std::string_view note{};  // how the value differs, if it does
};
std::span<const KeyNames> key_names();

// "; did you mean optimizer.learning_rate?" for a key, with or without a table, that does not
// exist. Keys with the same last word come first, then the key that other programs call so ("lr"),
// then the nearest one. Refers to the reference if there is none.
std::string did_you_mean_key(std::string_view typed);

// As above for a flag of the command line, without nearest keys: empty if there is none.
// "; did you mean --set optimizer.learning_rate=VALUE?" for "--lr".
std::string did_you_mean_set(std::string_view flag);

// As above for a variable of the environment, LOCKSTEP_TABLE_KEY. Nearest are known variables.
std::string did_you_mean_variable(std::string_view variable,
                                  std::span<const std::string> variables);

std::string did_you_mean_table(std::string_view typed);

}  // namespace lockstep
