// Calls of the simulated NCCL, and what they do when the ranks of a communicator have made them.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

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

// Does what every rank's group of calls asks for: the same collectives on each, and messages that
// match. For the order of streams (order.h) that is a point at which the streams of all ranks meet.
// Returns what is wrong with them, "" for nothing.
std::string perform(const std::vector<const std::vector<Call>*>& calls);

}  // namespace simt
