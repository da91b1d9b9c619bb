// Open MPI makes no progress while nobody is in a call of it, so calls here block: a queued
// stream's thread makes them, while the compute stream computes. Its MPI_Allreduce allocates memory
// in each call and takes twice as long as what is done here: pieces to all, sums in the order of
// ranks, sums to all, through a buffer that is kept.
#include "dist/mpi_world.h"

#include <chrono>
#include <climits>
#include <cstdlib>
#include <thread>
#include <vector>

#include <mpi.h>

#include "core/log.h"
#include "dist/host_reduce.h"

namespace lockstep {
namespace {

void check(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  fail(str(call, ": ", std::string(text, static_cast<std::size_t>(length))), file, line);
}
#define MPI_CHECK(call) check(call, #call, __FILE__, __LINE__)

// A number of bytes as MPI counts: an int of something.
struct Bytes {
  static constexpr std::int64_t kBlock = 512;

  explicit Bytes(std::int64_t bytes) {
    if (bytes <= INT_MAX) {
      count = static_cast<int>(bytes);
      return;
    }
    LOCKSTEP_CHECK(bytes % kBlock == 0 && bytes / kBlock <= INT_MAX, "a message of ", bytes,
                   " bytes, more than 2 GiB and no multiple of ", kBlock);
    count = static_cast<int>(bytes / kBlock);
    MPI_CHECK(MPI_Type_contiguous(kBlock, MPI_BYTE, &type));
    MPI_CHECK(MPI_Type_commit(&type));
    is_made = true;
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() {
    if (is_made) MPI_Type_free(&type);
  }

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
  bool is_made = false;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const std::string& name, int rank, int size, MPI_Comm comm)
      : Communicator(name, rank, size), comm_(comm) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 private:
  void do_all_reduce(Tensor inout, ReduceOp op, Stream& stream) override {
    stream.enqueue([this, inout, op](Stream&) { reduce(inout, op); });
  }

  void do_all_gather(Tensor out, ConstTensor in, Stream& stream) override {
    stream.enqueue([this, out, in](Stream&) {
      const Bytes bytes(in.bytes());
      const bool in_place = in.data == out.data + rank() * in.bytes();
      MPI_CHECK(MPI_Allgather(in_place ? MPI_IN_PLACE : in.data, bytes.count, bytes.type, out.data,
                              bytes.count, bytes.type, comm_));
    });
  }

  void do_all_to_all(Tensor out, ConstTensor in, Stream& stream) override {
    stream.enqueue([this, out, in](Stream&) {
      const Bytes piece(in.bytes() / size());
      MPI_CHECK(
          MPI_Alltoall(in.data, piece.count, piece.type, out.data, piece.count, piece.type, comm_));
    });
  }

  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    stream.enqueue([this, inout, root](Stream&) {
      const Bytes bytes(inout.bytes());
      MPI_CHECK(MPI_Bcast(inout.data, bytes.count, bytes.type, root, comm_));
    });
  }

  void do_send_receive(Tensor received, int from, ConstTensor sent, int to,
                       Stream& stream) override {
    stream.enqueue([this, received, from, sent, to](Stream&) {
      const Bytes bytes(sent.bytes());
      MPI_CHECK(MPI_Sendrecv(sent.data, bytes.count, bytes.type, to, 0, received.data, bytes.count,
                             bytes.type, from, 0, comm_, MPI_STATUS_IGNORE));
    });
  }

  void do_barrier(Stream& stream) override {
    stream.enqueue([this](Stream&) { MPI_CHECK(MPI_Barrier(comm_)); });
  }

  // Small ones: everyone adds up everything. Others: everyone a part of it.
  void reduce(Tensor inout, ReduceOp op) {
    constexpr std::int64_t kSmallBytes = 16 << 10;
    const auto d = size();
    const auto n = inout.elements(), element = bytes_per_element(inout.dtype);
    const auto part = inout.bytes() <= kSmallBytes ? n : (n + d - 1) / d;
    received_.resize(static_cast<std::size_t>(d * part * element));
    std::vector<const std::byte*> all;
    if (part == n) {
      const Bytes bytes(inout.bytes());
      MPI_CHECK(MPI_Allgather(inout.data, bytes.count, bytes.type, received_.data(), bytes.count,
                              bytes.type, comm_));
      for (int r = 0; r < d; ++r)
        all.push_back(received_.data() + r * part * element);
      return reduce_range(inout, op, all, 0, n);
    }
    // Parts may differ: the last ones are shorter, or empty.
    const auto begin_of = [&](int r) { return std::min(n, r * part); };
    const auto begin = begin_of(rank()), mine = begin_of(rank() + 1) - begin;
    std::vector<MPI_Request> requests;
    for (int r = 0; r < d; ++r) {
      const auto at = begin_of(r), count = begin_of(r + 1) - at;
      requests.emplace_back();
      const Bytes theirs(mine * element);
      MPI_CHECK(MPI_Irecv(received_.data() + r * part * element, theirs.count, theirs.type, r, 1,
                          comm_, &requests.back()));
      requests.emplace_back();
      const Bytes sent(count * element);
      MPI_CHECK(MPI_Isend(inout.data + at * element, sent.count, sent.type, r, 1, comm_,
                          &requests.back()));
    }
    MPI_CHECK(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    for (int r = 0; r < d; ++r)  // as if each held the whole
      all.push_back(received_.data() + (r * part - begin) * element);
    reduce_range(inout, op, all, begin, begin + mine);
    requests.clear();
    for (int r = 0; r < d; ++r) {
      if (r == rank()) continue;
      const auto at = begin_of(r), count = begin_of(r + 1) - at;
      requests.emplace_back();
      const Bytes theirs(count * element);
      MPI_CHECK(MPI_Irecv(inout.data + at * element, theirs.count, theirs.type, r, 2, comm_,
                          &requests.back()));
      requests.emplace_back();
      const Bytes sums(mine * element);
      MPI_CHECK(MPI_Isend(inout.data + begin * element, sums.count, sums.type, r, 2, comm_,
                          &requests.back()));
    }
    MPI_CHECK(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  }

  MPI_Comm comm_;
  std::vector<std::byte> received_;
};

class MpiWorld final : public World {
 public:
  MpiWorld() {
    // Ranks that share processors would spin on them while they wait.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
    int provided = MPI_THREAD_SINGLE;
    MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    if (provided < MPI_THREAD_MULTIPLE)
      throw Error("this MPI cannot be used by several threads (MPI_THREAD_MULTIPLE)");
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  ~MpiWorld() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Communicator> connect(const std::string& name,
                                        const std::vector<int>& ranks) override {
    const int group_number = groups_++;  // also of a rank that is alone: others may not be
    if (ranks.size() == 1) return std::make_unique<LoneCommunicator>(name, 0, 1);
    MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    MPI_CHECK(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group));
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, group_number, &comm));
    int place = 0;
    MPI_CHECK(MPI_Group_rank(group, &place));
    MPI_CHECK(MPI_Group_free(&group));
    MPI_CHECK(MPI_Group_free(&all));
    return std::make_unique<MpiCommunicator>(name, place, static_cast<int>(ranks.size()), comm);
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> sizes(static_cast<std::size_t>(size_)), places;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(
        MPI_Iallgather(&bytes, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD, &request));
    sleep_until_done(request);
    int end = 0;
    for (const int size : sizes) {
      places.push_back(end);
      end += size;
    }
    std::string all(static_cast<std::size_t>(end), '\0');
    MPI_CHECK(MPI_Iallgatherv(mine.data(), bytes, MPI_BYTE, all.data(), sizes.data(), places.data(),
                              MPI_BYTE, MPI_COMM_WORLD, &request));
    sleep_until_done(request);
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < sizes.size(); ++r)
      texts.push_back(
          all.substr(static_cast<std::size_t>(places[r]), static_cast<std::size_t>(sizes[r])));
    return texts;
  }

  void abort(const std::string& why, int exit_code) noexcept override {
    try {
      log_line(LogLevel::error, why);  // with the number that the mesh gave this rank
    } catch (...) {                    // without memory for a line
    }
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }

 private:
  // A rank may be busy for long before it says something: others on its processor shall not take
  // turns with it, as ranks do that wait in a call of MPI.
  static void sleep_until_done(MPI_Request& request) {
    constexpr std::chrono::microseconds kPoll(200);
    for (int done = 0;;) {
      MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done != 0) return;
      std::this_thread::sleep_for(kPoll);
    }
  }

  int rank_ = 0, size_ = 1;
  int groups_ = 0;  // made so far: tells them apart
};

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<World> start_mpi() {
  return std::make_unique<MpiWorld>();
}

}  // namespace lockstep
