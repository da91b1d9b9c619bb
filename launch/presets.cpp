#include "launch/presets.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/nearest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The files of the presets, in the order of their names.
std::vector<fs::path> presets() {
  std::error_code unknown;
  const auto program = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  std::vector<fs::path> files;
  for (auto above = program; files.empty() && above.has_relative_path();
       above = above.parent_path())
    for (const auto& directory : {above / "share/lockstep/configs", above / "configs"})
      if (files.empty() && path_exists(directory / "quickstart.toml"))
        for (const auto& path : directory_entries(directory))
          if (path.extension() == ".toml") files.push_back(path);
  return files;
}

}  // namespace

fs::path config_file(const fs::path& named) {
  if (named.has_parent_path() || named.extension() == ".toml" ||
      std::filesystem::is_regular_file(named))
    return named;
  std::vector<std::string> names;
  for (const auto& path : presets()) {
    if (path.stem() == named) return path;
    names.push_back(path.stem());
  }
  const auto near = nearest(named.string(), names);
  throw ConfigError(str(named.string(), ": no such file, and no configuration of this name",
                        near.empty() ? ";" : str("; did you mean ", near, "?"),
                        " `lockstep config --list` prints the names"));
}

std::string list_of_presets() {
  constexpr std::int64_t kMostBytes = 1 << 20;
  constexpr std::size_t kColumn = 16;
  std::string text;
  for (const auto& path : presets()) {
    const auto all = read_text(path, kMostBytes);
    const auto line = all.substr(0, all.find('\n'));
    auto name = path.stem().string();
    name.resize(std::max(name.size() + 2, kColumn), ' ');
    text += str(name, line.substr(std::min(line.size(), line.find_first_not_of("# "))), "\n");
  }
  if (text.empty())
    throw DataError(
        "the configurations of this program are missing: expected configs/*.toml in "
        "its source, or share/lockstep/configs of its installation");
  return text;
}

}  // namespace lockstep
