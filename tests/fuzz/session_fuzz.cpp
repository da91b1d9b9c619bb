// Any bytes that come over the network to rank 0 are refused, or are frames that read back as they
// were sent, however they are cut; nothing but the right proof makes a peer known.
#include <algorithm>

#include "dist/watch.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

// One secret and random numbers that are none, so that a seed can hold a valid proof.
const Secret& secret() {
  static const Secret all_zero{Bytes32{}};
  return all_zero;
}

Bytes hello() {
  Bytes bytes = as_bytes("LOCKSTEP");
  const auto version = BodyWriter().number(std::uint32_t{1}).take();
  bytes.insert(bytes.end(), version.begin(), version.end());
  bytes.resize(44);
  return bytes;
}

Bytes proof() {
  Bytes introduction =
      BodyWriter().number(std::uint32_t{2}).number(0).number(1).number(4711).take();
  introduction.resize(80);
  Bytes text = as_bytes("rank");
  text.resize(text.size() + 2 * sizeof(Bytes32));
  text.insert(text.end(), introduction.begin(), introduction.end());
  const auto signature = secret().sign(text);
  introduction.insert(introduction.end(), signature.begin(), signature.end());
  return introduction;
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

// All frames of `bytes`, which come `piece` at a time; `answer` what the hub says.
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
    try {
      if (frame.kind == FrameKind::beat) {
        const auto beat = decode_beat(frame.body);
        LOCKSTEP_CHECK(beat.activity.unit.back() == '\0', "a name without an end");
      }
    } catch (const DataError&) {
    }
  }
  LOCKSTEP_CHECK(
      again.size() <= from.size() && std::equal(again.begin(), again.end(), from.begin()),
      "frames that were not sent");
}

void check(std::span<const std::byte> bytes) {
  const Bytes opening = [] {
    Bytes both = hello();
    const auto second = proof();
    both.insert(both.end(), second.begin(), second.end());
    return both;
  }();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{61}, std::size_t{1} << 20}) {
    Session session(secret(), Bytes32{});
    Bytes answer;
    try {
      const auto all = take(session, bytes, piece, answer);
      const bool opened = bytes.size() >= opening.size() &&
                          std::equal(opening.begin(), opening.end(), bytes.begin());
      // A mutant may introduce itself as another by chance only with another proof.
      LOCKSTEP_CHECK(session.authenticated() == opened, "known: ", session.authenticated());
      LOCKSTEP_CHECK(opened || all.empty(), "frames of a stranger");
      LOCKSTEP_CHECK(answer.size() == (bytes.size() < 44 ? 0u
                                       : opened          ? 64u
                                                         : 32u),
                     "answered ", answer.size(), " bytes to ", bytes.size());
      if (opened) check_frames(all, bytes.subspan(opening.size()));
    } catch (const DataError&) {
    }
  }
}

}  // namespace

std::vector<std::string> seeds() {
  Bytes whole = hello();
  for (const auto& part : {proof(), frames()})
    whole.insert(whole.end(), part.begin(), part.end());
  return {as_text(whole), as_text(frames())};
}

}  // namespace lockstep::fuzz

// As it is; and behind an opening that is right, which most mutations spoil.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::check(bytes);
  Bytes opened = fuzz::hello();
  const auto proof = fuzz::proof();
  opened.insert(opened.end(), proof.begin(), proof.end());
  opened.insert(opened.end(), bytes.begin(), bytes.end());
  fuzz::check(opened);
  return 0;
}
