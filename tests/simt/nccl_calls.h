// Calls of the simulated NCCL, and what they do when the ranks of a communicator have made them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simt/order.h"

namespace simt {

enum class Kind { all_reduce, all_gather, all_to_all, broadcast, send, receive };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  int type;   // an ncclDataType_t
  int other;  // root, peer or operation
  const void* stream;

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
  auto what() const { return std::tuple(kind, count, type, other); }
};

// Does what every rank's group of collectives asks for: the same on each. For the order of streams
// (order.h) that is a point at which the streams of all ranks meet. Returns what is wrong with
// them,
// "" for nothing.
std::string perform(const std::vector<const std::vector<Call>*>& calls);

// What was sent, in pinned memory; it comes behind what the sender's stream did before.
struct Message {
  std::size_t count;
  int type;
  std::shared_ptr<std::byte> data;
  Clock sent;
};
Message send(const Call& call);
// Returns what is wrong, "" for nothing.
std::string receive(const Call& call, const Message& message);

}  // namespace simt
