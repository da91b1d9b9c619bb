// The page of `lockstep report`: one file of HTML that needs no other. What it shows is one block
// of JSON in it (docs/observability.md); launch/report/page.html, .css and .js make it visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/report/run_record.h"

namespace lockstep {

inline constexpr std::size_t kMostRunsOfPage = 16;

// Points of a curve, so that the page stays below about 5 MB however many runs there are.
std::size_t points_of_page(std::size_t runs);

// `version`: of this program; its first line is shown. `made_seconds`: since 1970. `notes`: of no
// run on the page, as why another one is not there.
std::string report_page(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes = {});

// Whether a file that begins so is such a page, by the <meta> that names its generator.
// kPageBeginning bytes are enough.
inline constexpr std::int64_t kPageBeginning = 256;
bool is_report_page(std::string_view beginning);

// The block of JSON, with no '<' in it: it stands in a <script>.
std::string report_data(const std::vector<RunRecord>& runs, const std::string& version,
                        double made_seconds, const std::vector<std::string>& notes = {});

}  // namespace lockstep
