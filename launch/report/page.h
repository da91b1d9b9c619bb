// The page of `lockstep report`: one self-contained HTML file. Its data are a block of JSON
// (docs/observability.md); launch/report/page.html, .css and .js display it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/run_record.h"

namespace lockstep {

inline constexpr std::size_t kMostRunsOfPage = 16;

// Number of points per curve that keeps the page below about 5 MB for any number of runs.
std::size_t points_of_page(std::size_t runs);

// The text of the page. `version`: version of this program, whose first line is shown.
// `made_seconds`: since 1970. `notes`: notes about no run on the page, such as omitted runs.
std::string report_page(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes = {});

// True if a file with this beginning is a report page, by the <meta> with its generator.
// kPageBeginning bytes suffice.
inline constexpr std::int64_t kPageBeginning = 256;
bool is_report_page(std::string_view beginning);

// The block of JSON, without '<', because it is inside a <script>.
std::string report_data(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes = {});

}  // namespace lockstep
