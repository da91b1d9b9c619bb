// Handshake: mutual authentication of two ranks by the job's secret, before any other message.
//
//   rank   -> server  hello: "LOCKSTEP", version, random number c                   44 bytes
//   server -> rank    random number s                                               32 bytes
//   rank   -> server  introduction i, HMAC(secret, "rank" c s i)                   112 bytes
//   server -> rank    HMAC(secret, "hub" c s i)                                     32 bytes
//
// Frames follow (dist/job/frame.h). A client that sends no hello, or fails to prove that it knows
// the secret, is disconnected without an answer. This keeps other programs out. It does not encrypt
// messages, and it does not protect against an attacker who changes packets on the way.
#pragma once

#include <optional>
#include <vector>

#include "dist/job/frame.h"
#include "dist/job/secret.h"
#include "dist/job/socket.h"

namespace lockstep {

// Purpose of a connection. The first two lead to rank 0's control server, the last to the leader of
// a supervised run. After the handshake of `tensors`, transfers of dist/job/link.h follow instead
// of frames.
enum class Channel : std::uint32_t {
  control = 1,
  heartbeat = 2,
  files = 3,
  tensors = 4,
  agents = 5
};

// Host and process of a rank.
struct Peer {
  std::string host = "?";
  std::int32_t pid = 0;
};

struct Introduction {
  Channel channel = Channel::control;
  std::int32_t rank = 0, ranks = 1;
  Peer peer{};
};

// Membership: a rank's place in its job, and the address of the listener that it connects to, which
// is usually rank 0's control server.
struct Membership {
  int rank = 0;
  int ranks = 1;
  std::vector<std::string> addresses;  // of the listener; each one is tried
  std::uint16_t port = 0;
  Secret secret;
  Milliseconds start{60'000};  // time for all ranks to connect
  int listener = 0;            // rank that listens
};

// Session interprets the bytes of one connection at the listener's side. It has no socket, so tests
// can pass it any bytes.
class Session {
 public:
  Session(const Secret& secret, const Bytes32& random) : secret_(secret), random_(random) {}

  // Takes the bytes that arrived, appends the bytes to send to `answer`, and returns the complete
  // frames. Throws DataError if the connection must be closed.
  std::vector<Frame> take(std::span<const std::byte> bytes, Bytes& answer);
  bool authenticated() const { return introduction_.has_value(); }
  const Introduction& introduction() const { return *introduction_; }

 private:
  bool take_hello(Bytes& answer);
  bool take_proof(Bytes& answer);

  Secret secret_;
  Bytes32 random_;
  Bytes head_;  // bytes of the handshake
  std::optional<Bytes32> challenge_;
  std::optional<Introduction> introduction_;
  FrameReader reader_;
};

// Greeting is the connecting rank's side of the handshake. It has no socket either. The rank sends
// hello(), then proof() of the 32 bytes that it gets, then compares the next 32 bytes by accepts().
class Greeting {
 public:
  Greeting(const Secret& secret, const Introduction& introduction, const Bytes32& random);
  Bytes hello() const;
  Bytes proof(const Bytes32& challenge);
  bool accepts(const Bytes32& answer) const;  // the listener has the secret; after proof()

 private:
  Secret secret_;
  Bytes introduction_;
  Bytes32 random_, challenge_{};
};

// Connects to the listener and authenticates. Retries each address until the deadline, with growing
// pauses, because the listener may start later. Throws TransientError with the error of each
// address, or ConfigError if every address rejected this rank.
Socket join(const Membership& membership, Channel channel, Deadline deadline);

// Authenticates a rank that has connected to a listener that is not a control server. Throws
// DataError if it does not prove that it has the secret, and TransientError at the deadline.
Introduction authenticate(Socket& socket, const Secret& secret, Deadline deadline);

// Waits at a listener that is not a control server for the connections of `ranks`, in any order,
// and authenticates them. Returns them in the order of `ranks`. Other connections are closed.
// Throws TransientError at the deadline.
std::vector<Socket> await_ranks(const Socket& listener, const Secret& secret, Channel channel,
                                const std::vector<int>& ranks, Deadline deadline);

}  // namespace lockstep
