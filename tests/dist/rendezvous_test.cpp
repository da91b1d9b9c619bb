#include "dist/rendezvous.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous_test {

using Way = Rendezvous::Way;
constexpr Abilities kGpus{.has_mpi = true, .on_gpus = true};
constexpr Abilities kGpusNoMpi{.has_mpi = false, .on_gpus = true};
constexpr Abilities kCpus{.has_mpi = true, .on_gpus = false};
constexpr Abilities kCpusNoMpi{.has_mpi = false, .on_gpus = false};
const std::string kSecret(64, 'a');

Environment operator+(Environment a, const Environment& b) {
  for (const auto& [name, value] : b)
    a[name] = value;
  return a;
}
Environment without(Environment all, const std::string& name) {
  all.erase(name);
  return all;
}

// As those launchers set them.
const Environment kMpirun{{"OMPI_COMM_WORLD_SIZE", "8"},
                          {"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"PMIX_RANK", "3"},
                          {"PMIX_NAMESPACE", "1234.1"}};
const Environment kTorchrun{{"RANK", "3"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "n1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"LOCKSTEP_SECRET", kSecret}};
const Environment kByHand{
    {"RANK", "3"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},
    {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}, {"LOCKSTEP_SECRET", kSecret}};
// A batch script or salloc's shell: the same numbers as a task of a job of eight.
const Environment kAllocation{{"SLURM_JOB_ID", "1000"},     {"SLURM_NTASKS", "8"},
                              {"SLURM_PROCID", "0"},        {"SLURM_LOCALID", "0"},
                              {"SLURM_NNODES", "4"},        {"SLURM_JOB_NODELIST", "n[3-6]"},
                              {"SLURM_NODELIST", "n[3-6]"}, {"LOCKSTEP_SECRET", kSecret}};
const Environment kSrun = kAllocation + Environment{{"SLURM_STEP_ID", "0"},
                                                    {"SLURM_STEP_NUM_TASKS", "8"},
                                                    {"SLURM_PROCID", "3"},
                                                    {"SLURM_LOCALID", "1"},
                                                    {"SLURM_STEP_NODELIST", "n[4-5]"},
                                                    {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.99"}};
const Environment kPmix{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.1000.0"}};
const Environment kPmi2{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}};
const Environment kInteractive =
    kAllocation + Environment{{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}};

void expect_refused(const Environment& environment, const Abilities& abilities,
                    const std::string& part) {
  try {
    const auto found = find_ranks(environment, abilities);
    ADD_FAILURE() << "accepted: " << found.reason << "; expected: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Rendezvous, without_a_launcher_is_one_rank) {
  for (const auto& abilities : {kGpus, kGpusNoMpi, kCpus, kCpusNoMpi}) {
    const auto found = find_ranks({{"MASTER_ADDR", "left over"}, {"RANK", ""}}, abilities);
    EXPECT_EQ(found.way, Way::one);
    EXPECT_EQ(found.ranks, 1);
    EXPECT_EQ(found.reason, "no launcher started this process");
  }
}

TEST(Rendezvous, in_an_allocation_of_slurm_but_in_no_step_is_one_rank) {
  for (const auto& environment :
       {kAllocation, kInteractive, kInteractive + Environment{{"SLURM_STEP_NUM_TASKS", "8"}},
        kInteractive +
            Environment{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.1000.4294967290"}}})
    for (const auto& abilities : {kGpus, kGpusNoMpi, kCpus, kCpusNoMpi})
      EXPECT_EQ(find_ranks(environment, abilities).way, Way::one);
}

TEST(Rendezvous, of_one_started_by_a_launcher_needs_nothing_more) {
  for (const auto& environment :
       {kMpirun + Environment{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        kSrun + Environment{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}},
        kSrun + kPmix + Environment{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}},
        Environment{{"WORLD_SIZE", "1"}, {"RANK", "0"}}})
    EXPECT_EQ(find_ranks(environment, kCpusNoMpi).way, Way::one);
}

TEST(Rendezvous, takes_mpi_where_it_can_start) {
  for (const auto& abilities : {kGpus, kCpus}) {
    // In an allocation, mpirun's daemons are a step of Slurm with numbers of their own.
    for (const auto& environment :
         {kMpirun, kMpirun + kSrun, kSrun + kPmix, kSrun + kPmix + kPmi2}) {
      const auto found = find_ranks(environment, abilities);
      EXPECT_EQ(found.way, Way::mpi);
      EXPECT_EQ(found.rank, 3);
      EXPECT_EQ(found.ranks, 8);
      EXPECT_EQ(found.local_rank, 1);
    }
    EXPECT_EQ(find_ranks(kMpirun, abilities).reason, "mpirun started rank 3 of 8");
    EXPECT_EQ(find_ranks(kSrun + kPmix, abilities).reason, "srun started rank 3 of 8 with PMIx");
    EXPECT_EQ(find_ranks(kMpirun + kByHand, abilities).way, Way::mpi);
  }
  const auto other = find_ranks({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}}, kGpus);
  EXPECT_EQ(other.way, Way::mpi);
  EXPECT_EQ(other.ranks, -1);
}

TEST(Rendezvous, takes_torchruns_variables) {
  for (const auto& abilities : {kGpus, kGpusNoMpi}) {
    const auto found = find_ranks(kTorchrun, abilities);
    EXPECT_EQ(found.way, Way::address);
    EXPECT_EQ(found.rank, 3);
    EXPECT_EQ(found.ranks, 8);
    EXPECT_EQ(found.local_rank, 1);
    EXPECT_EQ(found.address, "n1");
    EXPECT_EQ(found.port, 29501) << "29500 is torchrun's own";
    EXPECT_TRUE(found.secret.has_value());
    EXPECT_EQ(find_ranks(kByHand, abilities).port, 29500);
  }
  // torchrun started by mpirun or srun, once a node.
  EXPECT_EQ(find_ranks(kMpirun + kSrun + kTorchrun, kGpus).way, Way::address);
}

TEST(Rendezvous, takes_slurms_variables_where_mpi_cannot_start) {
  for (const auto& environment : {kSrun, kSrun + kPmi2}) {
    const auto found = find_ranks(environment, kGpus);
    EXPECT_EQ(found.way, Way::address);
    EXPECT_EQ(found.rank, 3);
    EXPECT_EQ(found.ranks, 8) << "of the step, not of the allocation";
    EXPECT_EQ(found.local_rank, 1);
    EXPECT_EQ(found.address, "n4") << "the step's first node, not where srun runs";
    EXPECT_EQ(found.port, 20000 + 31 * 1000 % 10000);
  }
  EXPECT_EQ(find_ranks(kSrun + kPmix, kGpusNoMpi).way, Way::address);
  const auto moved =
      find_ranks(kSrun + Environment{{"MASTER_ADDR", "n9"}, {"MASTER_PORT", "7"}}, kGpus);
  EXPECT_EQ(moved.address, "n9");
  EXPECT_EQ(moved.port, 7);
}

TEST(Rendezvous, says_what_is_missing) {
  expect_refused(without(kByHand, "RANK"), kGpus, "RANK is not set");
  expect_refused(without(kByHand, "WORLD_SIZE"), kGpus, "WORLD_SIZE is not set");
  expect_refused(without(kByHand, "MASTER_ADDR"), kGpus, "MASTER_ADDR is not set");
  expect_refused(without(kByHand, "MASTER_PORT"), kGpus, "MASTER_PORT is not set");
  for (const auto& environment : {kByHand, kSrun})
    expect_refused(without(environment, "LOCKSTEP_SECRET"), kGpus,
                   "export LOCKSTEP_SECRET=$(openssl rand -hex 32)");
  expect_refused(without(kSrun, "SLURM_STEP_NODELIST"), kGpus, "set MASTER_ADDR");
  expect_refused(without(kSrun, "SLURM_PROCID"), kGpus, "SLURM_PROCID is not set");
  expect_refused(without(kMpirun, "OMPI_COMM_WORLD_RANK"), kGpus,
                 "OMPI_COMM_WORLD_RANK is not set");
}

TEST(Rendezvous, says_what_is_wrong) {
  expect_refused(kByHand + Environment{{"RANK", "8"}}, kGpus, "ranks count from 0");
  expect_refused(kByHand + Environment{{"RANK", "3x"}}, kGpus, "RANK=3x, expected a number");
  expect_refused(kByHand + Environment{{"WORLD_SIZE", "0"}}, kGpus, "WORLD_SIZE=0, expected");
  expect_refused(kByHand + Environment{{"MASTER_PORT", "65536"}}, kGpus, "MASTER_PORT=65536");
  expect_refused(kByHand + Environment{{"LOCKSTEP_SECRET", "abc"}}, kGpus, "64 hexadecimal digits");
  expect_refused(kSrun + Environment{{"SLURM_STEP_NODELIST", "n["}}, kGpus, "set MASTER_ADDR");
  expect_refused(kMpirun + Environment{{"WORLD_SIZE", "4"}, {"RANK", "0"}}, kGpus,
                 "mpirun started rank 3 of 8, but the environment has WORLD_SIZE=4");
  expect_refused(kPmi2, kGpus, "an mpiexec other than Open MPI's");
}

// As a shell keeps them that was started by a job which is over.
TEST(Rendezvous, variables_left_over_from_another_job_are_refused) {
  const Environment one{{"WORLD_SIZE", "1"}, {"RANK", "0"}};
  for (const auto& abilities : {kGpus, kGpusNoMpi, kCpus}) {
    expect_refused(kSrun + one, abilities, "WORLD_SIZE=1, but srun started 8 tasks");
    expect_refused(
        kSrun + kPmix + Environment{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        abilities, "srun started 8 tasks with PMIx");
    for (const char* ranks : {"1", "4"})
      expect_refused(
          kSrun + Environment{{"OMPI_COMM_WORLD_SIZE", ranks}, {"OMPI_COMM_WORLD_RANK", "0"}},
          abilities,
          str("srun started 8 tasks, but the environment has OMPI_COMM_WORLD_SIZE=", ranks));
    expect_refused(
        kByHand + Environment{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        abilities, "mpirun started one rank, but the environment has WORLD_SIZE=8");
  }
  EXPECT_EQ(find_ranks(
                kSrun + kByHand + Environment{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}},
                kGpus)
                .ranks,
            8)
      << "a task may start several ranks";
}

TEST(Rendezvous, of_fewer_ranks_than_the_environment_states_is_refused) {
  const auto refused = [](const Environment& environment, int rank, int ranks) {
    try {
      check_started(find_ranks(environment, kCpus), rank, ranks);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(kMpirun, 3, 8), "");
  EXPECT_EQ(refused(kSrun + kPmix, 3, 8), "");
  EXPECT_EQ(refused({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}}, 3, 8), "");
  for (const auto& environment :
       {kMpirun, kSrun + kPmix,
        Environment{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}}}) {
    const auto error = refused(environment, 0, 1);
    EXPECT_NE(error.find("but MPI says: rank 0 of 1. To train on one rank, unset"),
              std::string::npos)
        << error;
  }
}

TEST(Rendezvous, of_ranks_on_cpus_needs_mpi) {
  for (const auto& environment : {kSrun, kSrun + kPmi2, kByHand, kTorchrun}) {
    expect_refused(environment, kCpus, "srun --mpi=pmix");
    expect_refused(environment, kCpusNoMpi, "install libopenmpi-dev");
  }
  expect_refused(kMpirun, kCpusNoMpi, "mpirun started rank 3 of 8, but this build has no MPI");
  expect_refused(kMpirun, kGpusNoMpi, "but this build has no MPI");
}

TEST(FirstHost, is_that_of_slurms_lists) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[003-005,7],m1"), "n003");
  EXPECT_EQ(first_host("gpu-a[7,9]"), "gpu-a7");
  EXPECT_EQ(first_host("rack[1-2]node[04-05]"), "rack1node04");
  EXPECT_EQ(first_host("n[1-2]-ib"), "n1-ib");
  for (const auto* wrong : {"", "[", "n[", "n[]", "n[1", "n[-2]", ",n1"})
    EXPECT_THROW(first_host(wrong), ConfigError) << wrong;
}

TEST(EnvironmentOfProcess, has_what_was_set) {
  setenv("LOCKSTEP_TEST_VARIABLE", "a=b", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(environment().at("LOCKSTEP_TEST_VARIABLE"), "a=b");
  unsetenv("LOCKSTEP_TEST_VARIABLE");  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace lockstep::rendezvous_test
