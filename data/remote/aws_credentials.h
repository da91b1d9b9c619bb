// AwsCredentials finds the credentials that sign requests to S3, in the order of AWS's own tools:
// the environment, the profile in ~/.aws, the credentials of the container (ECS, EKS), those of the
// instance (EC2). Messages never contain any part of them.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "data/remote/http.h"

namespace lockstep {

// Environment variables by name.
using Environment = std::map<std::string, std::string>;
Environment process_environment();

using Profile = std::map<std::string, std::string>;
// Returns the sections of ~/.aws/credentials or ~/.aws/config by the names in brackets. Throws
// DataError "WHAT: line N: ..".
std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& what);

struct AwsKeys {
  using Time = std::chrono::system_clock::time_point;
  std::string id, secret, token;  // token: of temporary keys; else ""
  Time expires = Time::max();
};

// Reads the reply of the credentials service of a container or an instance. Throws DataError "WHAT:
// ..", without the text.
AwsKeys parse_keys(std::string_view json, const std::string& what);

class AwsCredentials {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads the profile. Throws DataError if it is named but missing, or needs a source that is not
  // supported. `pause` is the time between searches for new keys when the current ones expire soon.
  explicit AwsCredentials(const Environment& environment,
                          Clock::duration pause = std::chrono::seconds(30));

  // Returns the current keys. Temporary ones are renewed from five minutes before they expire. If
  // that fails, they are used until they expire. Returns nullopt if there are none: then requests
  // are not signed, which public buckets allow. Throws DataError if keys are not available:
  // UnreachableError if the credentials service does not respond, RefusedError if it refuses.
  std::optional<AwsKeys> keys();
  // Searches for keys again after a server reported that the key `id` has expired. Returns false if
  // they cannot change.
  bool renew(const std::string& id);

  const std::string& region() const { return region_; }      // "" if not set
  const std::string& endpoint() const { return endpoint_; }  // "" for AWS's own
  // Source of the keys, for messages: "the environment", "profile lab", "none".
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
  std::string entry(const char* name) const;  // entry of the profile
  std::string variable(const char* name) const;

  Environment environment_;
  Clock::duration pause_;
  std::string profile_name_, region_, endpoint_;
  Profile profile_;
  mutable std::mutex mutex_;  // protects the members below
  bool is_found_ = false;
  Found found_;
  Clock::time_point searched_;
};

}  // namespace lockstep
