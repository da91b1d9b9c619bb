// Calls of the simulated NCCL, and their effect when all ranks of a communicator have made them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simt/order.h"

namespace simt {

enum class Kind { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive };

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

// Performs the group of collectives of every rank, which must be the same on each. The streams of
// all ranks synchronize here (order.h). Returns the error in the calls; "": none.
std::string perform(const std::vector<const std::vector<Call>*>& calls);

// A sent message in pinned memory. It is ordered after earlier work of the sender's stream.
struct Message {
  std::size_t count;
  int type;
  std::shared_ptr<std::byte> data;
  Clock sent;
};
Message send(const Call& call);
// Returns the error; "": none.
std::string receive(const Call& call, const Message& message);

}  // namespace simt
