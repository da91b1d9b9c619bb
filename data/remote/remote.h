// Remote: objects at s3://BUCKET/KEY, https:// and http:// addresses, read with patience: what
// breaks is tried again from the byte where it broke, after waits that grow.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "data/remote/s3.h"

namespace lockstep {

// Throws UsageError for an address, where only local files are read or written.
void require_local(const std::string& path);

struct Patience {
  HttpLimits limits;
  double first_wait_seconds = 0.25,
         most_wait_seconds = 8;  // doubled each time; half of it by chance
  // When so long less than 64 KiB came, a last attempt is made, whatever the server asks to wait.
  // With that one's own limits it ends before train.stall_seconds does.
  double give_up_seconds = 30;
};

// What all connections share. Of any thread.
class Remote {
 public:
  Remote(Environment environment, const Patience& patience)
      : environment_(std::move(environment)), patience_(patience) {}

  const Patience& patience() const { return patience_; }
  // Throws AccessError where the address is none or there are no credentials to be had,
  // UnreachableError where those do not answer who gives them.
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

// One connection. Of one thread.
class RemoteReader {
 public:
  using Sink = FunctionRef<void(std::span<const std::byte> bytes, std::int64_t offset)>;

  // `stop`, set by another thread, ends what goes on by an AccessError.
  RemoteReader(Remote& remote, const std::atomic<bool>& stop)
      : remote_(remote), stop_(stop), connection_(remote.patience().limits, stop) {}

  // Gives the sink the bytes of the range in order, each once. Throws UnreachableError where
  // patience ends, RefusedError where the server refuses it, AccessError where else nothing was
  // learned of the object; and DataError where there is none, or one of other than `object_bytes`.
  // false: the server sends objects only from their first byte; with `may_skip` what lies before is
  // read over.
  bool read(const std::string& url, ByteRange range, std::int64_t object_bytes, bool may_skip,
            Sink sink);

  // All of an object of unknown size; begun anew where it breaks. Throws as read does.
  std::string read_all(const std::string& url, std::int64_t most_bytes);

 private:
  // Of a read: whether it may go on after the last reply, having waited.
  class Attempts;

  Remote& remote_;
  const std::atomic<bool>& stop_;
  HttpConnection connection_;
  std::minstd_rand chance_{std::random_device()()};
};

}  // namespace lockstep
