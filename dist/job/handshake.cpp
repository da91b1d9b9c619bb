#include "dist/job/handshake.h"

#include <algorithm>
#include <array>
#include <thread>
#include <unistd.h>

#include "core/system/machine.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "LOCKSTEP";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHostBytes = 64;
constexpr std::size_t kHelloBytes = kMagic.size() + sizeof kVersion + sizeof(Bytes32);
constexpr std::size_t kIntroductionBytes = 4 * sizeof(std::uint32_t) + kHostBytes;
constexpr std::size_t kProofBytes = kIntroductionBytes + sizeof(Bytes32);
constexpr Milliseconds kFirstPause{20}, kLongestPause{1000}, kAttempt{5000};
constexpr int kRejections = 3;  // a single one may be chance: a flooded server closes the oldest

using Span = std::span<const std::byte>;

// The text that both sides sign.
Bytes signed_text(std::string_view role, const Bytes32& client, const Bytes32& server,
                  Span introduction) {
  Bytes text = as_bytes(role);
  text.insert(text.end(), client.begin(), client.end());
  text.insert(text.end(), server.begin(), server.end());
  text.insert(text.end(), introduction.begin(), introduction.end());
  return text;
}

Bytes encode(const Introduction& introduction) {
  Bytes bytes = BodyWriter()
                    .number(static_cast<std::uint32_t>(introduction.channel))
                    .number(introduction.rank)
                    .number(introduction.ranks)
                    .number(introduction.peer.pid)
                    .take();
  auto host = as_bytes(std::string_view(introduction.peer.host).substr(0, kHostBytes));
  host.resize(kHostBytes);
  bytes.insert(bytes.end(), host.begin(), host.end());
  return bytes;
}

Introduction decode(Span bytes) {
  BodyReader reader(bytes);
  Introduction read;
  read.channel = static_cast<Channel>(reader.number<std::uint32_t>());
  read.rank = reader.number<std::int32_t>();
  read.ranks = reader.number<std::int32_t>();
  read.peer.pid = reader.number<std::int32_t>();
  const std::string host = as_text(bytes.last(kHostBytes));
  read.peer.host = host.substr(0, host.find('\0'));
  if (read.channel < Channel::control || read.channel > Channel::agents)
    throw DataError(str("unknown channel ", static_cast<std::uint32_t>(read.channel)));
  return read;
}

Bytes32 take_random(Span bytes) {
  Bytes32 random;
  std::copy(bytes.begin(), bytes.begin() + sizeof random, random.begin());
  return random;
}

class Rejected : public TransientError {
 public:
  using TransientError::TransientError;
};

// Handshake at the connecting rank's side.
void greet(Socket& socket, const Membership& membership, Channel channel, Deadline deadline) {
  const Peer self{host_name(), static_cast<std::int32_t>(getpid())};
  Greeting greeting(membership.secret, {channel, membership.rank, membership.ranks, self},
                    random_bytes());
  socket.send_all(greeting.hello(), deadline);
  Bytes32 challenge, answer;
  socket.receive_all(challenge, deadline);
  socket.send_all(greeting.proof(challenge), deadline);
  const char* remedy =
      ": its secret, version or job differs; start all ranks with the same LOCKSTEP_SECRET and "
      "binary";
  try {
    socket.receive_all(answer, deadline);
  } catch (const TransientError&) {
    throw Rejected(str(socket.peer(), " rejected this rank", remedy));
  }
  if (!greeting.accepts(answer))
    throw Rejected(str(socket.peer(), " failed to prove that it is rank ", membership.listener,
                       " of this job", remedy));
}

}  // namespace

Greeting::Greeting(const Secret& secret, const Introduction& introduction, const Bytes32& random)
    : secret_(secret), introduction_(encode(introduction)), random_(random) {}

Bytes Greeting::hello() const {
  Bytes hello = as_bytes(kMagic);
  const auto version = BodyWriter().number(kVersion).take();
  hello.insert(hello.end(), version.begin(), version.end());
  hello.insert(hello.end(), random_.begin(), random_.end());
  return hello;
}

Bytes Greeting::proof(const Bytes32& challenge) {
  challenge_ = challenge;
  const auto proof = secret_.sign(signed_text("rank", random_, challenge, introduction_));
  Bytes proven = introduction_;
  proven.insert(proven.end(), proof.begin(), proof.end());
  return proven;
}

bool Greeting::accepts(const Bytes32& answer) const {
  return secret_.signed_by(signed_text("hub", random_, challenge_, introduction_), answer);
}

std::vector<Frame> Session::take(Span bytes, Bytes& answer) {
  if (!authenticated()) {
    // Bytes after the proof belong to frames.
    head_.insert(head_.end(), bytes.begin(), bytes.end());
    if (!challenge_ && !take_hello(answer)) return {};
    if (!take_proof(answer)) return {};
    reader_.add(head_);
    head_.clear();
  } else {
    reader_.add(bytes);
  }
  std::vector<Frame> frames;
  while (auto frame = reader_.next())
    frames.push_back(std::move(*frame));
  return frames;
}

bool Session::take_hello(Bytes& answer) {
  // Wrong bytes are detected as soon as they arrive.
  const auto magic = std::min(head_.size(), kMagic.size());
  if (as_text(Span(head_).first(magic)) != kMagic.substr(0, magic))
    throw DataError("it does not use Lockstep's protocol");
  if (head_.size() < kHelloBytes) return false;
  const auto version = BodyReader(Span(head_).subspan(kMagic.size())).number<std::uint32_t>();
  if (version != kVersion)
    throw DataError(str("it uses version ", version, " of the protocol, expected ", kVersion,
                        "; start all ranks with the same binary"));
  challenge_ = take_random(Span(head_).subspan(kMagic.size() + sizeof kVersion));
  head_.erase(head_.begin(), head_.begin() + kHelloBytes);
  answer.insert(answer.end(), random_.begin(), random_.end());
  return true;
}

bool Session::take_proof(Bytes& answer) {
  if (head_.size() < kProofBytes) return false;
  const auto introduction = Span(head_).first(kIntroductionBytes);
  const auto proof = Span(head_).subspan(kIntroductionBytes, sizeof(Bytes32));
  if (!secret_.signed_by(signed_text("rank", *challenge_, random_, introduction), proof))
    throw DataError("it does not have the job's secret");
  const auto introduced = decode(introduction);
  const auto own = secret_.sign(signed_text("hub", *challenge_, random_, introduction));
  answer.insert(answer.end(), own.begin(), own.end());
  head_.erase(head_.begin(), head_.begin() + kProofBytes);
  introduction_ = introduced;
  return true;
}

Socket join(const Membership& membership, Channel channel, Deadline deadline) {
  LOCKSTEP_CHECK(!membership.addresses.empty(), "rank ", membership.listener, " has no address");
  std::vector<std::string> said(membership.addresses.size());
  std::vector<int> rejections(said.size());
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    for (std::size_t i = 0; i < said.size(); ++i) {
      if (rejections[i] == kRejections) continue;
      const auto attempt = std::min<Deadline>(deadline, Clock::now() + kAttempt);
      try {
        Socket socket = connect_to(membership.addresses[i], membership.port, attempt);
        greet(socket, membership, channel, attempt);
        return socket;
      } catch (const Rejected& error) {
        ++rejections[i];
        said[i] = error.what();
      } catch (const TransientError& error) {
        said[i] = error.what();
      }
    }
    std::string all;
    for (const auto& text : said)
      all += (all.empty() ? "" : "; ") + text;
    const std::string text =
        str("rank ", membership.rank, " cannot reach rank ", membership.listener, ": ", all);
    const auto given_up = [](int count) { return count == kRejections; };
    if (std::all_of(rejections.begin(), rejections.end(), given_up)) throw ConfigError(text);
    if (Clock::now() + pause >= deadline) throw TransientError(text);
    // Ranks that failed together retry one after the other.
    std::this_thread::sleep_for(pause + pause * (membership.rank % 16) / 16);
  }
}

Introduction authenticate(Socket& socket, const Secret& secret, Deadline deadline) {
  Session session(secret, random_bytes());
  while (!session.authenticated()) {
    std::array<std::byte, kHelloBytes + kProofBytes> bytes;
    const auto count = socket.receive_some(bytes, deadline);
    if (count == 0) throw DataError("it closed the connection");
    Bytes answer;
    session.take(std::span(bytes).first(count), answer);
    socket.send_all(answer, deadline);
  }
  return session.introduction();
}

std::vector<Socket> await_ranks(const Socket& listener, const Secret& secret, Channel channel,
                                const std::vector<int>& ranks, Deadline deadline) {
  std::vector<Socket> found(ranks.size());
  const auto missing = [&] {
    return std::find_if(found.begin(), found.end(), [](const Socket& socket) { return !socket; });
  };
  std::string rejected;
  while (missing() != found.end() && wait_for(listener, false, deadline)) {
    auto socket = accept_from(listener);
    if (!socket) {  // closed already, or this process is out of descriptors
      std::this_thread::sleep_for(kFirstPause);
      continue;
    }
    try {
      const auto who =
          authenticate(*socket, secret, std::min<Deadline>(deadline, Clock::now() + kAttempt));
      const auto place = std::find(ranks.begin(), ranks.end(), who.rank);
      if (who.channel == channel && place != ranks.end())  // a rank may have given up a first try
        found[static_cast<std::size_t>(place - ranks.begin())] = std::move(*socket);
    } catch (const Error& error) {
      rejected = str("; rejected ", socket->peer(), ": ", error.what());
    }
  }
  const auto first = missing();
  if (first == found.end()) return found;
  throw TransientError(str("rank ", ranks[static_cast<std::size_t>(first - found.begin())],
                           " did not connect", rejected));
}

}  // namespace lockstep
