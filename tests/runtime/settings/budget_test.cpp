#include "spillway/runtime/settings/budget.h"

#include <gmock/gmock.h>

#include <utility>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::runtime {
namespace {

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
  return error_text<ConfigError>([&] { resolve_budget(settings, machine); });
}

TEST(DefaultReserve, GrowsWithTheMemory) {
  EXPECT_EQ(default_reserve(1_GiB), 512_MiB);
  EXPECT_EQ(default_reserve(100_GiB), 8_GiB);
}

TEST(ResolveBudget, LeavesTheReserveByDefault) {
  GoldenPart golden;
  const auto budget = resolve_budget(Settings{}, machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 4_GiB - 512_MiB);
  golden.add(budget.origin);
  EXPECT_TRUE(budget.warnings.empty());
}

TEST(ResolveBudget, RespectsACgroup) {
  GoldenPart golden;
  auto machine = machine_with(64_GiB, 60_GiB);
  machine.memory.limits = {{"/sys/fs/cgroup/job/memory.max", 3_GiB, 1_GiB}};
  const auto budget = resolve_budget(Settings{}, machine);
  EXPECT_EQ(budget.budget, 2_GiB - 512_MiB);
  golden.add(budget.origin);
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
  GoldenPart golden;
  Settings settings;
  assign_setting(settings, "nvme", "ram:1GiB", "test");
  const auto budget = resolve_budget(settings, machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 3_GiB - 512_MiB);
  golden.add(budget.origin);
  assign_setting(settings, "budget", "50%", "test");
  EXPECT_EQ(resolve_budget(settings, machine_with(16_GiB, 4608_MiB)).budget, 1536_MiB);
  EXPECT_EQ(resolve_budget(settings, machine_with(16_GiB, 9_GiB), 2).budget, 1536_MiB)
      << "each rank has its own";
}

TEST(ResolveBudget, RefusesMemoryBeforeTheDisksThatIsNotThere) {
  GoldenPart golden;
  Settings settings = settings_with("1GiB");
  assign_setting(settings, "nvme", "ram:5GiB", "test");
  golden.add(refusal_of(settings, machine_with(16_GiB, 4_GiB)));
  EXPECT_EQ(refusal_of(settings, machine_with(16_GiB, 8_GiB)), "accepted");
  assign_setting(settings, "nvme", "ram:3800MiB", "test");
  assign_setting(settings, "budget", "auto", "test");
  golden.add(refusal_of(settings, machine_with(16_GiB, 4_GiB)));
}

TEST(ResolveBudget, WarnsWhereBudgetAndMemoryBeforeTheDisksAreTooMuch) {
  GoldenPart golden;
  Settings settings = settings_with("3GiB");
  assign_setting(settings, "nvme", "ram:2GiB", "test");
  const auto warnings = resolve_budget(settings, machine_with(16_GiB, 4_GiB)).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  golden.add(warnings[0]);
  EXPECT_TRUE(resolve_budget(settings, machine_with(16_GiB, 6_GiB)).warnings.empty());
}

TEST(ResolveBudget, SharesTheMachineAmongTheRanksOnIt) {
  GoldenPart golden;
  const auto budget = resolve_budget(Settings{}, machine_with(16_GiB, 8_GiB), 4);
  EXPECT_EQ(budget.budget, 2_GiB - 512_MiB);
  golden.add(budget.origin);
  EXPECT_EQ(resolve_budget(settings_with("3GiB"), machine_with(16_GiB, 8_GiB), 4).budget, 3_GiB);
}

TEST(ResolveBudget, TakesASizeAsItIs) {
  const auto budget = resolve_budget(settings_with("3GiB"), machine_with(16_GiB, 4_GiB));
  EXPECT_EQ(budget.budget, 3_GiB);
  EXPECT_TRUE(budget.warnings.empty());
}

TEST(ResolveBudget, WarnsOfMoreThanThereIs) {
  GoldenPart golden;
  const auto machine = machine_with(16_GiB, 4_GiB);
  const auto beyond_machine = resolve_budget(settings_with("32GiB"), machine);
  ASSERT_EQ(beyond_machine.warnings.size(), 1u);
  golden.add(beyond_machine.warnings[0]);
  const auto beyond_usable = resolve_budget(settings_with("8GiB"), machine);
  ASSERT_EQ(beyond_usable.warnings.size(), 1u);
  golden.add(beyond_usable.warnings[0]);
}

TEST(ResolveBudget, RefusesLessThanTwoPages) {
  GoldenPart golden;
  golden.add(refusal_of(settings_with("1MiB"), machine_with(16_GiB, 4_GiB)));
  golden.add(refusal_of(settings_with("0.01%"), machine_with(16_GiB, 4_GiB)));
}

TEST(ResolveBudget, RefusesAutoWhenTheReserveTakesEverything) {
  GoldenPart golden;
  golden.add(refusal_of(Settings{}, machine_with(16_GiB, 256_MiB)));
}

TEST(ResolveBudget, AsksForASizeWhenTheMachineTellsNothing) {
  GoldenPart golden;
  golden.add(refusal_of(Settings{}, {}));
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
  GoldenPart golden;
  const auto budget = held_budget("auto", large_machine(), memory::MapperKind::kSignal);
  EXPECT_EQ(budget.budget, 40956_MiB);
  golden.add(budget.origin);
  ASSERT_EQ(budget.warnings.size(), 1u);
  golden.add(budget.warnings[0]);
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
  GoldenPart golden;
  for (auto [budget, mappings] : {std::pair("41GiB", 65530), std::pair("auto", 4097)}) {
    auto machine = large_machine();
    machine.kernel.mappings_max = mappings;
    golden.add(error_text<UnsupportedError>(
        [&] { held_budget(budget, machine, memory::MapperKind::kSignal); }));
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
  GoldenPart golden;
  const auto machine = limited_machine((19_GiB).count(), topology::kUnlimited);
  const auto budget = limited_budget("24MiB", machine);
  EXPECT_EQ(budget.budget, 24_MiB);
  EXPECT_GT(budget.arena, 6_GiB);
  EXPECT_LT(budget.arena, 8_GiB);
  golden.add(budget.arena_reason);
  ASSERT_EQ(budget.warnings.size(), 1u);
  golden.add(budget.warnings[0]);
  golden.add(budget.arena_reason);
}

TEST(HoldToLimits, LowersWhatTheMachineWouldAllowToWhatFitsTheLimits) {
  GoldenPart golden;
  const auto held = limited_budget("auto", limited_machine((19_GiB).count(), topology::kUnlimited));
  EXPECT_LT(held.budget + held.arena, 16_GiB);
  EXPECT_GE(held.arena, 2 * held.budget);  // Else nothing could be on disk.
  golden.add(held.origin);
  const auto data = limited_budget("auto", limited_machine(topology::kUnlimited, (5_GiB).count()));
  EXPECT_EQ(data.budget, 1_GiB);
  ASSERT_EQ(data.warnings.size(), 1u);
  golden.add(data.warnings[0]);
}

/// What it names leaves more, and a page more does not; the least leaves as much as it tells.
TEST(HoldToLimits, NamesTheSmallerBudgetThatLeavesMoreAddresses) {
  const Bytes usable = 8_GiB;
  const auto machine = limited_machine((3_GiB + 528_MiB + usable).count(), topology::kUnlimited);
  const auto of = [&](const std::string& budget) { return limited_budget(budget, machine); };
  // Half of the addresses less the budget are reserved, or as many as it has where that is more.
  EXPECT_EQ(of("1GiB").arena, 3_GiB);
  EXPECT_EQ(of("1GiB").arena_advice,
            "a budget of at most 1022MiB leaves more addresses, up to 4.00 GiB");
  EXPECT_EQ(of("1022MiB").arena, 3_GiB + 2_MiB);
  EXPECT_EQ(of("3GiB").arena, 3_GiB);
  EXPECT_EQ(of("3GiB").arena_advice, of("1GiB").arena_advice);
  EXPECT_EQ(of("1GiB").why_no_addresses(),
            of("1GiB").arena_reason + "; " + of("1GiB").arena_advice);
  for (const char* budget : {"24MiB", "4GiB"}) {  // Little more, and none at all.
    EXPECT_EQ(of(budget).arena_advice, "");
    EXPECT_EQ(of(budget).why_no_addresses(), of(budget).arena_reason);
  }
  EXPECT_EQ(limited_budget("1GiB", machine_with(32_GiB, 24_GiB)).why_no_addresses(), "");
}

/// Those up to half of the addresses used to stay, with as many addresses as bytes in memory.
TEST(HoldToLimits, LeavesThreeTimesADerivedBudgetToTensorsOnDisk) {
  constexpr Bytes kBudget = 4_GiB;
  constexpr Bytes kPage = Bytes(memory::kPageBytes);
  Settings settings = settings_with("auto");
  settings.reserve = 20_GiB;
  const auto held = [&](Bytes usable) {
    const Bytes limit = 3_GiB + 528_MiB + usable;  // In use, and beside tensors.
    const auto machine = limited_machine(limit.count(), topology::kUnlimited);
    ResolvedBudget result = resolve_budget(settings, machine);
    EXPECT_EQ(result.budget, kBudget);
    hold_to_limits(result, settings, machine);
    EXPECT_GE(result.arena, 3 * result.budget);
    return result.budget;
  };
  EXPECT_EQ(held(8 * (kBudget + kPage)), kBudget);
  EXPECT_EQ(held(8 * kBudget), kBudget);
  EXPECT_EQ(held(8 * (kBudget - kPage)), kBudget - kPage);
  for (const Bytes border : {2 * kBudget - kPage, 2 * kBudget, 2 * kBudget + kPage})
    EXPECT_EQ(held(border), border / (8 * kPage) * kPage);
  const auto data =
      limited_budget("90%", limited_machine(topology::kUnlimited, (41_GiB).count())).budget;
  EXPECT_EQ(data, 10_GiB);  // A quarter of what is left, not up to half of it.
}

TEST(HoldToLimits, LeavesRoomForTheMemoryBeforeTheDisks) {
  GoldenPart golden;
  Settings settings = settings_with("760MiB");
  const auto text_of = [&](const topology::Machine& machine) -> std::string {
    ResolvedBudget result = resolve_budget(settings, machine);
    return error_text<UnsupportedError>([&] { hold_to_limits(result, settings, machine); });
  };
  const auto addresses = limited_machine((5_GiB).count(), topology::kUnlimited);
  const auto data = limited_machine(topology::kUnlimited, (1_GiB).count() + (1520_MiB).count());
  EXPECT_EQ(text_of(addresses), "accepted");
  EXPECT_EQ(text_of(data), "accepted");
  assign_setting(settings, "nvme", "ram:320MiB", "test");
  for (const topology::Machine& machine : {addresses, data}) golden.add(text_of(machine));
}

TEST(HoldToLimits, RefusesASizeThatCannotFitWithTheLargestThatDoes) {
  GoldenPart golden;
  const auto machine = limited_machine((5_GiB).count(), (5_GiB).count());
  golden.add(error_text<UnsupportedError>([&] { limited_budget("3GiB", machine); }));
  golden.add(error_text<UnsupportedError>([&] { limited_budget("1GiB", machine); }));
  EXPECT_EQ(limited_budget("760MiB", machine).arena, 760_MiB);
  try {
    limited_budget("8MiB", limited_machine((3_GiB).count(), topology::kUnlimited));
    ADD_FAILURE() << "accepted";
  } catch (const UnsupportedError& error) {
    golden.add(error.what());  // No budget helps.
  }
}

}  // namespace
}  // namespace spillway::runtime
