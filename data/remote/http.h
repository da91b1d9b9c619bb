// Http: one request by libcurl, whose answer is checked against what was asked for. Trying again is
// Remote's (data/remote/remote.h). TLS is verified by the system's certificates; proxies and
// ~/.netrc are those that curl takes. libcurl is loaded at the first use: a program that reads
// local files does not need it.
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
  std::vector<std::string> headers;    // "name: value"
  std::int64_t first = 0, end = -1;    // bytes [first, end) of the object; end < 0: all of it
  std::int64_t object_bytes = -1;      // of all of it, which the answer must agree with; -1: any
  bool may_skip = false;               // where the server ignores ranges, read what lies before
  bool put = false;                    // PUT without a body
  bool follows = true;                 // redirects
  bool is_local = false;               // no proxy, no redirects, and one second to connect
  std::string region, user, password;  // user: signed for S3 of the region (SigV4); "": not signed
};

struct HttpReply {
  // refused: the same request would have the same end. ranges_ignored: the server sends the object
  // from its first byte whatever is asked for.
  enum class End : std::uint8_t { whole, broken, refused, ranges_ignored };
  End end = End::broken;
  int status = 0;                   // 0: no answer came
  bool is_other = false;            // the object has another size than it should have
  std::string what;                 // where it is not whole: why
  std::int64_t received_bytes = 0;  // that the sink got
  std::int64_t object_bytes = -1;   // as the server says; -1: it does not
  double retry_after_seconds = 0;
  std::string error_body;     // of an answer that is an error: its first bytes
  std::string bucket_region;  // where S3 says that the bucket is
};

// Of "bytes 0-99/1234": [0, 100) of 1234. What is not said, or no number, is -1.
struct ContentRange {
  std::int64_t first = -1, end = -1, object_bytes = -1;
};
ContentRange parse_content_range(std::string_view text);

// How long a connection may do nothing.
struct HttpLimits {
  long connect_milliseconds = 10'000;
  long stall_seconds = 10;  // below 1 KiB/s
};

// One connection after the other, kept open between requests to the same server. Of one thread.
class HttpConnection {
 public:
  using Sink = FunctionRef<void(std::span<const std::byte>)>;

  // Throws AccessError where there is no libcurl. `stop`, set by another thread, ends a request.
  HttpConnection(const HttpLimits& limits, const std::atomic<bool>& stop);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  // Never gives the sink a byte that was not asked for. What the sink throws comes through.
  HttpReply send(const HttpRequest& request, Sink sink);

 private:
  struct Library;
  struct Transfer;
  void set_options(const HttpRequest& request, Transfer& transfer);

  HttpLimits limits_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<Library> library_;
};

std::string_view stripped(std::string_view text);  // without blanks and ends of lines around it

}  // namespace lockstep
