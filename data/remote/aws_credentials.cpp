#include "data/remote/aws_credentials.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"
#include "core/log.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostFileBytes = 1 << 20;
constexpr auto kEarly = std::chrono::minutes(5);
constexpr const char* kRemedy =
    "; run `eval \"$(aws configure export-credentials --format env)\"` to put its credentials into "
    "the environment";

std::map<std::string, Profile> read_profiles(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return {};
  return parse_profiles(read_text(path, kMostFileBytes), path.string());
}

void merge(Profile& profile, const std::map<std::string, Profile>& sections,
           const std::string& name) {
  if (const auto found = sections.find(name); found != sections.end())
    for (const auto& [key, value] : found->second)
      profile.emplace(key, value);
}

// Parses "2026-11-22T22:31:59Z", with or without a fraction of the second.
AwsKeys::Time parse_time(const std::string& text) {
  std::array<int, 6> part{};
  int read = 0;
  // NOLINTNEXTLINE(cert-err34-c): the counts are checked
  const int parts = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &part[0], &part[1],
                                &part[2], &part[3], &part[4], &part[5], &read);
  const std::chrono::year_month_day day{
      std::chrono::year(part[0]), std::chrono::month(static_cast<unsigned>(std::max(part[1], 0))),
      std::chrono::day(static_cast<unsigned>(std::max(part[2], 0)))};
  if (parts != 6 || !day.ok() || !text.ends_with('Z'))
    throw DataError("Expiration is not a time such as 2026-01-31T23:59:59Z");
  const std::chrono::sys_seconds time = std::chrono::sys_days(day) + std::chrono::hours(part[3]) +
                                        std::chrono::minutes(part[4]) +
                                        std::chrono::seconds(part[5]);
  // The clock counts nanoseconds and ends in the year 2262.
  const auto seconds = [](AwsKeys::Time at) {
    return std::chrono::time_point_cast<std::chrono::seconds>(at);
  };
  return std::clamp(time, seconds(AwsKeys::Time()), seconds(AwsKeys::Time::max()));
}

std::string host_of(std::string_view url) {
  url.remove_prefix(std::min(url.find("://") + 3, url.size()));
  url = url.substr(0, url.find_first_of("/?#"));
  if (url.starts_with('[')) return std::string(url.substr(0, url.find(']') + 1));
  return std::string(url.substr(0, url.find(':')));
}

// Requests a service that may be busy. is_there: a missing reply does not mean that the service is
// absent.
HttpReply ask(HttpRequest request, bool is_there, std::string& text) {
  static constexpr std::size_t kMostBytes = 1 << 16;
  const std::atomic<bool> stop = false;
  HttpConnection connection({1000, 5}, stop);
  request.is_local = true;
  HttpReply reply;
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
    text.clear();
    reply = connection.send(request, [&](std::span<const std::byte> bytes) {
      if (text.size() + bytes.size() > kMostBytes)
        throw DataError(str(host_of(request.url), ": the reply exceeds 64 KiB"));
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (reply.end != HttpReply::End::broken || (reply.status == 0 && !is_there)) break;
  }
  return reply;
}

void require_whole(const HttpReply& reply, const std::string& what) {
  if (reply.end == HttpReply::End::broken)
    throw UnreachableError(str(what, ": ", reply.what, "; rerun the same command later"));
  if (reply.end != HttpReply::End::whole) throw RefusedError(str(what, ": ", reply.what));
}

// Whether a token may be sent to `url`: over plain HTTP only to this host, or to the agents of ECS
// and EKS.
bool may_have_token(const std::string& url) {
  if (url.starts_with("https://")) return true;
  const auto host = host_of(url);
  return url.starts_with("http://") &&
         (host.starts_with("127.") || host == "localhost" || host == "[::1]" ||
          host == "169.254.170.2" || host == "169.254.170.23" || host == "[fd00:ec2::23]");
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& what) {
  std::map<std::string, Profile> sections;
  Profile* section = nullptr;
  for (int line_number = 1; !text.empty(); ++line_number) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    // Indented lines belong to the key above, and no such key is read here.
    if (line.starts_with(' ') || line.starts_with('\t')) continue;
    line = stripped(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const auto end = line.find(']');
      if (end == std::string_view::npos)
        throw DataError(str(what, ": line ", line_number, ": expected [NAME]"));
      section = &sections[std::string(stripped(line.substr(1, end - 1)))];
      continue;
    }
    const auto equals = line.find('=');
    if (section == nullptr || equals == std::string_view::npos)
      throw DataError(str(what, ": line ", line_number, ": expected ",
                          section == nullptr ? "[NAME]" : "KEY = VALUE"));
    (*section)[std::string(stripped(line.substr(0, equals)))] = stripped(line.substr(equals + 1));
  }
  return sections;
}

AwsKeys parse_keys(std::string_view text, const std::string& what) {
  AwsKeys keys;
  try {
    const auto json = Json::parse(text, what, 4);
    keys.id = text_at(json, "AccessKeyId");
    keys.secret = text_at(json, "SecretAccessKey");
    if (const auto* token = json.find("Token")) keys.token = token->as_string();
    if (const auto* expires = json.find("Expiration"))
      keys.expires = parse_time(expires->as_string());
    if (!keys.id.empty() && !keys.secret.empty()) return keys;
  } catch (const DataError&) {  // its text may contain a secret
  }
  throw DataError(
      str(what, ": the reply lacks a valid AccessKeyId, SecretAccessKey or Expiration"));
}

AwsCredentials::AwsCredentials(const Environment& environment, Clock::duration pause)
    : environment_(environment), pause_(pause) {
  read_profile();
  const auto first_of = [&](std::initializer_list<std::string> values) {
    for (const auto& value : values)
      if (!value.empty()) return value;
    return std::string();
  };
  region_ = first_of({variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), entry("region")});
  endpoint_ = first_of(
      {variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"), entry("endpoint_url")});
  while (endpoint_.ends_with('/'))
    endpoint_.pop_back();
  if (!endpoint_.empty() && !endpoint_.starts_with("https://") && !endpoint_.starts_with("http://"))
    throw DataError(str("AWS_ENDPOINT_URL is \"", endpoint_, "\", expected https://HOST[:PORT]"));
}

std::string AwsCredentials::variable(const char* name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? std::string() : found->second;
}

std::string AwsCredentials::entry(const char* name) const {
  const auto found = profile_.find(name);
  return found == profile_.end() ? std::string() : found->second;
}

void AwsCredentials::read_profile() {
  const std::filesystem::path home(variable("HOME"));
  const auto path = [&](const char* name, const char* file) {
    const auto named = variable(name);
    return named.empty() ? home / ".aws" / file : std::filesystem::path(named);
  };
  const auto named = variable("AWS_PROFILE");
  profile_name_ = named.empty() ? "default" : named;
  profile_.clear();
  merge(profile_, read_profiles(path("AWS_SHARED_CREDENTIALS_FILE", "credentials")), profile_name_);
  const auto config = read_profiles(path("AWS_CONFIG_FILE", "config"));
  merge(profile_, config, profile_name_ == "default" ? "default" : "profile " + profile_name_);
  if (profile_.empty() && !named.empty())
    throw DataError(str("AWS_PROFILE is ", named,
                        ", but neither ~/.aws/credentials nor ~/.aws/config has that profile"));
}

std::optional<AwsKeys> AwsCredentials::keys() {
  const std::scoped_lock lock(mutex_);
  const auto now = std::chrono::system_clock::now();
  const auto& had = found_.keys;
  if (is_found_ && (!had || had->expires - kEarly > now)) return had;
  const bool serve = had && had->expires > now;
  if (serve && Clock::now() - searched_ < pause_) return had;
  try {
    auto found = find();
    if (had && !found.keys) throw AccessError("no credential source is available any more");
    found_ = std::move(found);
    is_found_ = true;
  } catch (const DataError& error) {
    if (!had) throw;
    if (!serve)
      throw_like(error, str("the S3 credentials have expired, and no new ones are available: ",
                            error.what()));
    log_own_warning("the S3 credentials expire soon, and no new ones are available yet: ",
                    error.what());
  }
  searched_ = Clock::now();
  return found_.keys;
}

bool AwsCredentials::renew(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  if (found_.source == Source::environment || found_.source == Source::none) return false;
  if (!found_.keys || found_.keys->id != id) return true;  // the keys were already replaced
  if (found_.source == Source::profile) read_profile();    // a tool may have written new keys
  found_.keys->expires = AwsKeys::Time();
  return true;
}

std::string AwsCredentials::source() const {
  const std::scoped_lock lock(mutex_);
  switch (found_.source) {
    case Source::none: return "none";
    case Source::environment: return "the environment";
    case Source::profile: return "profile " + profile_name_;
    case Source::container: return "the container";
    case Source::instance: return "the instance";
  }
  return "?";
}

AwsCredentials::Found AwsCredentials::find() const {
  AwsKeys keys{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
               variable("AWS_SESSION_TOKEN"), AwsKeys::Time::max()};
  if (!keys.id.empty() && !keys.secret.empty()) return {Source::environment, keys};
  if (!keys.id.empty() || !keys.secret.empty())
    throw DataError(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together, but only one is set");
  if (!variable("AWS_WEB_IDENTITY_TOKEN_FILE").empty())
    throw DataError(str(
        "AWS_WEB_IDENTITY_TOKEN_FILE is set, but web identity tokens are not supported", kRemedy));
  keys = {entry("aws_access_key_id"), entry("aws_secret_access_key"), entry("aws_session_token"),
          AwsKeys::Time::max()};
  if (!keys.id.empty() && !keys.secret.empty()) return {Source::profile, keys};
  for (const char* kind : {"role_arn", "credential_process", "sso_session", "sso_start_url"})
    if (profile_.count(kind) != 0)
      throw DataError(str("the AWS profile ", profile_name_, " has ", kind,
                          ", which is not supported", kRemedy));
  if (auto found = ask_container()) return {Source::container, found};
  if (auto found = ask_instance()) return {Source::instance, found};
  return {};
}

// https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
std::optional<AwsKeys> AwsCredentials::ask_container() const {
  const auto relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  HttpRequest request;
  request.url = relative.empty() ? variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                                 : "http://169.254.170.2" + relative;
  if (request.url.empty()) return std::nullopt;
  if (!may_have_token(request.url))
    throw DataError(str("AWS_CONTAINER_CREDENTIALS_FULL_URI points to ", host_of(request.url),
                        ", expected https:// or this host"));
  auto token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const auto file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty())
    token = read_text(file, kMostFileBytes);
  while (token.ends_with('\n') || token.ends_with('\r'))
    token.pop_back();
  if (token.find_first_of("\r\n") != std::string::npos)
    throw DataError("the container's authorization token has a line break");
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  std::string text;
  require_whole(ask(request, true, text),
                str("cannot get the container's credentials from ", host_of(request.url)));
  return parse_keys(text, host_of(request.url));
}

// Uses version 2 of the instance metadata service: gets a token by PUT, then the name of the role
// and its keys.
std::optional<AwsKeys> AwsCredentials::ask_instance() const {
  auto disabled = variable("AWS_EC2_METADATA_DISABLED");
  std::transform(disabled.begin(), disabled.end(), disabled.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (disabled == "true") return std::nullopt;
  auto base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/'))
    base.pop_back();
  HttpRequest request;
  request.url = base + "/latest/api/token";
  request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
  request.put = true;
  std::string token, role, keys;
  // Outside EC2 there is no reply.
  const bool is_there = found_.source == Source::instance;
  const auto greeting = ask(request, is_there, token);
  if (is_there && greeting.end == HttpReply::End::broken)
    require_whole(greeting, "cannot reach the instance metadata service");
  if (greeting.end != HttpReply::End::whole) return std::nullopt;
  if (token.find_first_of("\r\n") != std::string::npos) return std::nullopt;
  request.put = false;
  request.headers = {"X-aws-ec2-metadata-token: " + token};
  request.url = base + "/latest/meta-data/iam/security-credentials/";
  const auto named = ask(request, true, role);
  if (named.end == HttpReply::End::refused) return std::nullopt;  // the instance has no role
  require_whole(named, "cannot get the name of the instance role");
  role = role.substr(0, role.find_first_of("\r\n"));
  request.url += role;
  require_whole(ask(request, true, keys),
                str("cannot get the credentials of the instance role ", role));
  return parse_keys(keys, str("the instance role ", role));
}

}  // namespace lockstep
