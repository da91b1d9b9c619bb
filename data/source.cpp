#include "data/source.h"

namespace lockstep {

const char* name(RowKind kind) {
  switch (kind) {
    case RowKind::automatic: return "auto";
    case RowKind::windows: return "windows";
    case RowKind::examples: return "examples";
    case RowKind::packed: return "packed";
  }
  return "?";
}

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const auto& path : paths)
    text += (text.empty() ? "" : ", ") + path;
  return text;
}

bool is_remote(std::string_view path) {
  return path.starts_with("s3://") || path.starts_with("https://") || path.starts_with("http://") ||
         path.starts_with("file:");
}

}  // namespace lockstep
