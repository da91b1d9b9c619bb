// Open MPI makes no progress while no thread is in one of its calls. Calls here therefore block: a
// queued stream's thread makes them while the compute stream computes. MPI's own collectives are
// faster alone (bench/mpi_bench), but they spin while they wait, and MPI_Allreduce adds in an order
// that depends on the algorithm that it picks.
#include "dist/mpi_world.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <mpi.h>

#include "core/log.h"
#include "core/start_thread.h"
#include "dist/host_communicator.h"

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

// A number of bytes as an MPI count, which is an int, and a datatype.
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

// Requests are messages in progress.
class Requests {
 public:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  // Ranks may share a CPU core: a rank that waits for long leaves the core to ranks that work.
  void wait() {
    using Clock = std::chrono::steady_clock;
    constexpr auto kSpin = std::chrono::microseconds(100), kSleep = std::chrono::microseconds(20);
    const auto begin = Clock::now();
    for (int done = 0;;) {
      MPI_CHECK(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                            MPI_STATUSES_IGNORE));
      if (done != 0) break;
      if (Clock::now() - begin > kSpin) std::this_thread::sleep_for(kSleep);
    }
    requests_.clear();
  }

 private:
  std::vector<MPI_Request> requests_;
};

class MpiCommunicator final : public HostCommunicator {
 public:
  MpiCommunicator(const std::string& name, int rank, int size, MPI_Comm comm)
      : HostCommunicator(name, rank, size, /*sum_bytes=*/INT64_MAX), comm_(comm) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 private:
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    stream.enqueue([this, inout, root](Stream&) {
      const Bytes bytes(inout.bytes());
      MPI_CHECK(MPI_Ibcast(inout.data, bytes.count, bytes.type, root, comm_,
                           requests(Lane::parts).add()));
      finish(Lane::parts);
    });
  }

  void do_barrier(Stream& stream) override {
    stream.enqueue([this](Stream&) {
      MPI_CHECK(MPI_Ibarrier(comm_, requests(Lane::parts).add()));
      finish(Lane::parts);
    });
  }

  void start_send(Lane lane, const std::byte* data, std::int64_t n, int to) override {
    const Bytes bytes(n);
    MPI_CHECK(MPI_Isend(data, bytes.count, bytes.type, to, static_cast<int>(lane), comm_,
                        requests(lane).add()));
  }
  void start_receive(Lane lane, std::byte* data, std::int64_t n, int from) override {
    const Bytes bytes(n);
    MPI_CHECK(MPI_Irecv(data, bytes.count, bytes.type, from, static_cast<int>(lane), comm_,
                        requests(lane).add()));
  }
  void finish(Lane lane) override { requests(lane).wait(); }
  void finish_receives(Lane lane) override { finish(lane); }
  Requests& requests(Lane lane) { return requests_[static_cast<std::size_t>(lane)]; }

  MPI_Comm comm_;
  std::array<Requests, 2> requests_;  // by lane
};

// Exits this process some seconds after the process that started it has ended. Usually Open MPI
// does so itself, but a rank in MPI_Init may wait there forever.
class EndsWithLauncher {
 public:
  EndsWithLauncher() : thread_(start_thread([this] { watch(); })) {}
  EndsWithLauncher(const EndsWithLauncher&) = delete;
  EndsWithLauncher& operator=(const EndsWithLauncher&) = delete;
  ~EndsWithLauncher() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch() {
    constexpr std::chrono::milliseconds kInterval{500};
    constexpr int kPatience = 10;  // number of intervals that Open MPI gets to do it
    std::unique_lock lock(mutex_);
    for (int gone = 0; !changed_.wait_for(lock, kInterval, [&] { return is_over_; });) {
      if (getppid() == launcher_ || ++gone < kPatience) continue;
      log_line(LogLevel::error, str("process ", launcher_, ", which started this rank, has gone"));
      _exit(TransientError("").exit_code());
    }
  }

  const pid_t launcher_ = getppid();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

class MpiWorld final : public World {
 public:
  MpiWorld() {
    // Otherwise ranks that share CPU cores would spin on them while they wait.
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

  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    const int group_number = groups_++;  // counts lone ranks too: others may not be
    const auto& ranks = group.ranks;
    if (ranks.size() == 1) return std::make_unique<LoneCommunicator>(group.name, 0, 1);
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    MPI_CHECK(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members));
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, members, group_number, &comm));
    int place = 0;
    MPI_CHECK(MPI_Group_rank(members, &place));
    MPI_CHECK(MPI_Group_free(&members));
    MPI_CHECK(MPI_Group_free(&all));
    return std::make_unique<MpiCommunicator>(group.name, place, static_cast<int>(ranks.size()),
                                             comm);
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> sizes(static_cast<std::size_t>(size_)), places;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(
        MPI_Iallgather(&bytes, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD, &request));
    sleep_until_done(request);
    MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    int end = 0;
    for (const int size : sizes) {
      places.push_back(end);
      end += size;
    }
    std::string all(static_cast<std::size_t>(end), '\0');
    MPI_CHECK(MPI_Iallgatherv(mine.data(), bytes, MPI_BYTE, all.data(), sizes.data(), places.data(),
                              MPI_BYTE, MPI_COMM_WORLD, &request));
    sleep_until_done(request);
    MPI_CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < sizes.size(); ++r)
      texts.push_back(
          all.substr(static_cast<std::size_t>(places[r]), static_cast<std::size_t>(sizes[r])));
    return texts;
  }

  void abort(const std::string& why, int exit_code) noexcept override {
    try {
      log_line(LogLevel::error, why);  // with the rank number in the mesh
    } catch (...) {                    // no memory for a line
    }
    std::signal(SIGTERM, SIG_IGN);  // mpirun now sends SIGTERM to all ranks
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }

 private:
  // A rank may be busy for long before it sends something. A rank that waits in an MPI call would
  // take turns with it on a shared CPU core; this wait sleeps instead.
  static void sleep_until_done(MPI_Request request) {
    constexpr std::chrono::microseconds kPoll(200);
    for (int done = 0;;) {
      MPI_CHECK(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE));
      if (done != 0) return;
      std::this_thread::sleep_for(kPoll);
    }
  }

  const EndsWithLauncher ends_with_launcher_;
  int rank_ = 0, size_ = 1;
  int groups_ = 0;  // number of groups made, to tell them apart
};

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<World> start_mpi() {
  return std::make_unique<MpiWorld>();
}

}  // namespace lockstep
