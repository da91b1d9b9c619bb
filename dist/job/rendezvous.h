// Rendezvous: how the ranks of a job find each other, decided from the environment before MPI_Init.
//
//   one      no launcher: this process is the job
//   mpi      MPI can start: mpirun, or srun --mpi=pmix. Rank 0 draws a secret, starts its hub
//            (dist/job/hub.h) and broadcasts local_addresses(), port and secret over MPI
//   address  torchrun's or Slurm's variables say who is who and where rank 0 is; its hub listens at
//            `port`, and the secret is LOCKSTEP_SECRET's
//
// Variables, in the order in which they count:
//   TORCHELASTIC_RUN_ID         torchrun started this process: its variables count, whoever
//                               started torchrun
//   OMPI_COMM_WORLD_SIZE, _RANK, _LOCAL_RANK
//                               Open MPI's mpirun. Variables of Slurm are then those of its daemons
//   PMIX_RANK, PMIX_NAMESPACE   a launcher that speaks PMIx, as srun --mpi=pmix does, in which Open
//   MPI
//                               can start. PMI_RANK alone (srun --mpi=pmi2) is not enough for it
//   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//                               torchrun's variables, set by it or by hand
//   SLURM_STEP_ID, SLURM_STEP_NUM_TASKS, SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_NODELIST,
//   SLURM_JOB_ID                a task of srun. In a batch script and in salloc's shell there are
//                               SLURM_PROCID and SLURM_NTASKS too, but no step (or one above
//                               4294967279, Slurm's own): such a process is one. Rank 0 is on the
//                               first node of the step; MASTER_ADDR and MASTER_PORT change that.
//                               SLURM_LAUNCH_NODE_IPADDR is where srun runs, which need not be
//                               there
//   TORCHELASTIC_USE_AGENT_STORE  True: torchrun itself listens at MASTER_PORT, so the hub takes
//   the
//                               next port
//   PMI_SIZE                    more than 1 and none of the above: an mpiexec of another MPI;
//   refused LOCKSTEP_SECRET             64 hexadecimal digits, the same for all ranks
//   LOCKSTEP_INTERFACE          the network interfaces that rank 0 names (local_addresses)
#pragma once

#include <map>
#include <optional>

#include "dist/job/secret.h"

namespace lockstep {

using Environment = std::map<std::string, std::string>;
Environment environment();  // of this process

struct Rendezvous {
  enum class Way : std::uint8_t { one, mpi, address };
  Way way = Way::one;
  std::string reason{};  // for the log: "mpirun started rank 3 of 8"
  // Of Way::mpi what the environment says, for the log; MPI knows. -1: it does not say.
  int rank = 0, ranks = 1, local_rank = 0;
  std::string address{};  // of Way::address, as the next two
  std::uint16_t port = 0;
  std::optional<Secret> secret{};
};

struct Abilities {
  bool has_mpi = false;  // this build
  bool on_gpus = false;  // this run: its collectives are NCCL's, on CPUs they are MPI's
};

// Throws ConfigError where variables are missing, contradict each other or ask for what this build
// cannot do; it says what to do.
Rendezvous find_ranks(const Environment& environment, const Abilities& abilities);

// Throws ConfigError if MPI, which has started, knows fewer ranks than the variables state: these
// are left over from another job, or this MPI cannot reach the launcher. rank, ranks: as MPI says.
void check_started(const Rendezvous& found, int rank, int ranks);

// The first host of a list as Slurm writes it: "n[003-005,7],m1" is n003. ConfigError where it is
// none.
std::string first_host(const std::string& list);

}  // namespace lockstep
