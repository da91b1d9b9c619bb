// Any bytes from the network to rank 0 are rejected, or are frames that survive a round trip in
// pieces of any size. Only the right proof authenticates a peer.
#include <algorithm>

#include "dist/job/failure_detector.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::session_fuzz {
// The secret and the nonces are constant, so that a seed can have a valid proof.
const Secret& secret() {
  static const Secret all_zero{Bytes32{}};
  return all_zero;
}

Bytes joined(Bytes bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

Bytes hello() {
  Bytes bytes = joined(as_bytes("LOCKSTEP"), BodyWriter().number(std::uint32_t{1}).take());
  bytes.resize(44);
  return bytes;
}

Bytes proof() {
  Bytes introduction =
      BodyWriter().number(std::uint32_t{2}).number(0).number(1).number(4711).take();
  introduction.resize(80);
  Bytes text = as_bytes("rank");
  text.resize(text.size() + 2 * sizeof(Bytes32));
  return joined(introduction, secret().sign(joined(text, introduction)));
}

Bytes frames() {
  Bytes bytes;
  Beat beat;
  beat.activity.collective = Activity::name("all_gather");
  append(bytes, {FrameKind::beat, 0, "", encode(beat)});
  append(bytes, {FrameKind::message, 3, "tag", as_bytes("body")});
  append(bytes, {FrameKind::failed, 0, "", as_bytes("the disk is full")});
  append(bytes, {FrameKind::goodbye, 0, "", {}});
  return bytes;
}

// All frames of `bytes`, which arrive in pieces of `piece`; `answer` is that of the server.
std::vector<Frame> take(Session& session, std::span<const std::byte> bytes, std::size_t piece,
                        Bytes& answer) {
  std::vector<Frame> all;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const auto some = bytes.subspan(at, std::min(piece, bytes.size() - at));
    for (auto& frame : session.take(some, answer))
      all.push_back(std::move(frame));
  }
  return all;
}

void check_frames(const std::vector<Frame>& all, std::span<const std::byte> from) {
  Bytes again;
  for (const auto& frame : all) {
    append(again, frame);
    if (frame.kind == FrameKind::beat)
      may_refuse([&] {
        LOCKSTEP_CHECK(decode_beat(frame.body).activity.unit.back() == '\0',
                       "a name without an end");
      });
  }
  LOCKSTEP_CHECK(
      again.size() <= from.size() && std::equal(again.begin(), again.end(), from.begin()),
      "frames that were not sent");
}

void check_bytes(std::span<const std::byte> bytes, const Bytes& opening) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{61}, std::size_t{1} << 20}) {
    Session session(secret(), Bytes32{});
    Bytes answer;
    may_refuse([&] {
      const auto all = take(session, bytes, piece, answer);
      const bool opened = bytes.size() >= opening.size() &&
                          std::equal(opening.begin(), opening.end(), bytes.begin());
      // A mutant may introduce itself as another by chance only with another proof.
      LOCKSTEP_CHECK(session.authenticated() == opened, "known: ", session.authenticated());
      LOCKSTEP_CHECK(opened || all.empty(), "frames of an unauthenticated client");
      LOCKSTEP_CHECK(answer.size() == (bytes.size() < 44 ? 0u
                                       : opened          ? 64u
                                                         : 32u),
                     "answered ", answer.size(), " bytes to ", bytes.size());
      if (opened) check_frames(all, bytes.subspan(opening.size()));
    });
  }
}

// Checks the input unchanged, and after a valid opening, which most mutations break.
void check(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  const Bytes opening = joined(hello(), proof());
  check_bytes(bytes, opening);
  check_bytes(joined(opening, bytes), opening);
}

Seeds seeds() {
  return {as_text(joined(joined(hello(), proof()), frames())), as_text(frames())};
}

const Target target("session", seeds, check);

}  // namespace lockstep::fuzz::session_fuzz
