#include "launch/report_verb.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "core/wall_clock.h"
#include "launch/report/page.h"
#include "launch/verb.h"
#include "launch/version.h"

namespace lockstep {
namespace {

// Rejects an output file that exists and is not a report page. Other kinds of paths, such as
// pipes, hold nothing that could be lost.
void check_replaceable(const std::filesystem::path& page) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(page, unknown)) return;
  const ReadFile file(page);
  std::string beginning(static_cast<std::size_t>(std::min(file.size_bytes(), kPageBeginning)), ' ');
  file.read(std::as_writable_bytes(std::span(beginning)), 0);
  if (beginning.empty() || is_report_page(beginning)) return;
  const auto other = page.parent_path() / str(page.stem().string(), "-report.html");
  throw UsageError(str("--out ", page.string(),
                       ": file exists and is not a page of `lockstep report`; name another file, "
                       "such as --out ",
                       other.string()));
}

std::filesystem::path page_of(const ReportOptions& options) {
  if (options.runs.size() > kMostRunsOfPage)
    throw UsageError(
        str("report: expected at most ", kMostRunsOfPage, " runs, found ", options.runs.size()));
  if (options.out.empty() && options.runs.size() > 1)
    throw UsageError("report: several runs need a file for the page; pass --out FILE.html");
  std::filesystem::path page = options.out.empty()
                                   ? std::filesystem::path(options.runs.front()) / "report.html"
                                   : std::filesystem::path(options.out);
  if (directory_exists(page))
    throw UsageError(str("--out ", page.string(),
                         ": expected a file name such as report.html, found a directory"));
  check_replaceable(page);
  return page;
}

// Replaces names that several runs share by the paths of the runs.
void tell_apart(std::vector<RunRecord>& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs)
    names.push_back(run.name);
  for (auto& run : runs)
    if (std::ranges::count(names, run.name) > 1) run.name = run.path.string();
}

struct ReadRuns {
  std::vector<RunRecord> read;
  std::vector<std::string> notes;  // one for each run that was left out, with the reason
};

// Reads the runs, and leaves out runs without a step. Throws if no run is left.
ReadRuns read_runs(const std::vector<std::string>& paths) {
  ReadRuns runs;
  for (const auto& path : paths) {
    try {
      runs.read.push_back(read_run(path, points_of_page(paths.size())));
    } catch (const DataError& error) {
      if (runs.notes.size() + 1 == paths.size()) throw;
      runs.notes.push_back(str("run omitted: ", error.what()));
      log_warning(runs.notes.back());
      continue;
    }
    for (const auto& note : runs.read.back().notes)
      log_warning(path, ": ", note);
  }
  tell_apart(runs.read);
  return runs;
}

void write_page(const std::filesystem::path& page, const std::string& text) {
  try {
    write_text(page, text);
  } catch (const DataError& error) {
    throw_like(error, str(error.what(), "; name another file with --out"));
  }
}

}  // namespace

int run_report(const ReportOptions& options) {
  const auto page = page_of(options);
  const auto runs = read_runs(options.runs);
  const auto text = report_page(runs.read, version_text(), seconds_since_1970(), runs.notes);
  write_page(page, text);
  std::cout << page.string() << "  " << human_bytes(static_cast<double>(text.size())) << "\n";
  return 0;
}

Verb report_verb() {
  auto o = std::make_shared<ReportOptions>();
  return {"report",
          "write an HTML page about one or several runs",
          {{"run", &o->runs, "Run", "RUN",
            "directories of runs; several runs are overlaid and compared", kRequired},
           {"--out", &o->out, "Output", "FILE.html",
            "the page (default for a single run: report.html in its directory)"}},
          [o] { return run_report(*o); }};
}

}  // namespace lockstep
