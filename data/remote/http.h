// HttpConnection sends requests with libcurl and checks each reply against the request. Remote
// (data/remote/remote.h) retries. TLS is verified with the certificates of the system; proxies and
// ~/.netrc work as in curl. libcurl is loaded at the first use, so programs that read local files
// do not need it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/function_ref.h"

namespace lockstep {

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "name: value"
  std::int64_t first = 0, end = -1;  // bytes [first, end) of the object; end < 0: all of it
  std::int64_t object_bytes = -1;  // size of the whole object, which the reply must match; -1: any
  bool may_skip = false;           // if the server ignores ranges, read and skip the bytes before
  bool put = false;                // PUT without a body
  bool follows = true;             // follow redirects
  bool is_local = false;           // no proxy, no redirects, and one second to connect
  std::string region, user, password;  // user: signed for S3 in the region (SigV4); "": not signed
};

struct HttpReply {
  // refused: the same request would fail again. ranges_ignored: the server always sends the object
  // from its first byte.
  enum class End : std::uint8_t { whole, broken, refused, ranges_ignored };
  End end = End::broken;
  int status = 0;                   // 0: no reply
  bool is_other = false;            // the object has an unexpected size
  std::string what;                 // reason if it is not whole
  std::int64_t received_bytes = 0;  // bytes passed to the sink
  std::int64_t object_bytes = -1;   // as reported by the server; -1: not reported
  double retry_after_seconds = 0;
  std::string error_body;     // first bytes of an error reply
  std::string bucket_region;  // region of the bucket as reported by S3
};

// Parsed "bytes 0-99/1234": [0, 100) of 1234. Parts that are missing or not a number are -1.
struct ContentRange {
  std::int64_t first = -1, end = -1, object_bytes = -1;
};
ContentRange parse_content_range(std::string_view text);

// Timeouts of a connection.
struct HttpLimits {
  long connect_milliseconds = 10'000;
  long stall_seconds = 10;  // below 1 KiB/s
};

// Keeps its connection open between requests to the same server. Not thread-safe.
class HttpConnection {
 public:
  using Sink = FunctionRef<void(std::span<const std::byte>)>;

  // Throws AccessError without libcurl. `stop`, set by another thread, aborts a request.
  HttpConnection(const HttpLimits& limits, const std::atomic<bool>& stop);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  // Sends a request. The sink gets only requested bytes. Exceptions of the sink are passed on.
  HttpReply send(const HttpRequest& request, Sink sink);

 private:
  struct Library;
  struct Transfer;
  void set_options(const HttpRequest& request, Transfer& transfer);

  HttpLimits limits_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<Library> library_;
};

std::string_view stripped(std::string_view text);  // without surrounding blanks and line ends

}  // namespace lockstep
