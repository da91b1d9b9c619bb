#include "tests/support/thread_world.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "dist/host_reduce.h"

namespace lockstep {

// Meeting is a barrier at which ranks exchange the addresses of their memory.
class ThreadRanks::Meeting {
 public:
  explicit Meeting(int size) : shown_(static_cast<std::size_t>(size)) {}

  // Returns when all ranks have arrived. Their addresses can be read until the next meeting.
  void meet(int rank, const void* memory) {
    std::unique_lock lock(mutex_);
    shown_[static_cast<std::size_t>(rank)] = memory;
    meet(lock);
  }
  void meet() {
    std::unique_lock lock(mutex_);
    meet(lock);
  }
  // A message waits for its receiver. Messages between two ranks are received in order.
  void send(int from, int to, ConstTensor sent) {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_.empty()) throw Error(aborted_);
      messages_[{from, to}].emplace_back(sent.data, sent.data + sent.bytes());
    }
    came_.notify_all();
  }
  std::vector<std::byte> receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& messages = messages_[{from, to}];
    came_.wait(lock, [&] { return !messages.empty() || !aborted_.empty(); });
    if (messages.empty()) throw Error(aborted_);
    auto message = std::move(messages.front());
    messages.pop_front();
    return message;
  }
  template <class T>
  T* shown(int rank) const {
    return static_cast<T*>(const_cast<void*>(shown_[static_cast<std::size_t>(rank)]));
  }

  void abort(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_.empty()) aborted_ = why;
    }
    came_.notify_all();
  }

 private:
  void meet(std::unique_lock<std::mutex>& lock) {
    if (!aborted_.empty()) throw Error(aborted_);
    const auto round = round_;
    if (++here_ == static_cast<int>(shown_.size())) {
      here_ = 0;
      ++round_;
      came_.notify_all();
      return;
    }
    came_.wait(lock, [&] { return round_ != round || !aborted_.empty(); });
    if (round_ == round) throw Error(aborted_);
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<const void*> shown_;
  int here_ = 0;
  std::int64_t round_ = 0;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages_;  // by from, to
  std::string aborted_;
};

namespace {

using Meeting = ThreadRanks::Meeting;

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Each collective ends with a barrier, so that no rank changes memory that others still read.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(const std::string& name, int rank, int size, std::shared_ptr<Meeting> meeting)
      : Communicator(name, rank, size), meeting_(std::move(meeting)) {}

 private:
  // Rank r sums range r of all ranks; then each rank copies the sums from their ranks.
  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) override {
    stream.enqueue([this, inout, op](Stream&) {
      const auto n = inout.elements(), bytes = bytes_per_element(inout.dtype);
      const auto begin = [&](int r) { return n * r / size(); };
      meeting_->meet(rank(), inout.data);
      std::vector<const std::byte*> all;
      for (int r = 0; r < size(); ++r)
        all.push_back(meeting_->shown<const std::byte>(r));
      reduce_range(inout, op, all, begin(rank()), begin(rank() + 1));
      meeting_->meet();
      for (int r = 0; r < size(); ++r)
        copy_bytes(inout.data + begin(r) * bytes,
                   all[static_cast<std::size_t>(r)] + begin(r) * bytes,
                   (begin(r + 1) - begin(r)) * bytes);
      meeting_->meet();
    });
  }

  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) override {
    stream.enqueue([this, out, in](Stream&) {
      meeting_->meet(rank(), in.data);
      for (int r = 0; r < size(); ++r)
        copy_bytes(out.data + r * in.bytes(), meeting_->shown<const std::byte>(r), in.bytes());
      meeting_->meet();
    });
  }

  void do_reduce_scatter(Tensor out, ConstTensor in, Stream& stream) override {
    stream.enqueue([this, out, in](Stream&) {
      meeting_->meet(rank(), in.data);
      std::vector<const std::byte*> pieces;
      for (int r = 0; r < size(); ++r)
        pieces.push_back(meeting_->shown<const std::byte>(r) + rank() * out.bytes());
      ring_sum(out, pieces, rank());
      meeting_->meet();
    });
  }

  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    stream.enqueue([this, out, in](Stream&) {
      const auto piece = in.bytes() / size();
      meeting_->meet(rank(), in.data);
      for (int r = 0; r < size(); ++r)
        copy_bytes(out.data + r * piece, meeting_->shown<const std::byte>(r) + rank() * piece,
                   piece);
      meeting_->meet();
    });
  }

  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    stream.enqueue([this, inout, root](Stream&) {
      meeting_->meet(rank(), inout.data);
      copy_bytes(inout.data, meeting_->shown<const std::byte>(root), inout.bytes());
      meeting_->meet();
    });
  }

  void do_send(ConstTensor sent, int to, Stream& stream) override {
    stream.enqueue([this, sent, to](Stream&) { meeting_->send(rank(), to, sent); });
  }

  void do_receive(Tensor received, int from, Stream& stream) override {
    stream.enqueue([this, received, from](Stream&) {
      const auto message = meeting_->receive(from, rank());
      LOCKSTEP_CHECK(std::ssize(message) == received.bytes(), "rank ", rank(), " expects ",
                     received.bytes(), " bytes of rank ", from, ", which sent ", message.size());
      copy_bytes(received.data, message.data(), received.bytes());
    });
  }

  void do_barrier(Stream& stream) override {
    stream.enqueue([this](Stream&) { meeting_->meet(); });
  }

  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::shared_ptr<Meeting> ThreadRanks::meeting(const std::string& name,
                                              const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  auto& meeting = meetings_[{name, ranks}];
  if (!meeting) meeting = std::make_shared<Meeting>(static_cast<int>(ranks.size()));
  if (!aborted_.empty()) meeting->abort(aborted_);
  return meeting;
}

void ThreadRanks::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_.empty()) aborted_ = why;
  for (auto& [group, meeting] : meetings_)
    meeting->abort(aborted_);
}

std::unique_ptr<Communicator> ThreadWorld::connect(const GroupConfig& group) {
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), rank_);
  return std::make_unique<ThreadCommunicator>(
      group.name, static_cast<int>(place - group.ranks.begin()),
      static_cast<int>(group.ranks.size()), ranks_.meeting(group.name, group.ranks));
}

std::vector<std::string> ThreadWorld::exchange(const std::string& mine) {
  return tell("exchange", mine);
}

std::vector<std::string> ThreadWorld::gather(const std::string& tag, const std::string& mine) {
  auto said = tell("gather " + tag, mine);
  return rank_ == 0 ? said : std::vector<std::string>();
}

std::string ThreadWorld::broadcast(const std::string& tag, const std::string& text) {
  return tell("broadcast " + tag, text).front();
}

std::vector<std::string> ThreadWorld::tell(const std::string& what, const std::string& mine) {
  std::vector<int> everyone(static_cast<std::size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto meeting = ranks_.meeting(what, everyone);
  meeting->meet(rank_, &mine);
  std::vector<std::string> texts;
  for (const int rank : everyone)
    texts.push_back(*meeting->shown<const std::string>(rank));
  meeting->meet();
  return texts;
}

void ThreadWorld::abort(const std::string& why, int /*exit_code*/) noexcept {
  try {
    ranks_.abort(str("rank ", rank_, " failed: ", why));
  } catch (...) {
    std::terminate();  // without memory for the message the other ranks would wait forever
  }
}

void run_thread_ranks(int size, const std::function<void(World&)>& body) {
  ThreadRanks ranks(size);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    ThreadWorld world(ranks, rank);
    try {
      body(world);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world.abort(error.what(), 1);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(run, rank);
  for (auto& thread : threads)
    thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep
