// lockstep completion prints shell completion, made from the tables of verbs, flags and options.
#include <cctype>
#include <iostream>
#include <memory>
#include <sstream>

#include "launch/options.h"
#include "launch/verb.h"

namespace lockstep {
namespace {

// The entries of the script's `case` tables.
struct Tables {
  std::string verbs;   // patterns of verbs: 'lockstep data'|'lockstep data pack'
  std::string values;  // choices of each flag with a value; no choices: file names
  std::string words;   // inner verbs and flags of each verb
};

std::string entry(const std::string& pattern, const std::string& words) {
  return str("    '", pattern, "') words='", words, "' ;;\n");
}

// Extracts the literal choices of a unit: "bytes|cpu|PATH" becomes "bytes cpu".
std::string choices_of(const std::string& unit) {
  std::istringstream parts(unit);
  std::string words;
  for (std::string part; std::getline(parts, part, '|');)
    if (std::islower(static_cast<unsigned char>(part.front())) != 0)
      words += str(words.empty() ? "" : " ", part);
  return words;
}

std::string key_words() {
  std::string text;
  for (const auto& option : options())
    text += str(text.empty() ? "" : " ", option.key, "=");
  return text;
}

void add(Tables& tables, const std::string& name, const std::vector<Verb>& verbs,
         const std::vector<Flag>& flags) {
  std::string words;
  for (const auto& verb : verbs) {
    const auto inner = str(name, " ", verb.name);
    tables.verbs += str(tables.verbs.empty() ? "" : "|", "'", inner, "'");
    words += str(verb.name, " ");
    add(tables, inner, verb.verbs, verb.flags);
  }
  for (const auto& flag : flags) {
    if (flag.name[0] != '-') {
      words += choices_of(flag.unit) + " ";
      continue;
    }
    words += str(flag.name, " ");
    if (*flag.unit != '\0' && std::string_view(flag.name) != "--set")
      tables.values += entry(str(name, " ", flag.name), choices_of(flag.unit));
  }
  tables.words += entry(name, words + (name == "lockstep" ? "--version --help" : "--help"));
}

// One shell function serves both shells: zsh runs it through bashcompinit.
std::string script(bool zsh) {
  Tables tables;
  add(tables, "lockstep", all_verbs(), {});
  return str("# Completion for ", zsh ? "zsh" : "bash", ": source <(lockstep completion ",
             zsh ? "zsh" : "bash", ")\n",
             zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "",
             "_lockstep() {\n"
             "  local word verb=lockstep words=\n"
             "  for word in \"${COMP_WORDS[@]:1:$((COMP_CWORD-1))}\"; do\n"
             "    case \"$verb $word\" in ",
             tables.verbs,
             ") verb=\"$verb $word\" ;; esac\n"
             "  done\n"
             "  case \"$verb ${COMP_WORDS[$((COMP_CWORD-1))]}\" in\n"
             "    *' --set') compopt -o nospace 2>/dev/null; words='",
             key_words(), "' ;;\n", tables.values, "    *) case $verb in\n", tables.words,
             "    esac ;;\n"
             "  esac\n"
             "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
             "}\n"
             "complete -o default -F _lockstep lockstep\n");
}

}  // namespace

Verb completion_verb() {
  auto shell = std::make_shared<std::string>();
  return {"completion",
          "print a shell script that completes verbs, flags and keys",
          {{"shell", shell.get(), "Shell", "bash|zsh",
            "shell of the script; load it with: source <(lockstep completion bash)", kRequired}},
          [shell] {
            if (*shell != "bash" && *shell != "zsh")
              throw UsageError(str("completion: expected bash or zsh, found ", *shell));
            std::cout << script(*shell == "zsh");
            return 0;
          }};
}

}  // namespace lockstep
