// Any JSON text is rejected, or survives a round trip through dump().
#include "core/json.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::json_fuzz {

Seeds seeds() {
  return {
      R"({"a": [1, -2.5e-3, "x\u00e9\n\u0001\ud83d\ude00"], "b": {"c": null, "d": [true, false, {}]}})",
      "[[[[[[[[]]]]]]]]", "\"\xE2\x82\xAC \\\\ \\\"\"", "-9223372036854775808", "1e308",
      // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one object in two lines
      R"({"k0":0,"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"ka":10,)"
      R"("kb":11,"kc":12,"kd":13,"ke":14,"kf":15,"kg":16,"kh":17})"};
}

void check(std::string_view text) {
  const Json json = Json::parse(text, "input");
  for (const int indent : {-1, 2})
    check_reads_back(json.dump(indent), [&](const std::string& written) {
      return Json::parse(written, "written").dump(indent);
    });
}

const Target target("json", seeds, check);

}  // namespace lockstep::fuzz::json_fuzz
