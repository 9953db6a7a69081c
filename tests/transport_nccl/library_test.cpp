// Which NCCL is taken, and why none is. LD_LIBRARY_PATH names a folder where it is no library.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "library.h"
#include "spillway/transport/nccl/nccl_transport.h"
#include "support/golden_part.h"

namespace spillway::transport {
namespace {

constexpr const char* kMend =
    "LibTorch for CUDA brings one (the package nvidia-nccl-cu13): put its folder into "
    "LD_LIBRARY_PATH";

TEST(NcclFacts, SayThatThereIsNone) {
  const NcclFacts facts = nccl_facts();
  GoldenPart golden;
  golden.mask(std::regex("cannot be loaded \\([^()]*\\)"), "cannot be loaded (REASON)");
  golden.add(facts.reason);
  EXPECT_EQ(facts.version, "");
}

TEST(NcclFacts, SayThatItIsTooOld) {
  const NcclFacts facts = nccl_facts(SPILLWAY_NCCL_OLD);
  EXPECT_EQ(facts.reason, message("{} is NCCL 2.13.4, and 2.14.0 or later is needed: {}",
                                  SPILLWAY_NCCL_OLD, kMend));
  EXPECT_EQ(facts.version, "");
}

TEST(NcclFacts, SayThatItIsSomethingElse) {
  EXPECT_EQ(nccl_facts(SPILLWAY_NO_NCCL).reason,
            message("{} is no NCCL: it does not tell its version", SPILLWAY_NO_NCCL));
}

TEST(NcclFacts, SayWhatAnIncompleteOneLacks) {
  EXPECT_EQ(
      nccl_facts(SPILLWAY_NCCL_EMPTY).reason,
      message("{} is NCCL 2.28.9 and has no ncclGetUniqueId: {}", SPILLWAY_NCCL_EMPTY, kMend));
}

// The trainer's is taken before another one is looked for.
TEST(NcclFacts, TellOfTheOneThatIsLoaded) {
  void* const loaded = ::dlopen(SPILLWAY_NCCL_LOADED, RTLD_NOW);
  ASSERT_NE(loaded, nullptr) << ::dlerror();
  const NcclFacts facts = nccl_facts();
  EXPECT_EQ(facts.library, SPILLWAY_NCCL_LOADED);
  EXPECT_EQ(facts.reason, message("{} is NCCL 2.13.4, and 2.14.0 or later is needed: {}",
                                  SPILLWAY_NCCL_LOADED, kMend));
  ::dlclose(loaded);
}

TEST(NcclFacts, ReadOldAndNewNumbersOfReleases) {
  EXPECT_EQ(nccl::release_of(2708), "2.7.8");
  EXPECT_EQ(nccl::release_of(22809), "2.28.9");
}

}  // namespace
}  // namespace spillway::transport
