// S3 maps s3:// addresses to HTTP requests and chooses the credentials that sign them. libcurl
// implements SigV4. The region of a bucket is learned from replies of S3.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "data/remote/aws_credentials.h"

namespace lockstep {

struct S3Address {
  std::string bucket, key;

  // Parses "s3://BUCKET/KEY"; throws DataError for another form.
  static S3Address parse(const std::string& url);
};

// Encodes a key as a URL path: all characters except letters, digits and -_.~/ become %XX, the form
// that S3 signs.
std::string s3_path(std::string_view key);

class S3 {
 public:
  explicit S3(const Environment& environment) : credentials_(environment) {}

  // Returns a request for the whole object. Thread-safe.
  HttpRequest request(const std::string& url);

  // Handles a refusal by S3. Returns true if another request may succeed, because the reply reports
  // the region of the bucket, or because expired credentials were renewed.
  bool learn(const std::string& url, const HttpRequest& request, const HttpReply& reply);

  // Returns advice about a refusal, which starts with ": " or "; ".
  std::string advice(const HttpReply& reply) const;

 private:
  std::string region_of(const std::string& bucket);

  AwsCredentials credentials_;
  std::mutex mutex_;
  std::map<std::string, std::string> regions_;  // by bucket, as reported by S3
};

// Returns the text between <NAME> and </NAME> in an error of S3, such as "NoSuchKey" for Code.
// Returns "" if it is missing or not a plain word.
std::string s3_error_part(std::string_view body, std::string_view name);

}  // namespace lockstep
