#include "dist/job/rendezvous.h"

#include <gtest/gtest.h>
#include <map>

#include "tests/wording.h"

namespace lockstep::testing::rendezvous_test {

using Way = Rendezvous::Way;
constexpr Abilities kMpi{.has_mpi = true}, kNoMpi{.has_mpi = false};
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

// Variables as these launchers set them.
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

// find_ranks() throws the message `name`, which holds `pins`.
void refused(const std::string& name, const Environment& environment, const Abilities& abilities,
             std::initializer_list<std::string> pins) {
  expect_refusal<ConfigError>("dist/rendezvous", name, pins,
                              [&] { find_ranks(environment, abilities); });
}

TEST(Rendezvous, without_a_launcher_is_one_rank) {
  for (const auto& abilities : {kMpi, kNoMpi}) {
    const auto found = find_ranks({{"MASTER_ADDR", "left over"}, {"RANK", ""}}, abilities);
    EXPECT_EQ(found.way, Way::one);
    EXPECT_FALSE(found.is_launched);
    EXPECT_EQ(found.ranks, 1);
    expect_wording("dist/rendezvous", "no launcher", found.reason);
  }
}

TEST(Rendezvous, in_an_allocation_of_slurm_but_in_no_step_is_one_rank) {
  for (const auto& environment :
       {kAllocation, kInteractive, kInteractive + Environment{{"SLURM_STEP_NUM_TASKS", "8"}},
        kInteractive +
            Environment{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.1000.4294967290"}}})
    for (const auto& abilities : {kMpi, kNoMpi})
      EXPECT_EQ(find_ranks(environment, abilities).way, Way::one);
}

TEST(Rendezvous, of_one_launched_rank_needs_nothing_more) {
  for (const auto& environment :
       {kMpirun + Environment{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        kSrun + Environment{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}},
        kSrun + kPmix + Environment{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}},
        Environment{{"WORLD_SIZE", "1"}, {"RANK", "0"}}}) {
    const auto found = find_ranks(environment, kNoMpi);
    EXPECT_EQ(found.way, Way::one);
    EXPECT_TRUE(found.is_launched);
  }
}

TEST(Rendezvous, uses_mpi_if_it_can_start) {
  // In an allocation, mpirun's daemons are a step of Slurm with their own numbers.
  for (const auto& environment : {kMpirun, kMpirun + kSrun, kSrun + kPmix, kSrun + kPmix + kPmi2}) {
    const auto found = find_ranks(environment, kMpi);
    EXPECT_EQ(found.way, Way::mpi);
    EXPECT_EQ(found.rank, 3);
    EXPECT_EQ(found.ranks, 8);
    EXPECT_EQ(found.local_rank, 1);
  }
  expect_wording("dist/rendezvous", "mpirun", find_ranks(kMpirun, kMpi).reason);
  expect_wording("dist/rendezvous", "srun", find_ranks(kSrun + kPmix, kMpi).reason);
  EXPECT_EQ(find_ranks(kMpirun + kByHand, kMpi).way, Way::mpi);
  const auto other = find_ranks({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}}, kMpi);
  EXPECT_EQ(other.way, Way::mpi);
  EXPECT_EQ(other.ranks, -1);
}

TEST(Rendezvous, uses_torchruns_variables) {
  for (const auto& abilities : {kMpi, kNoMpi}) {
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
  EXPECT_EQ(find_ranks(kMpirun + kSrun + kTorchrun, kMpi).way, Way::address);
}

TEST(Rendezvous, uses_slurms_variables_if_mpi_cannot_start) {
  for (const auto& environment : {kSrun, kSrun + kPmi2}) {
    const auto found = find_ranks(environment, kMpi);
    EXPECT_EQ(found.way, Way::address);
    EXPECT_EQ(found.rank, 3);
    EXPECT_EQ(found.ranks, 8) << "of the step, not of the allocation";
    EXPECT_EQ(found.local_rank, 1);
    EXPECT_EQ(found.address, "n4") << "the step's first node, not where srun runs";
    EXPECT_EQ(found.port, 20000 + 31 * 1000 % 10000);
  }
  EXPECT_EQ(find_ranks(kSrun + kPmix, kNoMpi).way, Way::address);
  const auto moved =
      find_ranks(kSrun + Environment{{"MASTER_ADDR", "n9"}, {"MASTER_PORT", "7"}}, kMpi);
  EXPECT_EQ(moved.address, "n9");
  EXPECT_EQ(moved.port, 7);
}

TEST(Rendezvous, names_missing_variables) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    refused("no " + name, without(kByHand, name), kMpi, {name});
  refused("no secret", without(kByHand, "LOCKSTEP_SECRET"), kMpi, {"export LOCKSTEP_SECRET="});
  refused("no secret of srun", without(kSrun, "LOCKSTEP_SECRET"), kMpi,
          {"export LOCKSTEP_SECRET=", "srun --mpi=pmix"});
  refused("no secret of srun, no MPI", without(kSrun, "LOCKSTEP_SECRET"), kNoMpi,
          {"export LOCKSTEP_SECRET="});
  refused("no hosts", without(kSrun, "SLURM_STEP_NODELIST"), kMpi, {"MASTER_ADDR"});
  refused("no SLURM_PROCID", without(kSrun, "SLURM_PROCID"), kMpi, {"SLURM_PROCID"});
  refused("no rank of mpirun", without(kMpirun, "OMPI_COMM_WORLD_RANK"), kMpi,
          {"OMPI_COMM_WORLD_RANK"});
}

TEST(Rendezvous, names_wrong_variables) {
  const auto wrong = [](const std::string& variable, const std::string& value) {
    refused(str(variable, "=", value), kByHand + Environment{{variable, value}}, kMpi, {variable});
  };
  wrong("RANK", "8");
  wrong("RANK", "3x");
  wrong("WORLD_SIZE", "0");
  wrong("MASTER_PORT", "65536");
  wrong("LOCKSTEP_SECRET", "abc");
  refused("a broken node list", kSrun + Environment{{"SLURM_STEP_NODELIST", "n["}}, kMpi,
          {"MASTER_ADDR"});
  refused("mpirun and other ranks", kMpirun + Environment{{"WORLD_SIZE", "4"}, {"RANK", "0"}}, kMpi,
          {"mpirun", "3 of 8", "WORLD_SIZE=4"});
  refused("another mpiexec", kPmi2, kMpi, {"mpiexec", "Open MPI"});
}

// A shell that a finished job started may keep its variables.
TEST(Rendezvous, variables_left_over_from_another_job_are_errors) {
  const Environment one{{"WORLD_SIZE", "1"}, {"RANK", "0"}};
  const auto mpi = [](const char* ranks) {
    return Environment{{"OMPI_COMM_WORLD_SIZE", ranks}, {"OMPI_COMM_WORLD_RANK", "0"}};
  };
  for (const auto& abilities : {kMpi, kNoMpi}) {
    refused("srun, WORLD_SIZE=1", kSrun + one, abilities, {"WORLD_SIZE=1", "srun", "8"});
    refused("srun with PMIx, mpirun", kSrun + kPmix + mpi("1"), abilities, {"srun", "8", "PMIx"});
    for (const std::string ranks : {"1", "4"})
      refused("srun, mpirun of " + ranks, kSrun + mpi(ranks.c_str()), abilities,
              {"srun", "8", "OMPI_COMM_WORLD_SIZE=" + ranks});
    refused("mpirun, WORLD_SIZE=8", kByHand + mpi("1"), abilities, {"mpirun", "WORLD_SIZE=8"});
  }
  const Environment two{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(find_ranks(kSrun + kByHand + two, kMpi).ranks, 8) << "a task may start several ranks";
}

TEST(Rendezvous, of_fewer_ranks_than_the_environment_states_is_an_error) {
  const Environment prterun{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}};
  for (const auto& [name, environment] : std::map<std::string, Environment>{
           {"mpirun", kMpirun}, {"srun with PMIx", kSrun + kPmix}, {"prterun", prterun}}) {
    const auto found = find_ranks(environment, kMpi);
    EXPECT_NO_THROW(check_started(found, 3, 8)) << name;
    expect_refusal<ConfigError>("dist/rendezvous", name + " of one rank", {"MPI", "rank 0 of 1"},
                                [&, &found = found] { check_started(found, 0, 1); });
  }
}

TEST(Rendezvous, of_mpirun_needs_mpi) {
  refused("mpirun, no MPI", kMpirun, kNoMpi, {"mpirun", "3 of 8", "libopenmpi-dev"});
}

TEST(Rendezvous, passes_on_the_interfaces) {
  const Environment named{{"LOCKSTEP_INTERFACE", "ib0"}};
  for (const auto& environment : {kByHand, kTorchrun, kSrun}) {
    EXPECT_EQ(find_ranks(environment + named, kMpi).interfaces, "ib0");
    EXPECT_EQ(find_ranks(environment, kMpi).interfaces, "");
  }
}

TEST(FirstHost, is_parsed_from_slurms_lists) {
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

}  // namespace lockstep::testing::rendezvous_test
