#include "data/remote/remote.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "data/remote/file_address.h"
#include "data/source.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kLeastProgressBytes = 64 << 10;
constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;  // of a file, in one read
constexpr int kMostLearned = 3;                              // the region, new credentials
constexpr int kSaidAttempts = 3;                             // then the log reports the error

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

// Returns the URL with its last part, the file name, encoded as in a path. The rest stays as
// written.
std::string http_url(const std::string& url) {
  const auto authority = url.find("://") + 3;
  const auto slash = url.rfind('/');
  const auto host_end = url.find('/', authority);
  const auto prefix =
      slash < authority ? std::string_view(url) : std::string_view(url).substr(0, slash + 1);
  if (prefix.find('@') < host_end)
    throw DataError(str("the address contains a password; remove it and put it into ~/.netrc"));
  if (host_end == std::string::npos || host_end == authority ||
      prefix.find_first_of("?# ") != std::string_view::npos)
    throw DataError(str(url, ": expected https://HOST/PREFIX/NAME, without ?, # and spaces"));
  return std::string(prefix) + s3_path(std::string_view(url).substr(slash + 1));
}

}  // namespace

void require_local(const std::string& path) {
  if (is_remote(path) || path.find("://") != std::string::npos)
    throw UsageError(
        str(path,
            ": expected a local path, not an address; `aws s3 cp --recursive` copies from "
            "and to S3"));
}

S3& Remote::s3() {
  const std::scoped_lock lock(mutex_);
  if (!s3_) s3_.emplace(environment_);
  return *s3_;
}

void Remote::warn_of_plain_http(const std::string& url) {
  static constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return;
  const auto host = url.substr(kScheme.size(), url.find('/', kScheme.size()) - kScheme.size());
  if (host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]"))
    return;
  const std::scoped_lock lock(mutex_);
  if (warned_.insert(host).second)
    log_warning("http://", host,
                " is read without TLS: others on the network can read and change the data");
}

HttpRequest Remote::request(const std::string& url) {
  HttpRequest request;
  try {
    if (url.starts_with("s3://"))
      request = s3().request(url);
    else
      request.url = http_url(url);
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {  // not a fault of the object
    throw AccessError(error.what());
  }
  warn_of_plain_http(request.url);
  return request;
}

bool Remote::learn(const std::string& url, const HttpRequest& request, const HttpReply& reply) {
  return url.starts_with("s3://") && s3().learn(url, request, reply);
}

std::string Remote::advice(const std::string& url, const HttpReply& reply) {
  if (reply.status == 416) return "; the object is shorter than dataset.json specifies";
  if (url.starts_with("s3://")) return s3().advice(reply);
  if (reply.status == 401 || reply.status == 403)
    return "; put the user name and password of the host into ~/.netrc";
  if (reply.status == 404) return "; the file does not exist; check the address";
  return "";
}

namespace {

// Throws for a reply that a retry does not change.
[[noreturn]] void refuse(int status, const std::string& what) {
  if (status == 404 || status == 410 || status == 416) throw DataError(what);
  if (status >= 400 && status < 500) throw RefusedError(what);
  throw AccessError(what);
}

}  // namespace

class RemoteReader::Attempts {
 public:
  Attempts(RemoteReader& reader, const std::string& url)
      : reader_(reader), url_(url), wait_seconds_(reader.remote_.patience().first_wait_seconds) {}

  // After an incomplete reply: returns when the next attempt is due, or throws.
  void next(const HttpRequest& request, const HttpReply& reply) {
    if (reader_.stop_.load()) throw AccessError(str(url_, ": reading was stopped"));
    if (reply.end == HttpReply::End::refused) {
      if (learned_++ < kMostLearned && reader_.remote_.learn(url_, request, reply)) return;
      refuse(reply.status, str(url_, ": ", reply.what, reader_.remote_.advice(url_, reply)));
    }
    const auto& patience = reader_.remote_.patience();
    ++attempts_;
    received_bytes_ += reply.received_bytes;
    if (received_bytes_ >= kLeastProgressBytes) {
      progress_ = Clock::now();
      wait_seconds_ = patience.first_wait_seconds;
      received_bytes_ = 0;
    }
    const auto left = patience.give_up_seconds - seconds_since(progress_);
    const double share = std::uniform_real_distribution<>(0.5, 1)(reader_.chance_);
    const auto wait = std::min(std::max(share * wait_seconds_, reply.retry_after_seconds), left);
    wait_seconds_ = std::min(2 * wait_seconds_, patience.most_wait_seconds);
    if (left <= 0 && reply.is_other)
      throw DataError(str(url_, ": ", reply.what, ", after ", attempts_, " attempts"));
    if (left <= 0)
      throw UnreachableError(
          str(url_, ": ", reply.what, "; aborted after ", attempts_, " attempts, ",
              human_seconds(seconds_since(progress_)), " without progress",
              reply.retry_after_seconds > 0
                  ? str("; the server asks to wait ", reply.retry_after_seconds, " s")
                  : std::string(),
              "; rerun the same command when the server responds again"));
    if (attempts_ == kSaidAttempts)
      log_own_warning(url_, ": ", reply.what, "; retrying for ",
                      human_seconds(patience.give_up_seconds));
    nap(wait);
  }

 private:
  void nap(double seconds) const {
    const auto until = Clock::now() + std::chrono::duration<double>(seconds);
    while (!reader_.stop_.load() && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  RemoteReader& reader_;
  const std::string& url_;
  double wait_seconds_;
  Clock::time_point progress_ = Clock::now();
  std::int64_t received_bytes_ = 0;
  int attempts_ = 0, learned_ = 0;
};

HttpConnection& RemoteReader::connection() {
  if (!connection_) connection_.emplace(remote_.patience().limits, stop_);
  return *connection_;
}

void RemoteReader::read_file(const std::filesystem::path& path, ByteRange range,
                             std::int64_t file_bytes, Sink sink) {
  const ReadFile file(path);
  if (file.size_bytes() != file_bytes)
    throw DataError(str(path.string(), ": has ", file.size_bytes(),
                        " bytes, dataset.json specifies ", file_bytes));
  piece_.resize(static_cast<std::size_t>(std::min(kPieceBytes, range.bytes())));
  while (range.bytes() > 0) {
    if (stop_.load()) throw AccessError(str(path.string(), ": reading was stopped"));
    const auto count = std::min(std::ssize(piece_), range.bytes());
    const auto bytes = std::span(piece_).first(static_cast<std::size_t>(count));
    file.read(bytes, range.first);
    sink(bytes, range.first);
    range.first += count;
  }
}

bool RemoteReader::read(const std::string& url, ByteRange range, std::int64_t object_bytes,
                        bool may_skip, Sink sink) {
  if (const auto path = path_of_file_address(url)) {
    read_file(*path, range, object_bytes, sink);
    return true;
  }
  Attempts attempts(*this, url);
  auto at = range.first;
  for (;;) {
    auto request = remote_.request(url);
    request.first = at;
    request.end = range.end;
    request.object_bytes = object_bytes;
    request.may_skip = may_skip;
    const auto reply = connection().send(request, [&](std::span<const std::byte> bytes) {
      sink(bytes, at);
      at += static_cast<std::int64_t>(bytes.size());
    });
    if (reply.end == HttpReply::End::whole) return true;
    if (reply.end == HttpReply::End::ranges_ignored) return false;
    attempts.next(request, reply);
  }
}

std::string RemoteReader::read_all(const std::string& url, std::int64_t most_bytes) {
  if (const auto path = path_of_file_address(url)) return read_text(*path, most_bytes);
  Attempts attempts(*this, url);
  for (;;) {
    std::string text;
    const auto request = remote_.request(url);
    const auto reply = connection().send(request, [&](std::span<const std::byte> bytes) {
      if (static_cast<std::int64_t>(text.size() + bytes.size()) > most_bytes)
        throw DataError(str(url, ": the object exceeds ", most_bytes, " bytes"));
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (reply.end == HttpReply::End::whole) return text;
    attempts.next(request, reply);
  }
}

}  // namespace lockstep
