#include "spillway/base/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace spillway {
namespace {

using Variables = std::map<std::string, std::string>;

/// With these variables, as a launcher sets them.
std::optional<Launcher> launcher_with(const Variables& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  const auto found = find_launcher();
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return found;
}

TEST(Launcher, IsNoneWhereNothingSaysSo) {
  EXPECT_FALSE(find_launcher());
  EXPECT_FALSE(launcher_with({{"PMI_RANK", "0"}}));
  EXPECT_FALSE(launcher_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}));
  EXPECT_FALSE(launcher_with({{"PMI_RANK", "8"}, {"PMI_SIZE", "8"}}));
  EXPECT_FALSE(launcher_with({{"PMI_RANK", "one"}, {"PMI_SIZE", "8"}}));
}

TEST(Launcher, TellsRanks) {
  struct Case {
    Variables variables;
    std::string name;
    std::uint32_t here = 1;
    bool is_of_mpi = true;
    std::optional<std::uint32_t> number_here{};
  };
  const Case cases[] = {
      {{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "2"}},
       "a launcher of the kind of MPICH's",
       4,
       true,
       2},
      {{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "none"}},
       "a launcher of the kind of MPICH's"},
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"PMIX_RANK", "3"}},
       "the launcher of Open MPI",
       1,
       true,
       0},
      {{{"MV2_COMM_WORLD_RANK", "3"}, {"MV2_COMM_WORLD_SIZE", "8"}}, "the launcher of MVAPICH"},
      {{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "2"}}, "torchrun", 2, false}};
  for (const Case& one : cases) {
    const auto found = launcher_with(one.variables);
    ASSERT_TRUE(found) << one.name;
    EXPECT_EQ(found->name, one.name);
    EXPECT_EQ(found->rank, 3u) << one.name;
    EXPECT_EQ(found->ranks, 8u) << one.name;
    EXPECT_EQ(found->ranks_here, one.here) << one.name;
    EXPECT_EQ(found->is_of_mpi, one.is_of_mpi) << one.name;
    EXPECT_EQ(found->rank_here, one.number_here) << one.name;
  }
}

TEST(Launcher, OfPmixDoesNotSayHowManyRanksThereAre) {
  const auto found = launcher_with({{"PMIX_RANK", "3"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3u);
  EXPECT_EQ(found->ranks, 0u);
}

TEST(Launcher, OfSlurmIsSrun) {
  // What a script of sbatch has, outside of srun.
  EXPECT_FALSE(launcher_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
  const std::pair<const char*, std::uint32_t> hosts[] = {{"0", 4}, {"1", 4}, {"2", 3}};
  for (const auto& [host, ranks] : hosts) {
    const auto found = launcher_with({{"SLURM_PROCID", "3"},
                                      {"SLURM_STEP_NUM_TASKS", "11"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                                      {"SLURM_NODEID", host}});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->name, "srun");
    EXPECT_EQ(found->ranks_here, ranks) << host;
  }
}

TEST(IsAsLauncherHas, ComparesWithWhatHasStartedTheRank) {
  constexpr const char* kName = "SPILLWAY_TEST_VISIBLE";
  EXPECT_FALSE(is_as_launcher_has(kName)) << "no launcher";
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_TRUE(is_as_launcher_has(kName)) << "neither has it";
  ::setenv(kName, "0", 1);
  EXPECT_FALSE(is_as_launcher_has(kName)) << "set for this rank";
  for (const char* name : {"RANK", "WORLD_SIZE", kName}) ::unsetenv(name);
}

TEST(Launcher, HidesItsVariablesAndIsFoundAllTheSame) {
  const Variables told{{"PMI_RANK", "3"},
                       {"PMI_SIZE", "8"},
                       {"MPI_LOCALNRANKS", "4"},
                       {"SLURM_NTASKS", "8"},
                       {"PMIX_SERVER_URI4", "one=two"}};
  for (const auto& [name, value] : told) ::setenv(name.c_str(), value.c_str(), 1);
  ::setenv("RANK", "16", 1);  // Of something else.
  hide_launcher();
  for (const auto& [name, value] : told) {
    EXPECT_EQ(std::getenv(name.c_str()), nullptr) << name;
    EXPECT_EQ(std::getenv(("SPILLWAY_LAUNCHER_" + name).c_str()), value) << name;
  }
  EXPECT_STREQ(std::getenv("RANK"), "16");
  EXPECT_TRUE(has_launcher_variable("PMI_"));
  EXPECT_FALSE(has_launcher_variable("OMPI_"));
  // A program may set its own, as accelerate does.
  ::setenv("PMI_RANK", "0", 1);
  const auto found = find_launcher();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3u);
  EXPECT_EQ(found->ranks, 8u);
  EXPECT_EQ(found->ranks_here, 4u);
  for (const auto& [name, value] : told) {
    ::unsetenv(name.c_str());
    ::unsetenv(("SPILLWAY_LAUNCHER_" + name).c_str());
  }
  ::unsetenv("RANK");
}

TEST(Launcher, HidesNothingWhereNoneHasStartedTheProcess) {
  ::setenv("SLURM_NTASKS", "8", 1);
  hide_launcher();
  EXPECT_STREQ(std::getenv("SLURM_NTASKS"), "8");
  ::unsetenv("SLURM_NTASKS");
}

TEST(Launcher, HidesTheVariablesOfTorchrunWhereTheyComeTogether) {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_RANK", "1", 1);
  hide_launcher();
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    EXPECT_EQ(std::getenv(name), nullptr) << name;
    ::unsetenv((std::string("SPILLWAY_LAUNCHER_") + name).c_str());
  }
}

}  // namespace
}  // namespace spillway
