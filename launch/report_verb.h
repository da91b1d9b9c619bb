// `lockstep report`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct ReportOptions {
  std::vector<std::string> runs;  // directories
  std::string out;                // the page; empty: report.html in the directory of a single run
};

// Writes the page, and prints its path and size. Throws DataError if a run cannot be read.
int run_report(const ReportOptions& options);

}  // namespace lockstep
