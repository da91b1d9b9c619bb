#include "data/hub.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/file.h"
#include "data/source.h"

namespace lockstep {
namespace {

bool is_id_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

// NAME or OWNER/NAME.
bool is_id(std::string_view text) {
  const auto slash = text.find('/');
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' &&
           std::all_of(part.begin(), part.end(), is_id_character);
  };
  if (slash == std::string_view::npos) return is_part(text);
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

// Returns the arguments of `hf download` for `name`: an id and options; "" if it names no
// repository. `is_address`: a path within the repository may follow.
std::string repository(std::string_view name, bool is_address) {
  constexpr std::string_view kDatasets = "datasets/";
  name = name.substr(0, name.find_first_of("?#"));
  const bool is_dataset = name.starts_with(kDatasets);
  if (is_dataset) name.remove_prefix(kDatasets.size());
  if (const auto owner = name.find('/'); is_address && owner != std::string_view::npos)
    name = name.substr(0, name.find('/', owner + 1));
  if (name.ends_with('/')) name.remove_suffix(1);
  const auto at = std::min(name.find('@'), name.size());
  std::string options = is_dataset ? " --repo-type dataset" : "";
  if (at < name.size()) {
    const auto revision = name.substr(at + 1);
    if (revision.empty() || !std::all_of(revision.begin(), revision.end(),
                                         [](char c) { return is_id_character(c) || c == '/'; }))
      return "";
    options += str(" --revision ", revision);
  }
  const auto id = name.substr(0, at);
  return is_id(id) ? str(id, options) : "";
}

std::string download(const std::string& repository) {
  return str("download it with `hf download ", repository, " --local-dir DIR` and pass DIR");
}

}  // namespace

std::string download_advice(const std::string& what) {
  for (const std::string_view host : {"https://huggingface.co/", "https://hf.co/", "hf://"})
    if (what.starts_with(host))
      if (const auto found = repository(std::string_view(what).substr(host.size()), true);
          !found.empty())
        return str("This is a Hugging Face Hub address: ", download(found));
  if (is_remote(what)) return "This is an address: download it and pass the local path";
  const auto found = repository(what, false);
  const auto slash = what.find('/');
  if (found.empty() || path_exists(what) ||
      (slash != std::string::npos && directory_exists(what.substr(0, slash))))
    return "";
  return str("If it is a Hugging Face Hub id, ", download(found));
}

}  // namespace lockstep
