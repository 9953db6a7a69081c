#include "spillway/runtime/settings/device_budget.h"

#include <gmock/gmock.h>

#include <array>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

topology::Machine machine_with(Bytes available) {
  topology::Machine machine;
  machine.memory.total = 256_GiB;
  machine.memory.available = available;
  return machine;
}

DeviceFacts card(Bytes total = 16_GiB, Bytes free = 15_GiB) {
  return {{device::DeviceKind::kCuda, 0}, "Fast 16", {total, free}, 2_MiB};
}

Settings settings_with(const std::string& budget, const std::string& nvme = "/scratch") {
  Settings settings;
  assign_setting(settings, "budget", budget, "test");
  assign_setting(settings, "nvme", nvme, "test");
  return settings;
}

template <typename Call>
std::string refusal_of(const Call& call) {
  return error_text<ConfigError>([&] { call(); });
}

std::string refusal_of_budget(const std::string& budget, const DeviceFacts& facts) {
  return refusal_of([&] { resolve_device_budget(settings_with(budget), facts); });
}

HostMemory behind(const Settings& settings, Bytes budget = 8_GiB, Bytes pinned = 0_B,
                  unsigned sharers = 1) {
  return host_memory_behind(card(), settings, machine_with(12_GiB), budget, pinned, sharers);
}

TEST(DefaultDeviceReserve, IsAnEighthOfSmallCards) {
  EXPECT_EQ(default_device_reserve(80_GiB), 1_GiB);
  EXPECT_EQ(default_device_reserve(4_GiB), 512_MiB);
}

TEST(ResolveDeviceBudget, SharesOutACardOfSeveralRanks) {
  GoldenPart golden;
  DeviceFacts facts = card();
  facts.sharing = sharing_of_card(3, 8, 1, false);
  const ResolvedBudget whole = resolve_device_budget({}, facts);
  EXPECT_EQ(whole.budget, 15_GiB / 3 - 16_GiB / 3 / 8);
  golden.add(whole.origin);
  EXPECT_THAT(whole.warnings, IsEmpty());
  EXPECT_EQ(resolve_device_budget(settings_with("cuda=50%"), facts).budget / 1_MiB,
            whole.budget / 2_MiB);
  EXPECT_THAT(resolve_device_budget(settings_with("cuda=5GiB"), facts).warnings, IsEmpty());
  const ResolvedBudget too_much = resolve_device_budget(settings_with("cuda=6GiB"), facts);
  EXPECT_EQ(too_much.budget, 6_GiB);
  golden.add(too_much.warnings);
}

TEST(ResolveDeviceBudget, SharesOutCardsOverWhichRanksAreSpreadAlike) {
  GoldenPart golden;
  DeviceFacts facts = card();
  facts.sharing = sharing_of_card(0, 8, 4, true);
  EXPECT_EQ(resolve_device_budget({}, facts).budget, 15_GiB / 2 - 1_GiB);
  golden.add(resolve_device_budget({}, facts).origin);
  EXPECT_THAT(resolve_device_budget({}, facts).warnings, IsEmpty());
  golden.add(resolve_device_budget(settings_with("cuda=9GiB"), facts).warnings);
}

TEST(SharingOfCard, TakesRanksToBeSpreadEvenlyWhereAllSeeTheSame) {
  EXPECT_EQ(sharing_of_card(0, 5, 4, true).ranks, 2u);
  EXPECT_EQ(sharing_of_card(0, 2, 1, true).ranks, 2u);
  EXPECT_EQ(sharing_of_card(0, 4, 4, true).ranks, 1u);
  EXPECT_EQ(sharing_of_card(0, 4, 0, true).ranks, 1u) << "unknown";
  EXPECT_EQ(sharing_of_card(1, 8, 4, true).ranks, 1u) << "counted";
  const CardSharing own = sharing_of_card(0, 8, 1, false);
  EXPECT_EQ(own.ranks, 1u);
  EXPECT_TRUE(own.may_be_shared);
}

TEST(HasShareOf, IsSoUnlessTheDeviceWasGivenASize) {
  const device::DeviceId first{device::DeviceKind::kCuda, 0};
  EXPECT_TRUE(has_share_of({}, first));
  EXPECT_TRUE(has_share_of(settings_with("50%"), first));
  EXPECT_TRUE(has_share_of(settings_with("cpu=4GiB"), first));
  EXPECT_TRUE(has_share_of(settings_with("cuda:1=4GiB"), first));
  EXPECT_FALSE(has_share_of(settings_with("4GiB"), first));
  EXPECT_FALSE(has_share_of(settings_with("cuda=4GiB"), first));
}

TEST(ResolveDeviceBudget, WarnsWhereRanksMayShareACard) {
  GoldenPart golden;
  DeviceFacts facts = card();
  facts.sharing = sharing_of_card(0, 2, 1, false);
  EXPECT_EQ(resolve_device_budget({}, facts).budget, 14_GiB);
  golden.add(resolve_device_budget({}, facts).warnings);
  EXPECT_THAT(resolve_device_budget(settings_with("cuda=5GiB"), facts).warnings, IsEmpty());
}

TEST(ResolveDeviceBudget, LeavesTheReserveByDefault) {
  const ResolvedBudget budget = resolve_device_budget({}, card());
  EXPECT_EQ(budget.budget, 14_GiB);
  EXPECT_EQ(budget.origin, "auto: 15.0 GiB free of 16.0 GiB, less 1.00 GiB reserve");
  EXPECT_THAT(budget.warnings, IsEmpty());
}

TEST(ResolveDeviceBudget, TakesAPercentageOfThat) {
  GoldenPart golden;
  const ResolvedBudget budget = resolve_device_budget(settings_with("50%"), card());
  EXPECT_EQ(budget.budget, 7_GiB);
  golden.add(budget.origin);
}

TEST(ResolveDeviceBudget, TakesASizeAsItIs) {
  const ResolvedBudget budget = resolve_device_budget(settings_with("3GiB"), card());
  EXPECT_EQ(budget.budget, 3_GiB);
  EXPECT_EQ(budget.origin, "given");
  EXPECT_THAT(budget.warnings, IsEmpty());
}

/// As tables of pages are as large then.
TEST(ResolveDeviceBudget, HasAsManyPagesOfAddressesAsTheHost) {
  DeviceFacts facts = card();
  EXPECT_EQ(resolve_device_budget({}, facts).arena, 1_TiB);
  // Eight GPUs have 2^47 bytes of addresses together.
  facts.page_size = 32_MiB;
  EXPECT_EQ(resolve_device_budget({}, facts).arena, 2_TiB);
  facts.page_size = 64_KiB;
  EXPECT_EQ(resolve_device_budget({}, facts).arena, 32_GiB);
}

/// It may be meant for the host, which is larger.
TEST(ResolveDeviceBudget, LowersASizeForAllDevicesThatTheCardDoesNotHave) {
  const ResolvedBudget budget = resolve_device_budget(settings_with("64GiB"), card());
  EXPECT_EQ(budget.budget, 14_GiB);
  EXPECT_THAT(budget.warnings,
              ElementsAre("the budget of 64.0 GiB is larger than the memory of cuda:0 (Fast 16), "
                          "16.0 GiB: it is lowered there to 14.0 GiB"));
}

TEST(ResolveDeviceBudget, IsThatOfTheDeviceOrElseOfItsKind) {
  const auto budget_of = [](const std::string& text) {
    return resolve_device_budget(settings_with(text), card()).budget;
  };
  EXPECT_EQ(budget_of("cuda=2GiB,cuda:0=3GiB,cpu=5GiB"), 3_GiB);
  EXPECT_EQ(budget_of("cuda:1=3GiB,cuda=2GiB"), 2_GiB);
  EXPECT_EQ(budget_of("cuda:1=3GiB,cpu=5GiB"), 14_GiB);
  EXPECT_EQ(budget_of("cuda:0=50%"), 7_GiB);
}

TEST(ResolveDeviceBudget, RefusesASizeForGpusThatTheCardDoesNotHave) {
  GoldenPart golden;
  EXPECT_EQ(
      refusal_of_budget("cuda:0=17GiB", card()),
      "the budget cuda:0=17.0 GiB is larger than the memory of cuda:0 (Fast 16), 16.0 GiB "
      "(give less, or cuda:0=auto; a size without a device is lowered on a GPU that has less)");
  golden.add(refusal_of_budget("cuda=64GiB", card()));
}

TEST(NeedlessBudgets, AreThoseOfDevicesThatNobodyUses) {
  const std::array used{device::DeviceId{device::DeviceKind::kCuda, 0}};
  const auto needless = [&](const std::string& text) {
    return needless_budgets(settings_with(text), used);
  };
  EXPECT_THAT(needless("cuda:0=2GiB,cuda:1=1GiB,cuda=1GiB,cpu=4GiB"), ElementsAre("cuda:1"));
  EXPECT_THAT(needless("4GiB"), IsEmpty());
  EXPECT_THAT(needless_budgets(settings_with("cuda=1GiB,cpu=4GiB"), {}), ElementsAre("cuda"));
}

TEST(ResolveDeviceBudget, WarnsWhereOthersHoldTheMemory) {
  GoldenPart golden;
  const ResolvedBudget budget = resolve_device_budget(settings_with("8GiB"), card(16_GiB, 5_GiB));
  EXPECT_EQ(budget.budget, 8_GiB);
  golden.add(budget.warnings);
}

TEST(ResolveDeviceBudget, RefusesWhatIsTooLittle) {
  GoldenPart golden;
  golden.add(refusal_of_budget("3MiB", card()));
  golden.add(refusal_of_budget("auto", card(16_GiB, 1_GiB)));
}

std::string refusal_before_start(const std::string& budget, Bytes min_storage) {
  Settings settings = settings_with(budget);
  settings.device_min_storage = min_storage;
  return error_text<ConfigError>([&] { check_device_budgets(settings); });
}

TEST(CheckDeviceBudgets, RefusesWhatIsTooLittleForAnyGpu) {
  GoldenPart golden;
  EXPECT_EQ(refusal_before_start("cuda=7MiB,cpu=1GiB", 2_MiB),
            "a budget of 7.00 MiB is too small for cuda: tensors move in pages of 4.00 MiB, so "
            "8.00 MiB is the least of any, and a trainer needs what its largest operator holds "
            "(give more with --budget cuda=SIZE)");
  for (const char* budget : {"cuda=8MiB", "cuda=auto", "cpu=5MiB,cuda=1GiB", "5MiB"})
    EXPECT_EQ(refusal_before_start(budget, 2_MiB), "accepted");
  EXPECT_EQ(refusal_before_start("cuda=128KiB", 32_KiB), "accepted");
  // What makes it too small is the other option.
  golden.add(refusal_before_start("cuda:1=40MiB", 100_GiB));
}

TEST(CheckNamedGpus, RefusesABudgetOfOneThatIsNotThere) {
  GoldenPart golden;
  const auto refusal = [](const char* budget, std::size_t gpus) {
    return refusal_of([&] { check_named_gpus(settings_with(budget), gpus); });
  };
  golden.add(refusal("cuda=4GiB,cuda:5=4GiB", 2));
  EXPECT_EQ(refusal("cuda=4GiB,cuda:1=4GiB,cpu=1GiB", 2), "accepted");
  EXPECT_EQ(refusal("4GiB", 1), "accepted");
}

TEST(HostMemoryBehind, IsAsLargeAsTheBudgetWhereThereIsPlenty) {
  GoldenPart golden;
  const HostMemory memory = behind(settings_with("auto"), 4_GiB);
  EXPECT_EQ(memory.size, 4_GiB);
  golden.add(memory.origin);
}

TEST(HostMemoryBehind, IsHalfOfWhatIsLeftWhereThereIsLess) {
  EXPECT_EQ(behind(settings_with("auto")).size, 6_GiB);
  EXPECT_EQ(behind(settings_with("auto"), 8_GiB, 6_GiB).size, 3_GiB);
  EXPECT_EQ(behind(settings_with("auto"), 8_GiB, 0_B, 4).size, 1536_MiB);
  EXPECT_EQ(behind(settings_with("auto"), 5_MiB).size, 4_MiB);
}

TEST(HostMemoryBehind, IsWhatWasGivenForEachDevice) {
  const HostMemory memory = behind(settings_with("auto", "ram:5GiB,/scratch"), 1_GiB, 6_GiB);
  EXPECT_EQ(memory.size, 5_GiB);
  EXPECT_EQ(memory.origin, "given");
}

TEST(HostMemoryBehind, RefusesMoreThanThereIs) {
  GoldenPart golden;
  golden.add(refusal_of([] { behind(settings_with("auto", "ram:7GiB,/scratch"), 1_GiB, 6_GiB); }));
}

TEST(HostMemoryBehind, RefusesLessThanTwoExtents) {
  GoldenPart golden;
  golden.add(refusal_of([] { behind(settings_with("auto", "ram:2MiB,/scratch")); }));
  golden.add(refusal_of([] { behind(settings_with("auto"), 8_GiB, 12_GiB); }));
}

TEST(HostMemoryBehind, HasToBeGivenWhereTheMachineTellsNothing) {
  GoldenPart golden;
  const auto call = [](const std::string& nvme) {
    return host_memory_behind(card(), settings_with("auto", nvme), {}, 1_GiB, 0_B, 1);
  };
  golden.add(refusal_of([&] { call("/scratch"); }));
  EXPECT_EQ(call("ram:1GiB,/scratch").size, 1_GiB);
}

}  // namespace
}  // namespace spillway::runtime
