// Any answer of an unknown server is rejected or valid. The first byte of the input chooses between
// AWS profiles, credentials as JSON, errors of S3 and Content-Range.
#include "data/remote/s3.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::remote_fuzz {
void check_profiles(std::string_view text) {
  for (const auto& [name, profile] : parse_profiles(text, "fuzz"))
    for (const auto& [key, value] : profile)
      LOCKSTEP_CHECK((key + value).find('\n') == std::string::npos, "a line break in ", key);
}

void check_keys(std::string_view text) {
  const auto keys = parse_keys(text, "fuzz");
  LOCKSTEP_CHECK(!keys.id.empty() && !keys.secret.empty(), "empty keys");
  const bool is_late = text.find("\"Expiration\": \"9999-") != std::string_view::npos;
  LOCKSTEP_CHECK(keys.expires >= AwsKeys::Time() &&
                     (!is_late || keys.expires > std::chrono::system_clock::now()),
                 "keys that ended before they were known");
}

void check_error(std::string_view text) {
  const auto code = s3_error_part(text, "Code");
  LOCKSTEP_CHECK(code.size() <= 64 && s3_path(code) == code, "a code \"", code, '"');
}

void check_range(std::string_view text) {
  const auto range = parse_content_range(text);
  LOCKSTEP_CHECK(
      range.first >= -1 && (range.end == -1 || range.end >= 1) && range.object_bytes >= -1,
      "a range [", range.first, ", ", range.end, ") of ", range.object_bytes);
}

void check(std::string_view text) {
  if (text.empty()) return;
  const auto rest = text.substr(1);
  switch (text.front()) {
    case 'p': return check_profiles(rest);
    case 'k': return check_keys(rest);
    case 'e': return check_error(rest);
    default: return check_range(rest);
  }
}

Seeds seeds() {
  return {"p[default]\naws_access_key_id = a\n\n# b\n[profile c]\nregion=d\n  e = f\n",
          R"(k{"AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2026-02-03T04:05:06Z"})",
          R"(k{"Expiration": "9999-12-31T23:59:59Z", "AccessKeyId": "a", "SecretAccessKey": "b"})",
          "e<Error><Code>NoSuchKey</Code><Region>eu-west-1</Region></Error>", "rbytes 0-99/1234"};
}

const Target target("remote", seeds, check);

}  // namespace lockstep::fuzz::remote_fuzz
