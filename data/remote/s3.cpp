#include "data/remote/s3.h"

#include <algorithm>

namespace lockstep {
namespace {

// The SHA-256 of an empty body, which S3 requires to be signed; libcurl 7.88 signs it if it is
// given.
constexpr const char* kHashOfNothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

bool is_plain(char c) {
  return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

bool is_bucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 255 &&
         std::all_of(name.begin(), name.end(), is_plain) && name.front() != '.' &&
         name.front() != '-';
}

// Returns the URL before /KEY. A bucket name with dots would not match the certificates of AWS.
std::string host_of(const std::string& endpoint, const std::string& region,
                    const std::string& bucket) {
  if (!endpoint.empty()) return str(endpoint, '/', bucket);
  const auto suffix = region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const auto host = str("s3.", region, '.', suffix);
  const bool is_name = std::none_of(bucket.begin(), bucket.end(), [](char c) {
    return c == '.' || c == '_' || ('A' <= c && c <= 'Z');
  });
  return is_name ? str("https://", bucket, '.', host) : str("https://", host, '/', bucket);
}

bool is_expiry(std::string_view code) {
  return code == "ExpiredToken" || code == "ExpiredTokenException" ||
         code == "TokenRefreshRequired";
}

}  // namespace

S3Address S3Address::parse(const std::string& url) {
  static constexpr std::string_view kScheme = "s3://";
  const auto slash = url.find('/', kScheme.size());
  S3Address address;
  if (url.starts_with(kScheme) && slash != std::string::npos)
    address = {url.substr(kScheme.size(), slash - kScheme.size()), url.substr(slash + 1)};
  if (!is_bucket(address.bucket) || address.key.empty())
    throw DataError(str(url, ": expected s3://BUCKET/KEY"));
  return address;
}

std::string s3_path(std::string_view key) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string path;
  for (const char c : key) {
    if (is_plain(c) || c == '/') {
      path += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    path += '%';
    path += kDigits[byte >> 4];
    path += kDigits[byte & 15];
  }
  return path;
}

std::string s3_error_part(std::string_view body, std::string_view name) {
  const auto open = str('<', name, '>'), close = str("</", name, '>');
  const auto begin = body.find(open);
  if (begin == std::string_view::npos) return "";
  const auto end = body.find(close, begin);
  if (end == std::string_view::npos) return "";
  const auto text = body.substr(begin + open.size(), end - begin - open.size());
  const bool is_word =
      !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), is_plain);
  return is_word ? std::string(text) : "";
}

std::string S3::region_of(const std::string& bucket) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = regions_.find(bucket); found != regions_.end()) return found->second;
  return credentials_.region().empty() ? "us-east-1" : credentials_.region();
}

HttpRequest S3::request(const std::string& url) {
  const auto address = S3Address::parse(url);
  HttpRequest request;
  request.region = region_of(address.bucket);
  request.url = str(host_of(credentials_.endpoint(), request.region, address.bucket), '/',
                    s3_path(address.key));
  request.follows = false;  // a signature is valid for one host
  if (const auto keys = credentials_.keys()) {
    request.user = keys->id;
    request.password = keys->secret;
    request.headers.push_back(str("x-amz-content-sha256: ", kHashOfNothing));
    if (!keys->token.empty()) request.headers.push_back("x-amz-security-token: " + keys->token);
  }
  return request;
}

bool S3::learn(const std::string& url, const HttpRequest& request, const HttpReply& reply) {
  const auto code = s3_error_part(reply.error_body, "Code");
  if (is_expiry(code)) return credentials_.renew(request.user);
  auto region = reply.bucket_region;
  if (region.empty()) region = s3_error_part(reply.error_body, "Region");
  if (region.empty() || !std::all_of(region.begin(), region.end(), is_plain)) return false;
  const std::scoped_lock lock(mutex_);
  regions_[S3Address::parse(url).bucket] = region;
  return region != request.region;  // another thread may have set it meanwhile
}

std::string S3::advice(const HttpReply& reply) const {
  const auto code = s3_error_part(reply.error_body, "Code");
  auto said = code.empty() ? std::string() : str(" (", code, ")");
  const auto source = credentials_.source();
  if (is_expiry(code)) return str(said, "; the credentials of ", source, " have expired");
  if (code == "RequestTimeTooSkewed") return str(said, "; set the clock of this host");
  if (reply.status == 404)
    return str(said, "; the object does not exist; list the bucket with `aws s3 ls`");
  if (reply.status == 301 || reply.status == 307 || reply.status == 400)
    return str(said, "; check that AWS_REGION is the bucket's region");
  if (reply.status != 401 && reply.status != 403) return said;
  if (source == "none")
    return str(said,
               "; the request was not signed, because no credentials were found; set "
               "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (docs/streaming.md)");
  return str(said, "; the request was signed with the credentials of ", source,
             ", which lack permission, or the object does not exist");
}

}  // namespace lockstep
