#include "data/pack/output_directory.h"

#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "data/remote/remote.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A killed run could not remove its files.
void warn_of_leftovers(const fs::path& out) {
  const auto parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(out.filename().string() + ".tmp-"))
      log_warning(it->path().string(),
                  ": left by an interrupted run; remove it unless another run is writing it now");
}

}  // namespace

OutputDirectory::OutputDirectory(const fs::path& out) : out_(out) {
  refuse_taken(out_);
  warn_of_leftovers(out_);
  const fs::path temporary = str(out_.string(), ".tmp-", getpid());
  if (path_exists(temporary))
    throw UsageError(str(temporary.string(), ": exists; remove it, or choose another directory"));
  temporary_ = temporary;
  try {
    make_directories(temporary);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);  // if it is empty
    throw;
  }
}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void OutputDirectory::commit() {
  rename_durably(temporary_, out_);
  temporary_.clear();
}

fs::path output_path(const fs::path& out) {
  require_local(out.string());
  const auto normal = out.lexically_normal();
  auto path = normal.has_filename() ? normal : normal.parent_path();
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..")
    throw UsageError(str(out.string(), ": expected the name of a new directory"));
  return path;
}

void refuse_taken(const fs::path& out) {
  if (path_exists(out) && !(directory_exists(out) && directory_entries(out).empty()))
    throw UsageError(str(out.string(), ": exists; remove it, or choose another directory"));
}

}  // namespace lockstep
