// `lockstep report`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct ReportOptions {
  std::vector<std::string> runs;  // directories
  std::string out;                // the page; empty: report.html in the one run
};

// Writes the page, says where it is and how large. Throws DataError where a run cannot be read.
int run_report(const ReportOptions& options);

}  // namespace lockstep
