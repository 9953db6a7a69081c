// Limits of the process that an engine meets after its start.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <vector>

#include "mapper_cases.h"
#include "spillway/base/error.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "support/failing_calls.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

class SwapEngineLimits : public MapperTest {
 protected:
  static std::unique_ptr<SwapEngine> make_engine(const SwapEngineOptions& options) {
    static const SteadyClock clock;
    SpillStoreOptions store;
    store.kind = StoreKind::kRam;
    store.ram_capacity = 64_MiB;
    return std::make_unique<SwapEngine>(options, memory::make_host_pages(GetParam()),
                                        make_spill_store(store).store, clock);
  }
};

bool limit_writable_memory_to_what_is_in_use_and(Bytes more) {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int i = 0; i < 6; ++i) file >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more.count();
  const rlimit64 limit{bytes, bytes};
  return ::syscall(SYS_prlimit64, 0, RLIMIT_DATA, &limit, nullptr) == 0;
}

TEST_P(SwapEngineLimits, RefuseAddressesByNameAndLeaveTheEngineAsItWas) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer itself cannot go on under such a limit";
  if (GetParam() == memory::MapperKind::kSignal || GetParam() == memory::MapperKind::kCopy)
    GTEST_SKIP() << "empty pages do not count as writable";
  const ChildOutcome outcome = run_with_failing_calls({{SYS_acct, EPERM}}, [] {
    SwapEngineOptions options;
    options.budget = 8_MiB;
    const auto engine = make_engine(options);
    if (!limit_writable_memory_to_what_is_in_use_and(256_MiB)) return false;
    std::vector<StorageId> ranges;
    try {
      while (ranges.size() < 10) ranges.push_back(engine->allocate_unfilled(64_MiB).storage);
      return false;
    } catch (const UnsupportedError& error) {
      const std::string text = error.what();
      if (text.find("RLIMIT_DATA (ulimit -d) is ") == std::string::npos) return false;
    }
    if (ranges.size() < 2) return false;
    for (int i = 0; i < 3; ++i) {
      engine->release(ranges.back());
      const auto again = engine->allocate_unfilled(64_MiB);
      again.address[5] = std::byte{42};
      ranges.back() = again.storage;
      if (again.address[5] != std::byte{42}) return false;
    }
    return true;
  });
  if (outcome == ChildOutcome::kCannotFilter)
    GTEST_SKIP() << "filters of system calls cannot be installed";
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

TEST_P(SwapEngineLimits, OfItsOwnAddressesAreToldWithWhatMadeThemSoFew) {
  SwapEngineOptions options;
  options.budget = 8_MiB;
  options.arena_size = 16_MiB;
  options.arena_reason = "; the limit of the day is 16.0 MiB";
  const auto engine = make_engine(options);
  const auto held = engine->allocate_unfilled(12_MiB);
  const auto refusal_of = [&](Bytes size) -> std::string {
    try {
      engine->allocate_unfilled(size);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal_of(6_MiB),
            "no 6.00 MiB of addresses in one piece are left of the 16.0 MiB that are reserved for "
            "tensors, of which 12.0 MiB are in use; the limit of the day is 16.0 MiB");
  EXPECT_NE(refusal_of(1024_TiB), "accepted");
  engine->release(held.storage);
  EXPECT_EQ(refusal_of(6_MiB), "accepted");
}

INSTANTIATE_TEST_SUITE_P(Mappers, SwapEngineLimits, all_mappers(), mapper_case);

}  // namespace
}  // namespace spillway::swap
