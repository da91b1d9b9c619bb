// Handshake: how two ranks of a job find out that both know its secret, before anything else is
// said.
//
//   rank  -> hub  hello: "LOCKSTEP", version, random number c                      44 bytes
//   hub   -> rank random number s                                                  32 bytes
//   rank  -> hub  introduction i, HMAC(secret, "rank" c s i)                      112 bytes
//   hub   -> rank HMAC(secret, "hub" c s i)                                        32 bytes
//
// then frames (dist/job/frame.h). Who does not say hello, or does not prove that it knows the
// secret, is closed without an answer. This keeps strangers out; it does not hide what ranks say,
// nor does it help against someone who can change packets between them.
#pragma once

#include <optional>
#include <vector>

#include "dist/job/frame.h"
#include "dist/job/secret.h"
#include "dist/job/socket.h"

namespace lockstep {

// The first two lead to rank 0's hub.
enum class Channel : std::uint32_t { control = 1, heartbeat = 2, files = 3 };

// One process of the job.
struct Peer {
  std::string host = "?";
  std::int32_t pid = 0;
};

struct Introduction {
  Channel channel = Channel::control;
  std::int32_t rank = 0, ranks = 1;
  Peer peer{};
};

// What a rank knows of its job: who it is, and where the one that it joins listens: rank 0's hub.
struct Membership {
  int rank = 0;
  int ranks = 1;
  std::vector<std::string> addresses;  // of the listener: each is tried
  std::uint16_t port = 0;
  Secret secret;
  Milliseconds start{60'000};  // for all ranks to come
  int listener = 0;
};

// The hub's side of one connection: what its bytes mean. It has no socket, so that it can be tested
// by any bytes.
class Session {
 public:
  Session(const Secret& secret, const Bytes32& random) : secret_(secret), random_(random) {}

  // Takes what came and adds to `answer` what is to be sent; the frames that are complete. Throws
  // DataError where the peer is to be closed.
  std::vector<Frame> take(std::span<const std::byte> bytes, Bytes& answer);
  bool authenticated() const { return introduction_.has_value(); }
  const Introduction& introduction() const { return *introduction_; }

 private:
  bool take_hello(Bytes& answer);
  bool take_proof(Bytes& answer);

  Secret secret_;
  Bytes32 random_;
  Bytes head_;  // what came before frames may come
  std::optional<Bytes32> challenge_;
  std::optional<Introduction> introduction_;
  FrameReader reader_;
};

// A connection to the listener, authenticated. Tries each address again and again, with longer
// pauses, until the deadline: it may not be there yet. Throws TransientError with what each address
// said, ConfigError where every one turned this rank away.
Socket join(const Membership& membership, Channel channel, Deadline deadline);

// The other side of one that is no hub: the connection of that rank, authenticated. Who else comes
// is closed. Throws TransientError at the deadline.
Socket await_rank(const Socket& listener, const Secret& secret, Channel channel, int rank,
                  Deadline deadline);

}  // namespace lockstep
