// S3: what an s3:// address means to HTTP, and by whom the request is signed. SigV4 itself is
// libcurl's. A bucket's region is learned from S3's own answers.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "data/remote/aws_credentials.h"

namespace lockstep {

struct S3Address {
  std::string bucket, key;

  // Of "s3://BUCKET/KEY"; throws DataError for another form.
  static S3Address parse(const std::string& url);
};

// Of a key in a path: all but letters, digits and -_.~/ as %XX, which is what S3 signs.
std::string s3_path(std::string_view key);

class S3 {
 public:
  explicit S3(const Environment& environment) : credentials_(environment) {}

  // A request for the whole object. Of any thread.
  HttpRequest request(const std::string& url);

  // S3 refused the request for `url` by `reply`: true when another one may end better, since it
  // told where the bucket is, or credentials that had expired are found anew.
  bool learn(const std::string& url, const HttpRequest& request, const HttpReply& reply);

  // What to do about a refusal: a sentence that begins with ": " or "; ".
  std::string advice(const HttpReply& reply) const;

 private:
  std::string region_of(const std::string& bucket);

  AwsCredentials credentials_;
  std::mutex mutex_;
  std::map<std::string, std::string> regions_;  // of buckets, where S3 said them
};

// What stands between <NAME> and </NAME> in an error of S3, as "NoSuchKey" of Code; "" where there
// is none, or it is no plain word.
std::string s3_error_part(std::string_view body, std::string_view name);

}  // namespace lockstep
