#include "data/remote/http.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <curl/curl.h>
#include <dlfcn.h>
#include <exception>
#include <limits>
#include <string_view>

#include "core/progress.h"

namespace lockstep {
namespace {

constexpr long kMostRedirects = 5, kReceiveBytes = 512 << 10, kLeastBytesPerSecond = 1024;
constexpr std::size_t kMostErrorBytes = 4096;
constexpr unsigned kLeastVersion = 0x075800;  // 7.88 is the first whose signatures S3 accepts

bool is_whole(int status) {
  return status == 200 || status == 206;
}

bool may_pass(int status) {  // whether the error may be temporary
  return status == 408 || status == 425 || status == 429 ||
         (status >= 500 && status != 501 && status != 505);
}

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR: return false;
    default: return true;
  }
}

// Parses a number that is the whole text, or returns -1.
std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

}  // namespace

std::string_view stripped(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// The functions of libcurl, and the handle of this connection.
struct HttpConnection::Library {
  Library() {
    void* handle = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
      if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // never unloaded
    if (handle == nullptr)
      throw AccessError(
          "reading s3://, https:// and http:// needs libcurl, which is not installed; on Debian "
          "run: apt-get install libcurl4");
    find(handle, "curl_version_info", version_info);
    const auto* version = version_info(CURLVERSION_NOW);
    if (version->version_num < kLeastVersion)
      throw AccessError(
          str("reading s3://, https:// and http:// needs libcurl 7.88 or later, found ",
              version->version));
    find(handle, "curl_easy_init", init);
    find(handle, "curl_easy_setopt", setopt);
    find(handle, "curl_easy_perform", perform);
    find(handle, "curl_easy_getinfo", getinfo);
    find(handle, "curl_easy_reset", reset);
    find(handle, "curl_easy_strerror", strerror);
    find(handle, "curl_easy_cleanup", cleanup);
    find(handle, "curl_slist_append", append);
    find(handle, "curl_slist_free_all", free_all);
    easy = init();  // calls curl_global_init, which is thread-safe in these versions
    LOCKSTEP_CHECK(easy != nullptr, "libcurl cannot be initialized");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { cleanup(easy); }

  template <class Function>
  static void find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    LOCKSTEP_CHECK(function != nullptr, "the libcurl of this host has no ", name);
  }
  template <class Value>
  void set(CURLoption option, Value value) {
    const auto code = setopt(easy, option, value);
    LOCKSTEP_CHECK(code == CURLE_OK, "libcurl: option ", static_cast<int>(option), ": ",
                   strerror(code));
  }

  decltype(&curl_version_info) version_info = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) getinfo = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_strerror) strerror = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_all = nullptr;
  CURL* easy = nullptr;
};

// A request in progress. Headers come before the body; headers of a redirect come before those of
// its target.
struct HttpConnection::Transfer {
  Transfer(const HttpRequest& asked, Sink into, Library& with, const std::atomic<bool>& flag)
      : request(asked), sink(into), library(with), stop(flag) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { library.free_all(headers); }

  void take_header(std::string_view line);
  bool begin_body();                      // false: the body is not wanted
  bool take(std::span<const std::byte>);  // false: enough
  void end(CURLcode code, const char* text);

  bool give_up(HttpReply::End end, std::string what) {
    reply.end = end;
    reply.what = std::move(what);
    is_decided = true;
    return false;
  }
  std::int64_t wanted_bytes() const {  // -1: unknown
    const auto last = request.end >= 0 ? request.end : reply.object_bytes;
    return last < 0 ? -1 : last - request.first;
  }

  const HttpRequest& request;
  Sink sink;
  Library& library;
  const std::atomic<bool>& stop;
  HttpReply reply;
  bool has_body = false, is_decided = false, has_too_much = false;
  ContentRange range;
  std::int64_t length = -1, to_skip = 0;
  std::exception_ptr error;
  std::array<char, CURL_ERROR_SIZE> error_text{};
  curl_slist* headers = nullptr;
};

ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return range;
  text = stripped(text.substr(6));
  const auto slash = text.find('/'), dash = text.substr(0, slash).find('-');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return range;
  range.first = number(text.substr(0, dash));
  const auto last = number(text.substr(dash + 1, slash - dash - 1));
  if (last >= 0 && last < std::numeric_limits<std::int64_t>::max()) range.end = last + 1;
  range.object_bytes = number(text.substr(slash + 1));
  return range;
}

void HttpConnection::Transfer::take_header(std::string_view line) {
  if (line.starts_with("HTTP/")) {  // a new reply starts
    range = ContentRange{};
    length = -1;
    reply.retry_after_seconds = 0;
    return;
  }
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto value = stripped(line.substr(colon + 1));
  if (name == "content-range") range = parse_content_range(value);
  if (name == "content-length") length = number(value);
  // A date is ignored: the wait increases anyway.
  if (name == "retry-after")
    reply.retry_after_seconds =
        static_cast<double>(std::clamp<std::int64_t>(number(value), 0, 86400));
  if (name == "x-amz-bucket-region" && value.size() <= 64) reply.bucket_region = value;
}

bool HttpConnection::Transfer::begin_body() {
  has_body = true;
  long status = 0;
  library.getinfo(library.easy, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  if (!is_whole(reply.status)) return true;  // body of an error, or no body
  const bool is_range = request.first > 0 || request.end >= 0;
  if (reply.status == 206) {
    if (!is_range)
      return give_up(HttpReply::End::broken,
                     "the server sent a range, but the whole object was requested");
    if (range.first != request.first || range.end <= range.first ||
        (request.end >= 0 && range.end > request.end))
      return give_up(HttpReply::End::broken,
                     str("requested bytes [", request.first, ", ", request.end,
                         "), but the server sends [", range.first, ", ", range.end, ")"));
    if (length >= 0 && length != range.end - range.first)
      return give_up(HttpReply::End::broken,
                     str("the server announces bytes [", range.first, ", ", range.end,
                         "), but a length of ", length, " bytes"));
  }
  reply.object_bytes = reply.status == 206 ? range.object_bytes : length;
  if (request.object_bytes >= 0 && reply.object_bytes >= 0 &&
      reply.object_bytes != request.object_bytes) {
    reply.is_other = true;
    return give_up(HttpReply::End::broken, str("expected an object of ", request.object_bytes,
                                               " bytes, the server reports ", reply.object_bytes));
  }
  if (reply.status == 206) return true;
  if (request.first > 0 && !request.may_skip)
    return give_up(HttpReply::End::ranges_ignored, "the server does not support ranges");
  to_skip = request.first;
  return true;
}

bool HttpConnection::Transfer::take(std::span<const std::byte> bytes) {
  if (!has_body && !begin_body()) return false;
  made_progress();
  if (!is_whole(reply.status)) {
    const auto count = std::min(bytes.size(), kMostErrorBytes - reply.error_body.size());
    reply.error_body.append(reinterpret_cast<const char*>(bytes.data()), count);
    return reply.error_body.size() < kMostErrorBytes;
  }
  const auto skipped = std::min(to_skip, static_cast<std::int64_t>(bytes.size()));
  to_skip -= skipped;
  bytes = bytes.subspan(static_cast<std::size_t>(skipped));
  if (request.end >= 0) {
    const auto left = request.end - request.first - reply.received_bytes;
    has_too_much = static_cast<std::int64_t>(bytes.size()) > left;
    if (has_too_much) bytes = bytes.first(static_cast<std::size_t>(left));
  }
  if (!bytes.empty()) sink(bytes);
  reply.received_bytes += static_cast<std::int64_t>(bytes.size());
  return !has_too_much;
}

void HttpConnection::Transfer::end(CURLcode code, const char* text) {
  if (!has_body && code == CURLE_OK) begin_body();
  if (is_decided) return;
  const auto wanted = wanted_bytes();
  if (reply.status != 0 && !is_whole(reply.status)) {
    give_up(may_pass(reply.status) ? HttpReply::End::broken : HttpReply::End::refused,
            str("HTTP status ", reply.status));
  } else if ((reply.received_bytes == wanted && (code == CURLE_OK || has_too_much)) ||
             (wanted < 0 && code == CURLE_OK)) {  // chunked: the end was marked
    reply.end = HttpReply::End::whole;
  } else if (code == CURLE_OK) {
    give_up(HttpReply::End::broken,
            str("the reply ended after ", reply.received_bytes, " of ", wanted, " bytes"));
  } else {
    give_up(may_pass(code) ? HttpReply::End::broken : HttpReply::End::refused,
            str(error_text[0] != '\0' ? error_text.data() : text,
                reply.received_bytes > 0 ? str(", after ", reply.received_bytes, " bytes") : ""));
  }
}

namespace {

// libcurl's callbacks. No exception may pass through it.
template <class Transfer, class Act>
bool guarded(Transfer& transfer, const Act& act) {
  try {
    return act();
  } catch (...) {
    transfer.error = std::current_exception();
    return false;
  }
}

template <class Transfer>
std::size_t on_body(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& to = *static_cast<Transfer*>(transfer);
  const std::span<const char> bytes(data, size * count);
  return guarded(to, [&] { return to.take(std::as_bytes(bytes)); }) ? size * count : 0;
}

template <class Transfer>
std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& to = *static_cast<Transfer*>(transfer);
  const auto take = [&] {
    to.take_header({data, size * count});
    return true;
  };
  return guarded(to, take) ? size * count : 0;
}

template <class Transfer>
int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(transfer)->stop.load() ? 1 : 0;
}

}  // namespace

HttpConnection::HttpConnection(const HttpLimits& limits, const std::atomic<bool>& stop)
    : limits_(limits), stop_(stop), library_(std::make_unique<Library>()) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::set_options(const HttpRequest& request, Transfer& transfer) {
  auto& curl = *library_;
  curl.reset(curl.easy);  // keeps connections
  curl.set(CURLOPT_URL, request.url.c_str());
  curl.set(CURLOPT_PATH_AS_IS, 1L);
  curl.set(CURLOPT_NOSIGNAL, 1L);
  curl.set(CURLOPT_PROTOCOLS_STR, "http,https");
  curl.set(CURLOPT_ERRORBUFFER, transfer.error_text.data());
  curl.set(CURLOPT_CONNECTTIMEOUT_MS, request.is_local ? 1000L : limits_.connect_milliseconds);
  curl.set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesPerSecond);
  curl.set(CURLOPT_LOW_SPEED_TIME, limits_.stall_seconds);
  curl.set(CURLOPT_BUFFERSIZE, kReceiveBytes);
  curl.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);  // one connection for each of many ranges
  curl.set(CURLOPT_WRITEFUNCTION, &on_body<Transfer>);
  curl.set(CURLOPT_WRITEDATA, &transfer);
  curl.set(CURLOPT_HEADERFUNCTION, &on_header<Transfer>);
  curl.set(CURLOPT_HEADERDATA, &transfer);
  curl.set(CURLOPT_NOPROGRESS, 0L);
  curl.set(CURLOPT_XFERINFOFUNCTION, &on_progress<Transfer>);
  curl.set(CURLOPT_XFERINFODATA, &transfer);
  if (request.is_local) curl.set(CURLOPT_NOPROXY, "*");
  if (request.put) curl.set(CURLOPT_CUSTOMREQUEST, "PUT");
  if (!request.user.empty()) {
    curl.set(CURLOPT_AWS_SIGV4, str("aws:amz:", request.region, ":s3").c_str());
    curl.set(CURLOPT_USERNAME, request.user.c_str());
    curl.set(CURLOPT_PASSWORD, request.password.c_str());
  } else if (!request.is_local && request.follows) {
    const bool is_tls = request.url.starts_with("https:");
    curl.set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
    curl.set(CURLOPT_FOLLOWLOCATION, 1L);
    curl.set(CURLOPT_MAXREDIRS, kMostRedirects);
    curl.set(CURLOPT_REDIR_PROTOCOLS_STR, is_tls ? "https" : "http,https");
  }
  std::string range;
  if (request.first > 0 || request.end >= 0) {
    range = str(request.first, '-');
    if (request.end >= 0) range += str(request.end - 1);
    curl.set(CURLOPT_RANGE, range.c_str());
  }
  for (const auto& header : request.headers)
    transfer.headers = curl.append(transfer.headers, header.c_str());
  if (transfer.headers != nullptr) curl.set(CURLOPT_HTTPHEADER, transfer.headers);
}

HttpReply HttpConnection::send(const HttpRequest& request, Sink sink) {
  Transfer transfer(request, sink, *library_, stop_);
  set_options(request, transfer);
  const auto code = library_->perform(library_->easy);
  library_->set(CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  if (transfer.error) std::rethrow_exception(transfer.error);
  transfer.end(code, library_->strerror(code));
  return std::move(transfer.reply);
}

}  // namespace lockstep
