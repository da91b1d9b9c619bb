# Writes OUTPUT, a header that defines kReportPage: SOURCE/page.html with its style and its scripts inserted.
# cmake -P runs this file if one of them has changed.
file(READ ${SOURCE}/page.html page)
foreach(part IN ITEMS page.css format.js chart.js page.js)
  file(READ ${SOURCE}/${part} text)
  string(REPLACE "{{${part}}}" "${text}" page "${page}")
endforeach()
file(WRITE ${OUTPUT} "// Made of launch/report/page.html by cmake/report_page.cmake.
#pragma once
namespace lockstep {
inline constexpr char kReportPage[] = R\"page(${page})page\";
}  // namespace lockstep
")
