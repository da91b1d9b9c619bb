// AwsCredentials: whose name requests to S3 are signed by, found as AWS's own tools find it: the
// environment, the profile in ~/.aws, the container's credentials (ECS, EKS), the instance's (EC2).
// Nothing of them appears in a message.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "data/remote/http.h"

namespace lockstep {

// Variables by their names.
using Environment = std::map<std::string, std::string>;
Environment process_environment();

using Profile = std::map<std::string, std::string>;
// The sections of ~/.aws/credentials or ~/.aws/config by their names, as they stand in brackets.
// Throws DataError "WHAT: line N: ..".
std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& what);

struct AwsKeys {
  using Time = std::chrono::system_clock::time_point;
  std::string id, secret, token;  // token: of temporary ones; else ""
  Time expires = Time::max();
};

// What a container or an instance is told. Throws DataError "WHAT: .."; the text is not repeated.
AwsKeys parse_keys(std::string_view json, const std::string& what);

class AwsCredentials {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads the profile. Throws DataError where it is named and is not there, or is of a kind that is
  // not read here. `pause`: between searches for keys in place of some that expire soon.
  explicit AwsCredentials(const Environment& environment,
                          Clock::duration pause = std::chrono::seconds(30));

  // Those of now: temporary ones are fetched again from five minutes before they expire on; where
  // that fails, they serve to their end. None: requests are not signed, as public buckets allow.
  // Throws DataError where they cannot be had; of its kinds UnreachableError where who gives them
  // does not answer, RefusedError where that one refuses.
  std::optional<AwsKeys> keys();
  // A server said that the key `id` has expired: keys are found again. false: they cannot change.
  bool renew(const std::string& id);

  const std::string& region() const { return region_; }      // "": not said
  const std::string& endpoint() const { return endpoint_; }  // "": AWS's own
  // Where they come from, for messages: "the environment", "profile lab", "none".
  std::string source() const;

 private:
  enum class Source : std::uint8_t { none, environment, profile, container, instance };
  void read_profile();
  struct Found {
    Source source = Source::none;
    std::optional<AwsKeys> keys;
  };
  Found find() const;
  std::optional<AwsKeys> ask_container() const;
  std::optional<AwsKeys> ask_instance() const;
  std::string entry(const char* name) const;  // of the profile
  std::string variable(const char* name) const;

  Environment environment_;
  Clock::duration pause_;
  std::string profile_name_, region_, endpoint_;
  Profile profile_;
  mutable std::mutex mutex_;  // of what follows
  bool is_found_ = false;
  Found found_;
  Clock::time_point searched_;
};

}  // namespace lockstep
