# Writes OUTPUT, a header that defines kReportPage: SOURCE/page.html with the style and the scripts
# that it names in it. Run by cmake -P when one of them is another.
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
