// Remote reads objects at s3://BUCKET/KEY, https:// and http:// addresses, and files at file:
// addresses. It retries a broken request from the byte where it broke, after increasing waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/remote/s3.h"

namespace lockstep {

// Throws UsageError if `path` is an address; for commands that only read or write local files.
void require_local(const std::string& path);

struct Patience {
  HttpLimits limits;
  double first_wait_seconds = 0.25,
         most_wait_seconds = 8;  // doubled each time; half of it is random
  // After this time with less than 64 KiB received, a last attempt is made, whatever wait the
  // server requests. With the limits of that attempt it ends before train.stall_seconds.
  double give_up_seconds = 30;
};

// Remote has the state that all connections share. Thread-safe.
class Remote {
 public:
  Remote(Environment environment, const Patience& patience)
      : environment_(std::move(environment)), patience_(patience) {}

  const Patience& patience() const { return patience_; }
  // Returns a request for an address. Throws AccessError for an invalid address or without
  // credentials, UnreachableError if the credentials service does not respond.
  HttpRequest request(const std::string& url);
  // See S3::learn.
  bool learn(const std::string& url, const HttpRequest& request, const HttpReply& reply);
  std::string advice(const std::string& url, const HttpReply& reply);

 private:
  S3& s3();
  void warn_of_plain_http(const std::string& url);

  Environment environment_;
  Patience patience_;
  std::mutex mutex_;
  std::optional<S3> s3_;
  std::set<std::string> warned_;  // hosts
};

struct ByteRange {
  std::int64_t first = 0, end = 0;
  std::int64_t bytes() const { return end - first; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// RemoteReader reads over one connection. Files are read in large pieces; an error of a file system
// is not retried. Not thread-safe.
class RemoteReader {
 public:
  using Sink = FunctionRef<void(std::span<const std::byte> bytes, std::int64_t offset)>;

  // `stop`, set by another thread, aborts a read with an AccessError.
  RemoteReader(Remote& remote, const std::atomic<bool>& stop) : remote_(remote), stop_(stop) {}

  // Passes the bytes of the range to the sink in order, each once. Throws:
  // - UnreachableError after the retry time is over.
  // - RefusedError if the server refuses the read.
  // - AccessError for other failures that are no fault of the object, such as a missing libcurl.
  // - a file: as ReadFile does.
  // - DataError if the object does not exist or does not have `object_bytes` bytes.
  // Returns false if the server sends objects only from their first byte. With `may_skip`, the
  // bytes before the range are then read and skipped instead.
  bool read(const std::string& url, ByteRange range, std::int64_t object_bytes, bool may_skip,
            Sink sink);

  // Reads an object of unknown size, from the start again if the connection breaks. Throws as read
  // does.
  std::string read_all(const std::string& url, std::int64_t most_bytes);

 private:
  // Decides whether a read continues after the last reply, and waits before the next attempt.
  class Attempts;
  void read_file(const std::filesystem::path& path, ByteRange range, std::int64_t file_bytes,
                 Sink sink);
  HttpConnection& connection();

  Remote& remote_;
  const std::atomic<bool>& stop_;
  std::optional<HttpConnection> connection_;  // from the first request
  std::vector<std::byte> piece_;
  std::minstd_rand chance_{std::random_device()()};
};

}  // namespace lockstep
