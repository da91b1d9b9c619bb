// Any configuration is rejected, or its printed form resolves to the same values. The text after a
// NUL is a setting of the command line.
#include "launch/config.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::toml_fuzz {

Seeds seeds() {
  const std::string small =
      "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
      "[train]\nsequence_length = 32\nbatch_tokens = 96\n[data]\ntrain = ['a', \"b\\u00e9\"]\n";
  const std::string more =
      "[optimizer]\nlearning_rate = 1e-3\nbeta1 = +0.8\n[log]\ntensorboard = false\n"
      "sample_prompt = \"\"\"\nmany\nlines\"\"\"\n";
  const std::string dotted =
      "model = {family = 'gpt2', layers = 1, width = 8, heads = 2}\ndata.train = 'x'\n"
      "train.threads = 0x3\nschedule.kind = 'wsd'\n# a comment\n";
  const std::string mixture =
      "model = {family = 'gpt2', layers = 1, width = 8, heads = 2}\n[[data.source]]\npath = 'x'\n"
      "weight = 0.5\n[[data.source]]\npath = ['y', 'z']\nweight = 3\n";
  const std::string nul(1, '\0');
  return {small,
          small + nul + "train.steps=7",
          small + nul + "data.validation=[\"x\"]",
          small + more,
          dotted,
          mixture};
}

// The output of to_toml must resolve, so a ConfigError is a finding.
ResolvedConfig resolve_written(const std::string& text) {
  try {
    return resolve_config(text, "written", {});
  } catch (const ConfigError& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

void check_config(std::string_view input) {
  const auto nul = std::min(input.find('\0'), input.size());
  std::vector<Setting> settings;
  if (nul < input.size()) settings.push_back(parse_setting(input.substr(nul + 1)));
  const auto resolved = resolve_config(input.substr(0, nul), "input", settings);
  const auto once = to_toml(resolve_written(to_toml(resolved)));
  const auto twice = to_toml(resolve_written(once));
  LOCKSTEP_CHECK(once == twice, once, " reads back as ", twice);
}

void check(std::string_view input) {
  try {
    must_accept([&] { check_config(input); });  // no DataError
  } catch (const ConfigError&) {
  } catch (const UsageError&) {
  }
}

const Target target("toml", seeds, check);

}  // namespace lockstep::fuzz::toml_fuzz
