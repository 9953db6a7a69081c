#include "spillway/runtime/settings/budget.h"

#include <gmock/gmock.h>

#include <utility>

#include "spillway/base/error.h"

namespace spillway::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

topology::Machine machine_with(Bytes total, Bytes available) {
  topology::Machine machine;
  machine.memory.total = total;
  machine.memory.available = available;
  return machine;
}

Settings settings_with(const std::string& budget) {
  Settings settings;
  assign_setting(settings, "budget", budget, "test");
  return settings;
}

std::string refusal_of(const Settings& settings, const topology::Machine& machine) {
  try {
    resolve_budget(settings, machine);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DefaultReserve, GrowsWithTheMemory) {
  EXPECT_EQ(default_reserve(1_GiB), 512_MiB);
  EXPECT_EQ(default_reserve(100_GiB), 8_GiB);
}

TEST(ResolveBudget, LeavesTheReserveByDefault) {
  const auto budget = resolve_budget(Settings{}, machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 4_GiB - 512_MiB);
  EXPECT_THAT(budget.origin, AllOf(HasSubstr("auto"), HasSubstr("512 MiB")));
  EXPECT_TRUE(budget.warnings.empty());
}

TEST(ResolveBudget, RespectsACgroup) {
  auto machine = machine_with(64_GiB, 60_GiB);
  machine.memory.limits = {{"/sys/fs/cgroup/job/memory.max", 3_GiB, 1_GiB}};
  const auto budget = resolve_budget(Settings{}, machine);
  EXPECT_EQ(budget.budget, 2_GiB - 512_MiB);
  EXPECT_THAT(budget.origin, HasSubstr("/sys/fs/cgroup/job/memory.max"));
}

TEST(ResolveBudget, TakesAPercentageOfWhatIsUsable) {
  EXPECT_EQ(resolve_budget(settings_with("50%"), machine_with(16_GiB, 4608_MiB)).budget, 2_GiB);
  EXPECT_EQ(resolve_budget(settings_with("100%"), machine_with(16_GiB, 4608_MiB)).budget, 4_GiB);
}

TEST(ResolveBudget, UsesTheGivenReserve) {
  Settings settings = settings_with("50%");
  settings.reserve = 0_B;
  EXPECT_EQ(resolve_budget(settings, machine_with(16_GiB, 4_GiB)).budget, 2_GiB);
}

TEST(ResolveBudget, LeavesTheMemoryBeforeTheDisksOut) {
  Settings settings;
  assign_setting(settings, "nvme", "ram:1GiB", "test");
  const auto budget = resolve_budget(settings, machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 3_GiB - 512_MiB);
  EXPECT_THAT(budget.origin, HasSubstr("512 MiB reserve and 1.00 GiB before the disks"));
  assign_setting(settings, "budget", "50%", "test");
  EXPECT_EQ(resolve_budget(settings, machine_with(16_GiB, 4608_MiB)).budget, 1536_MiB);
  EXPECT_EQ(resolve_budget(settings, machine_with(16_GiB, 9_GiB), 2).budget, 1536_MiB)
      << "each rank has its own";
}

TEST(ResolveBudget, RefusesMemoryBeforeTheDisksThatIsNotThere) {
  Settings settings = settings_with("1GiB");
  assign_setting(settings, "nvme", "ram:5GiB", "test");
  EXPECT_THAT(refusal_of(settings, machine_with(16_GiB, 4_GiB)),
              HasSubstr("5.00 GiB of memory before the disks (ram: of --nvme) are more than this "
                        "process can use, 4.00 GiB (available memory)"));
  EXPECT_EQ(refusal_of(settings, machine_with(16_GiB, 8_GiB)), "accepted");
  assign_setting(settings, "nvme", "ram:3800MiB", "test");
  assign_setting(settings, "budget", "auto", "test");
  EXPECT_THAT(refusal_of(settings, machine_with(16_GiB, 4_GiB)),
              AllOf(HasSubstr("no budget is left"), HasSubstr("lower the ram: of --nvme")));
}

TEST(ResolveBudget, WarnsWhereBudgetAndMemoryBeforeTheDisksAreTooMuch) {
  Settings settings = settings_with("3GiB");
  assign_setting(settings, "nvme", "ram:2GiB", "test");
  const auto warnings = resolve_budget(settings, machine_with(16_GiB, 4_GiB)).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("the budget of 3.00 GiB and the 2.00 GiB before the disks"));
  EXPECT_TRUE(resolve_budget(settings, machine_with(16_GiB, 6_GiB)).warnings.empty());
}

TEST(ResolveBudget, SharesTheMachineAmongTheRanksOnIt) {
  const auto budget = resolve_budget(Settings{}, machine_with(16_GiB, 8_GiB), 4);
  EXPECT_EQ(budget.budget, 2_GiB - 512_MiB);
  EXPECT_THAT(budget.origin, HasSubstr("8.00 GiB usable (available memory) for 4 ranks"));
  EXPECT_EQ(resolve_budget(settings_with("3GiB"), machine_with(16_GiB, 8_GiB), 4).budget, 3_GiB);
}

TEST(LaunchedRanksHere, AreReadFromTheLauncher) {
  EXPECT_EQ(launched_ranks_here(), 1u);
  ASSERT_EQ(::setenv("MPI_LOCALNRANKS", "8", 1), 0);
  EXPECT_EQ(launched_ranks_here(), 8u);
  ASSERT_EQ(::setenv("MPI_LOCALNRANKS", "none", 1), 0);
  EXPECT_EQ(launched_ranks_here(), 1u);
  ASSERT_EQ(::unsetenv("MPI_LOCALNRANKS"), 0);
  ASSERT_EQ(::setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),3", 1), 0);
  EXPECT_EQ(launched_ranks_here(), 4u);
  ASSERT_EQ(::unsetenv("SLURM_STEP_TASKS_PER_NODE"), 0);
}

TEST(ResolveBudget, TakesASizeAsItIs) {
  const auto budget = resolve_budget(settings_with("3GiB"), machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 3_GiB);
  EXPECT_TRUE(budget.warnings.empty());
}

TEST(ResolveBudget, WarnsOfMoreThanThereIs) {
  const auto machine = machine_with(16_GiB, 4_GiB);
  const auto beyond_machine = resolve_budget(settings_with("32GiB"), machine);
  ASSERT_EQ(beyond_machine.warnings.size(), 1u);
  EXPECT_THAT(beyond_machine.warnings[0], HasSubstr("memory of this machine"));
  const auto beyond_usable = resolve_budget(settings_with("8GiB"), machine);
  ASSERT_EQ(beyond_usable.warnings.size(), 1u);
  EXPECT_THAT(beyond_usable.warnings[0], HasSubstr("available memory"));
}

TEST(ResolveBudget, RefusesLessThanTwoPages) {
  EXPECT_THAT(refusal_of(settings_with("1MiB"), machine_with(16_GiB, 4_GiB)),
              AllOf(HasSubstr("1.00 MiB"), HasSubstr("4.00 MiB")));
  EXPECT_THAT(refusal_of(settings_with("0.01%"), machine_with(16_GiB, 4_GiB)),
              HasSubstr("too small"));
}

TEST(ResolveBudget, RefusesAutoWhenTheReserveTakesEverything) {
  EXPECT_THAT(refusal_of(Settings{}, machine_with(16_GiB, 256_MiB)),
              AllOf(HasSubstr("256 MiB"), HasSubstr("lower the reserve")));
}

TEST(ResolveBudget, AsksForASizeWhenTheMachineTellsNothing) {
  EXPECT_THAT(refusal_of(Settings{}, {}), HasSubstr("for example 4GiB"));
  EXPECT_EQ(resolve_budget(settings_with("4GiB"), {}).budget, 4_GiB);
}

/// 100 GiB of which tensors may have 92, and the kernel's usual limit of mappings.
topology::Machine large_machine() {
  topology::Machine machine = machine_with(128_GiB, 100_GiB);
  machine.kernel.mappings_max = 65530;
  return machine;
}

ResolvedBudget held_budget(const std::string& budget, const topology::Machine& machine,
                           memory::MapperKind mapper) {
  const Settings settings = settings_with(budget);
  ResolvedBudget result = resolve_budget(settings, machine);
  hold_to_mapper(result, settings, machine, mapper);
  return result;
}

TEST(HoldToMapper, LowersWhatTheMachineWouldAllowAndSaysSo) {
  const auto budget = held_budget("auto", large_machine(), memory::MapperKind::kSignal);
  EXPECT_EQ(budget.budget, 40956_MiB);
  EXPECT_THAT(budget.origin, HasSubstr("lowered to what the mapper signal can serve"));
  ASSERT_EQ(budget.warnings.size(), 1u);
  EXPECT_THAT(budget.warnings[0],
              AllOf(HasSubstr("lowered from 92.0 GiB to 40.0 GiB"), HasSubstr("mapper \"signal\""),
                    HasSubstr("`sysctl vm.max_map_count=145408`")));
  EXPECT_EQ(held_budget("50%", large_machine(), memory::MapperKind::kSignal).budget, 40956_MiB);
}

TEST(HoldToMapper, LeavesWhatCanBeServed) {
  const auto machine = large_machine();
  for (const auto& [budget, mapper] :
       {std::pair("auto", memory::MapperKind::kUserfaultfd),
        std::pair("50%", memory::MapperKind::kCopy), std::pair("40%", memory::MapperKind::kSignal),
        std::pair("90GiB", memory::MapperKind::kUserfaultfdUser)}) {
    const auto held = held_budget(budget, machine, mapper);
    EXPECT_EQ(held.budget, resolve_budget(settings_with(budget), machine).budget) << budget;
    EXPECT_TRUE(held.warnings.empty()) << budget;
  }
  EXPECT_EQ(held_budget("auto", machine_with(128_GiB, 100_GiB), memory::MapperKind::kSignal).budget,
            92_GiB);  // The limit is unknown.
}

TEST(HoldToMapper, RefusesASizeThatWasGivenWithTheLargestThatCanBeServed) {
  for (auto [budget, mappings] : {std::pair("41GiB", 65530), std::pair("auto", 4097)}) {
    auto machine = large_machine();
    machine.kernel.mappings_max = mappings;
    try {
      held_budget(budget, machine, memory::MapperKind::kSignal);
      ADD_FAILURE() << budget << " was accepted";
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), HasSubstr(mappings == 65530 ? "a budget of at most 40956MiB"
                                                            : "vm.max_map_count is 4097"));
    }
  }
}

topology::Machine limited_machine(std::uint64_t addresses, std::uint64_t data) {
  topology::Machine machine = machine_with(32_GiB, 24_GiB);
  machine.limits.address_space_bytes = addresses;
  machine.limits.data_bytes = data;
  machine.use.address_space_bytes = (3_GiB).count();
  machine.use.data_bytes = (1_GiB).count();
  return machine;
}

ResolvedBudget limited_budget(const std::string& budget, const topology::Machine& machine) {
  const Settings settings = settings_with(budget);
  ResolvedBudget result = resolve_budget(settings, machine);
  hold_to_limits(result, settings, machine);
  return result;
}

TEST(HoldToLimits, ReservesATebibyteWhereNothingLimitsAddresses) {
  const auto budget =
      limited_budget("auto", limited_machine(topology::kUnlimited, topology::kUnlimited));
  EXPECT_EQ(budget.arena, 1_TiB);
  EXPECT_EQ(budget.arena_reason, "");
  EXPECT_TRUE(budget.warnings.empty());
  EXPECT_EQ(limited_budget("1GiB", machine_with(32_GiB, 24_GiB)).arena, 1_TiB);  // Not known.
}

TEST(HoldToLimits, ReservesLessUnderALimitOfAddressesAndSaysSo) {
  const auto machine = limited_machine((19_GiB).count(), topology::kUnlimited);
  const auto budget = limited_budget("24MiB", machine);
  EXPECT_EQ(budget.budget, 24_MiB);
  EXPECT_GT(budget.arena, 6_GiB);
  EXPECT_LT(budget.arena, 8_GiB);
  EXPECT_THAT(budget.arena_reason, HasSubstr("RLIMIT_AS (ulimit -v) is 19.0 GiB"));
  ASSERT_EQ(budget.warnings.size(), 1u);
  EXPECT_THAT(budget.warnings[0], AllOf(HasSubstr("instead of 1.00 TiB"),
                                        HasSubstr("RLIMIT_AS (ulimit -v) is 19.0 GiB")));
}

TEST(HoldToLimits, LowersWhatTheMachineWouldAllowToWhatFitsTheLimits) {
  const auto held = limited_budget("auto", limited_machine((19_GiB).count(), topology::kUnlimited));
  EXPECT_LT(held.budget + held.arena, 16_GiB);
  EXPECT_GE(held.arena, held.budget);
  EXPECT_THAT(held.origin, HasSubstr("lowered to what the limits of the process leave"));
  const auto data = limited_budget("auto", limited_machine(topology::kUnlimited, (5_GiB).count()));
  EXPECT_EQ(data.budget, 1_GiB);
  ASSERT_EQ(data.warnings.size(), 1u);
  EXPECT_THAT(data.warnings[0], HasSubstr("RLIMIT_DATA (ulimit -d) is 5.00 GiB"));
}

TEST(HoldToLimits, LeavesRoomForTheMemoryBeforeTheDisks) {
  Settings settings = settings_with("760MiB");
  const auto text_of = [&](const topology::Machine& machine) -> std::string {
    ResolvedBudget result = resolve_budget(settings, machine);
    try {
      hold_to_limits(result, settings, machine);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto addresses = limited_machine((5_GiB).count(), topology::kUnlimited);
  const auto data = limited_machine(topology::kUnlimited, (1_GiB).count() + (1520_MiB).count());
  EXPECT_EQ(text_of(addresses), "accepted");
  EXPECT_EQ(text_of(data), "accepted");
  assign_setting(settings, "nvme", "ram:320MiB", "test");
  for (const topology::Machine& machine : {addresses, data})
    EXPECT_THAT(text_of(machine), AllOf(HasSubstr("320 MiB of these for memory before the disks"),
                                        HasSubstr("at most 600MiB")));
}

TEST(HoldToLimits, RefusesASizeThatCannotFitWithTheLargestThatDoes) {
  const auto machine = limited_machine((5_GiB).count(), (5_GiB).count());
  try {
    limited_budget("3GiB", machine);
    ADD_FAILURE() << "accepted";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("RLIMIT_DATA (ulimit -d) is 5.00 GiB"),
                                    HasSubstr("at most 2048MiB")));
  }
  try {
    limited_budget("1GiB", machine);
    ADD_FAILURE() << "accepted";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("RLIMIT_AS (ulimit -v) is 5.00 GiB"), HasSubstr("at most 760MiB")));
  }
  EXPECT_EQ(limited_budget("760MiB", machine).arena, 760_MiB);
}

}  // namespace
}  // namespace spillway::runtime
