#include "data/hub.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/file.h"
#include "data/remote.h"

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

std::string download(std::string_view id) {
  return str("download it with `hf download ", id, " --local-dir DIR` and name DIR");
}

}  // namespace

std::string download_advice(const std::string& what) {
  for (const std::string_view host : {"https://huggingface.co/", "https://hf.co/", "hf://"})
    if (what.starts_with(host)) {
      std::string_view id(what);
      id.remove_prefix(host.size());
      if (const auto owner = id.find('/'); owner != std::string_view::npos)
        id = id.substr(0, id.find('/', owner + 1));
      return str("It is an address of the Hugging Face Hub: ", download(id));
    }
  if (is_remote(what)) return "It is an address: download it, and name the local path";
  const auto slash = what.find('/');
  if (!is_id(what) || path_exists(what) ||
      (slash != std::string::npos && directory_exists(what.substr(0, slash))))
    return "";
  return str("If it is an id of the Hugging Face Hub, ", download(what));
}

}  // namespace lockstep
