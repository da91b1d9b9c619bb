// Rendezvous: the way in which the ranks of a job find each other. It is decided from the
// environment before MPI_Init.
//
//   one      there is no launcher: this process is the job
//   mpi      MPI can start: mpirun, or srun --mpi=pmix. Rank 0 creates a secret, starts its
//            control server (dist/job/control_server.h) and broadcasts local_addresses(), port and
//            secret over MPI
//   address  torchrun's or Slurm's variables give the ranks and the host of rank 0. Its control
//            server listens at `port`, and LOCKSTEP_SECRET is the secret
//
// Variables, in the order of precedence:
//   LOCKSTEP_AGENT
//       lockstep supervise started it and passed its place over a socket (dist/job/agent_socket.h).
//   TORCHELASTIC_RUN_ID
//       torchrun started this process; its variables take precedence, even under another launcher.
//   OMPI_COMM_WORLD_SIZE, _RANK, _LOCAL_RANK
//       Open MPI's mpirun started it. Variables of Slurm then belong to mpirun's daemons.
//   PMIX_RANK, PMIX_NAMESPACE
//       A launcher with PMIx started it, such as srun --mpi=pmix, and Open MPI can start. PMI_RANK
//       alone (srun --mpi=pmi2) is not enough for Open MPI.
//   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//       Variables of torchrun, set by it or by hand.
//   SLURM_STEP_ID, SLURM_STEP_NUM_TASKS, SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_NODELIST,
//   SLURM_JOB_ID
//       A task of srun. A batch script and salloc's shell have SLURM_PROCID and SLURM_NTASKS too,
//       but no step, or a step of Slurm's own (above 4294967279); such a process is one rank. Rank
//       0 is on the first node of the step, unless MASTER_ADDR and MASTER_PORT are set.
//       SLURM_LAUNCH_NODE_IPADDR is the host of srun, which may be another one.
//   TORCHELASTIC_USE_AGENT_STORE
//       True: torchrun itself listens at MASTER_PORT, so the control server takes the next port.
//   PMI_SIZE
//       More than 1 and none of the above: an mpiexec of another MPI, which is an error.
//   LOCKSTEP_SECRET
//       64 hexadecimal digits, the same for all ranks.
//   LOCKSTEP_INTERFACE
//       The network interfaces whose addresses ranks publish (local_addresses).
#pragma once

#include <map>
#include <optional>

#include "dist/job/agent_socket.h"
#include "dist/job/secret.h"

namespace lockstep {

using Environment = std::map<std::string, std::string>;
Environment environment();  // variables of this process

struct Rendezvous {
  enum class Way : std::uint8_t { one, mpi, address };
  Way way = Way::one;
  std::string reason{};     // text for the log: "mpirun started rank 3 of 8"
  bool is_launched = true;  // false: a user or a script started this process alone
  // For Way::mpi the values in the environment, for the log; MPI has the true ones. -1: not set.
  int rank = 0, ranks = 1, local_rank = 0;
  // For Way::address, like the next three members. The listener has more addresses if an agent
  // started this process.
  std::string address{};
  std::vector<std::string> other_addresses{};
  std::uint16_t port = 0;
  std::optional<Secret> secret{};
  std::string interfaces{};  // LOCKSTEP_INTERFACE
};

struct Abilities {
  bool has_mpi = false;  // this build has MPI
};

// Decides the way. Throws ConfigError with a remedy if variables are missing, contradict each
// other, or need an ability that this build lacks.
//   place: from the agent that started this process
Rendezvous find_ranks(const Environment& environment, const Abilities& abilities,
                      const std::optional<AgentPlace>& place = {});

// Checks `found` against MPI's rank and number of ranks, after MPI_Init. Throws ConfigError if MPI
// reports fewer ranks than the variables: they are left over from another job, or this MPI cannot
// reach the launcher.
void check_started(const Rendezvous& found, int rank, int ranks);

// First host of a node list in Slurm's form: n003 for "n[003-005,7],m1". Throws ConfigError if the
// list cannot be parsed.
std::string first_host(const std::string& list);

}  // namespace lockstep
