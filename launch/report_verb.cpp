#include "launch/report_verb.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "core/wall_clock.h"
#include "launch/report/page.h"

namespace lockstep {
namespace {

std::filesystem::path page_of(const ReportOptions& options) {
  if (options.runs.size() > kMostRunsOfPage)
    throw UsageError(
        str("report: expected at most ", kMostRunsOfPage, " runs, found ", options.runs.size()));
  if (options.out.empty() && options.runs.size() > 1)
    throw UsageError("report: of several runs, name the page with --out");
  std::filesystem::path page = options.out.empty()
                                   ? std::filesystem::path(options.runs.front()) / "report.html"
                                   : std::filesystem::path(options.out);
  if (directory_exists(page))
    throw UsageError(str("--out ", page.string(),
                         ": is a directory, expected the name of a file, such as report.html"));
  return page;
}

// Runs of the same name are told apart by their paths.
void tell_apart(std::vector<RunRecord>& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs)
    names.push_back(run.name);
  for (auto& run : runs)
    if (std::ranges::count(names, run.name) > 1) run.name = run.path.string();
}

}  // namespace

int run_report(const ReportOptions& options) {
  const auto page = page_of(options);
  std::vector<RunRecord> runs;
  for (const auto& run : options.runs) {
    runs.push_back(read_run(run, points_of_page(options.runs.size())));
    for (const auto& note : runs.back().notes)
      log_warning(run, ": ", note);
  }
  tell_apart(runs);
  const auto text = report_page(runs, seconds_since_1970());
  write_text(page, text);
  std::cout << page.string() << "  " << human_bytes(static_cast<double>(text.size())) << "\n";
  return 0;
}

}  // namespace lockstep
