// Generates docs/configuration.md from the table of options, so that both always agree.
#include "launch/config.h"
#include "launch/options.h"

namespace lockstep {
namespace {

constexpr std::string_view kHead = R"(# Configuration

`lockstep config --reference` generates this page; a test checks that it is up to date.

`lockstep train CONFIG.toml` reads one TOML file with the tables below. The value of a key comes
from the first of these places that sets it:

1. the command line: `--set table.key=value`, repeatable. The value is TOML; a bare word is a string
   (`--set schedule.kind=linear`, `--set 'data.train=["a", "b"]'`).
2. the environment: `LOCKSTEP_TABLE_KEY` sets `table.key` (`LOCKSTEP_TRAIN_STEPS=100`).
3. the file.
4. the default.

An integer may have an exponent (`--set train.steps=1e3`). If a key does not exist, the error names
the one that is probably meant, also for names of other programs such as `lr` or `batch_size`.

`lockstep config CONFIG.toml` prints the resolved configuration and the origin of each value. A run
keeps the same in its `config.toml`. A default that depends on other keys is a comment there, so it
is derived again if the file is used with another `--set`.

Tables `[[phase]]` change keys of the file from a step on ([operations.md](operations.md)). A key
that the command line or the environment sets holds for all phases. In place of a file, verbs also
take the name of a configuration that comes with the program: `lockstep config --list`.

An unknown key, a wrong type or an impossible value is an error (exit code 78), reported before any
memory is allocated. Paths are relative to the working directory.

`lockstep config --model MODEL` prints the table [model] of a Hugging Face directory, an llm.c model
or another run. Use it for a run that starts from those weights with `--init-from`.
)";

std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string default_text(const Option& option) {
  if (option.required()) return "required";
  if (!option.rule.empty()) return cell(option.rule);
  return str("`", to_toml(option, Config{}), "`");
}

}  // namespace

std::string configuration_reference() {
  std::string text(kHead);
  std::string_view table;
  for (const auto& option : options()) {
    if (option.table() != table) {
      table = option.table();
      text += str("\n## [", table, "]\n\n| key | meaning | value | default |\n|---|---|---|---|\n");
    }
    const auto unit = option.unit.empty() ? "" : str(" (", option.unit, ")");
    text += str("| `", option.name(), "` | ", cell(option.help), " | ", cell(expected(option)),
                unit, " | ", default_text(option), " |\n");
  }
  return text;
}

}  // namespace lockstep
