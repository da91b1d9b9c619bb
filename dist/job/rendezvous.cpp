#include "dist/job/rendezvous.h"

#include <charconv>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::int64_t kFirstOwnStep = 4294967280;  // 0xfffffff0: Slurm's batch, interactive, ...
constexpr int kFirstPort = 20000, kPorts = 10000;   // below the ephemeral ports of systems

const std::string* find(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::int64_t number(const Environment& environment, const std::string& name, std::int64_t least,
                    std::int64_t most) {
  const auto* text = find(environment, name);
  if (text == nullptr)
    throw ConfigError(str(name,
                          " is not set, but other variables of its launcher are; set it, or "
                          "unset them to train on one rank"));
  std::int64_t value = 0;
  const auto* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most)
    throw ConfigError(str("the environment has ", name, "=", *text, ", expected a number from ",
                          least, " to ", most));
  return value;
}

int number_or(const Environment& environment, const std::string& name, int otherwise) {
  constexpr int kMost = 1 << 30;
  if (find(environment, name) == nullptr) return otherwise;
  return static_cast<int>(number(environment, name, 0, kMost));
}

constexpr std::int64_t kMostRanks = 1 << 20;

// Reads rank, ranks and local_rank from three variables.
void read_place(Rendezvous& found, const Environment& environment, const std::string& rank,
                const std::string& ranks, const std::string& local_rank) {
  found.ranks = static_cast<int>(number(environment, ranks, 1, kMostRanks));
  found.rank = static_cast<int>(number(environment, rank, 0, kMostRanks));
  if (found.rank >= found.ranks)
    throw ConfigError(str("the environment has ", rank, "=", found.rank, " and ", ranks, "=",
                          found.ranks, "; expected a rank from 0 to ", found.ranks - 1));
  found.local_rank = number_or(environment, local_rank, -1);
}

// Whether this is a task of `srun`, as opposed to a shell of salloc or a batch script.
bool is_slurm_task(const Environment& environment) {
  const auto* step = find(environment, "SLURM_STEP_ID");
  return step != nullptr && find(environment, "SLURM_STEP_NUM_TASKS") != nullptr &&
         number(environment, "SLURM_STEP_ID", 0, std::int64_t{1} << 32) < kFirstOwnStep;
}

// Reads what ranks that meet at an address need. `remedy`: another way to start them.
void read_connection(Rendezvous& found, const Environment& environment, const std::string& remedy) {
  if (const auto* names = find(environment, "LOCKSTEP_INTERFACE")) found.interfaces = *names;
  const auto* text = find(environment, "LOCKSTEP_SECRET");
  if (text == nullptr)
    throw ConfigError(
        str(found.reason,
            ", but LOCKSTEP_SECRET, with which ranks authenticate each other, is not set; before "
            "starting them: export LOCKSTEP_SECRET=$(openssl rand -hex 32), the same value on "
            "every node",
            remedy));
  found.secret = Secret::from_hex(*text);
}

Rendezvous by_agent(const Environment& environment, const AgentPlace& place) {
  Rendezvous found{
      .way = Rendezvous::Way::address,
      .reason = str("lockstep supervise started rank ", place.rank, " of ", place.ranks),
      .rank = place.rank,
      .ranks = place.ranks,
      .local_rank = place.local_rank};
  if (place.ranks == 1) return {.reason = "lockstep supervise started one rank"};
  if (const auto* names = find(environment, "LOCKSTEP_INTERFACE")) found.interfaces = *names;
  if (place.addresses.empty()) throw ConfigError("the agent passed no address of rank 0");
  found.address = place.addresses.front();
  found.other_addresses.assign(place.addresses.begin() + 1, place.addresses.end());
  found.port = place.port;
  found.secret = Secret::from_hex(place.secret);
  return found;
}

Rendezvous by_torchrun(const Environment& environment) {
  Rendezvous found{.way = Rendezvous::Way::address};
  read_place(found, environment, "RANK", "WORLD_SIZE", "LOCAL_RANK");
  found.reason = str("RANK and WORLD_SIZE give rank ", found.rank, " of ", found.ranks);
  if (found.ranks == 1) return {.reason = "WORLD_SIZE gives one rank"};
  const auto* address = find(environment, "MASTER_ADDR");
  if (address == nullptr)
    throw ConfigError(
        str(found.reason, ", but MASTER_ADDR is not set; set it to the host of rank 0"));
  found.address = *address;
  const auto* agent = find(environment, "TORCHELASTIC_USE_AGENT_STORE");
  const bool taken = agent != nullptr && *agent == "True";
  found.port = static_cast<std::uint16_t>(
      number(environment, "MASTER_PORT", 1, taken ? 65534 : 65535) + (taken ? 1 : 0));
  read_connection(found, environment, "");
  return found;
}

Rendezvous by_slurm(const Environment& environment, const Abilities& abilities) {
  Rendezvous found{.way = Rendezvous::Way::address};
  read_place(found, environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  found.reason = str("srun started rank ", found.rank, " of ", found.ranks);
  if (found.ranks == 1) return {.reason = "srun started one task"};
  const auto* address = find(environment, "MASTER_ADDR");
  const auto* nodes = find(environment, "SLURM_STEP_NODELIST");
  if (address == nullptr && nodes == nullptr)
    throw ConfigError(
        str(found.reason,
            ", but neither SLURM_STEP_NODELIST nor MASTER_ADDR is set; set MASTER_ADDR "
            "to the host of rank 0"));
  found.address = address != nullptr ? *address : first_host(*nodes);
  if (find(environment, "MASTER_PORT") != nullptr) {
    found.port = static_cast<std::uint16_t>(number(environment, "MASTER_PORT", 1, 65535));
  } else {
    // Jobs and steps that share a node usually get different ports; the secret tells them apart.
    const auto job = number(environment, "SLURM_JOB_ID", 0, std::int64_t{1} << 32);
    const auto step = number(environment, "SLURM_STEP_ID", 0, std::int64_t{1} << 32);
    found.port = static_cast<std::uint16_t>(kFirstPort + (31 * job + step) % kPorts);
  }
  read_connection(found, environment,
                  abilities.has_mpi ? "; or start with srun --mpi=pmix, which needs none" : "");
  return found;
}

// mpirun gives each process its own PMIx. Without one, or with Slurm's, no mpirun started it.
void check_launcher(const Environment& environment, const std::string* space) {
  if (!is_slurm_task(environment) || (space != nullptr && !space->starts_with("slurm."))) return;
  const auto ranks = number(environment, "OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS", 1, kMostRanks);
  if (ranks == tasks) return;
  const auto with = space == nullptr ? "" : str(" with PMIx (PMIX_NAMESPACE=", *space, ")");
  throw ConfigError(str("srun started ", tasks, " tasks", with,
                        ", but the environment has OMPI_COMM_WORLD_SIZE=", ranks,
                        ", left over from mpirun; unset OMPI_COMM_WORLD_SIZE and "
                        "OMPI_COMM_WORLD_RANK"));
}

// Returns the ranks if MPI can start here, from the variables of mpirun or of PMIx.
std::optional<Rendezvous> by_mpi(const Environment& environment) {
  Rendezvous found{.way = Rendezvous::Way::mpi};
  const auto* space = find(environment, "PMIX_NAMESPACE");
  if (find(environment, "OMPI_COMM_WORLD_SIZE") != nullptr) {
    check_launcher(environment, space);
    read_place(found, environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
               "OMPI_COMM_WORLD_LOCAL_RANK");
    if (found.ranks == 1) return Rendezvous{.reason = "mpirun started one rank"};
    found.reason = str("mpirun started rank ", found.rank, " of ", found.ranks);
    return found;
  }
  if (space == nullptr || find(environment, "PMIX_RANK") == nullptr) return std::nullopt;
  if (is_slurm_task(environment)) {
    read_place(found, environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
    if (found.ranks == 1) return Rendezvous{.reason = "srun started one task"};
    found.reason = str("srun started rank ", found.rank, " of ", found.ranks, " with PMIx");
    return found;
  }
  if (space->starts_with("slurm.")) return std::nullopt;  // salloc's shell
  found.rank = number_or(environment, "PMIX_RANK", -1);
  found.ranks = found.local_rank = -1;
  found.reason = str("a launcher with PMIx started rank ", found.rank);
  return found;
}

void check_one_job(const Environment& environment, const Rendezvous& mpi) {
  if (find(environment, "WORLD_SIZE") == nullptr || mpi.ranks < 0) return;
  const auto world = number(environment, "WORLD_SIZE", 1, kMostRanks);
  if (world != mpi.ranks)
    throw ConfigError(str(mpi.reason, ", but the environment has WORLD_SIZE=", world,
                          "; unset RANK and WORLD_SIZE, or start without MPI"));
}

// With fewer ranks than tasks, each task would train alone. A task may start several ranks.
void check_tasks(const Environment& environment) {
  if (!is_slurm_task(environment)) return;
  const auto world = number(environment, "WORLD_SIZE", 1, kMostRanks);
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS", 1, kMostRanks);
  if (world < tasks)
    throw ConfigError(str("the environment has WORLD_SIZE=", world, ", but srun started ", tasks,
                          " tasks (SLURM_STEP_NUM_TASKS); unset RANK and WORLD_SIZE, or start ",
                          world, world == 1 ? " task" : " tasks"));
}

}  // namespace

Environment environment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

Rendezvous find_ranks(const Environment& environment, const Abilities& abilities,
                      const std::optional<AgentPlace>& place) {
  if (place) return by_agent(environment, *place);
  if (find(environment, "TORCHELASTIC_RUN_ID") != nullptr) return by_torchrun(environment);
  const bool world =
      find(environment, "WORLD_SIZE") != nullptr || find(environment, "RANK") != nullptr;
  if (const auto mpi = by_mpi(environment)) {
    check_one_job(environment, *mpi);
    if (mpi->way == Rendezvous::Way::one || abilities.has_mpi) return *mpi;
    if (!world && !is_slurm_task(environment))
      throw ConfigError(
          str(mpi->reason,
              ", but this build has no MPI; install libopenmpi-dev and configure the build "
              "again, or start with srun or torchrun"));
  }
  if (world) {
    check_tasks(environment);
    return by_torchrun(environment);
  }
  if (is_slurm_task(environment)) return by_slurm(environment, abilities);
  if (number_or(environment, "PMI_SIZE", 1) > 1)
    throw ConfigError(str("PMI_SIZE is ", environment.at("PMI_SIZE"),
                          ": an mpiexec other than Open MPI's started this process; start with "
                          "Open MPI's mpirun, or srun --mpi=pmix"));
  return {.reason = "no launcher started this process", .is_launched = false};
}

void check_started(const Rendezvous& found, int rank, int ranks) {
  if (found.ranks <= ranks && found.rank < ranks) return;
  throw ConfigError(str(
      "from the environment, ", found.reason, "; but MPI reports rank ", rank, " of ", ranks,
      ". To train on one rank, unset the variables that an earlier job left (OMPI_COMM_WORLD_*, "
      "PMIX_*, SLURM_STEP_ID). Otherwise start with the mpirun or srun of the MPI that this "
      "program uses"));
}

std::string first_host(const std::string& list) {
  const auto end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end != std::string::npos && list[end] == '[') {
    const auto number_end = list.find_first_of(",-]", end);
    const auto close = list.find(']', end);
    if (number_end == std::string::npos || close == std::string::npos || number_end == end + 1)
      throw ConfigError(
          str("cannot parse the node list '", list, "'; set MASTER_ADDR to the host of rank 0"));
    host += list.substr(end + 1, number_end - end - 1);
    // Text after the brackets belongs to each name, as in n[1-2]-ib. It may have brackets too.
    const auto rest = list.substr(close + 1);
    if (!rest.empty() && rest[0] != ',') host += first_host(rest);
  }
  if (host.empty())
    throw ConfigError(
        str("the node list '", list, "' has no host name; set MASTER_ADDR to the host of rank 0"));
  return host;
}

}  // namespace lockstep
