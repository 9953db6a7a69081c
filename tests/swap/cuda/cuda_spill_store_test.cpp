// What make_spill_store puts before disks for the pages of a GPU.
#include <gmock/gmock.h>

#include "../pages_cases.h"
#include "spillway/base/error.h"
#include "spillway/swap/spill_store_factory.h"
#include "support/error_text.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

using testing::IsEmpty;

class CudaSpillStore : public PagesTest {
 protected:
  SpillStoreOptions behind(Bytes host_memory) const {
    SpillStoreOptions options;
    options.directories = {{directory_.path(), 64_MiB}};
    options.host_tier = host_memory;
    options.device = running.device;
    return options;
  }

  const TemporaryDirectory directory_;
};

TEST_P(CudaSpillStore, HasPinnedHostMemoryBeforeItsDisks) {
  const OpenedSpillStore opened = make_spill_store(behind(8_MiB));
  EXPECT_EQ(opened.store->device(), running.device->id());
  const std::string_view kBefore = "pinned host memory, 8.00 MiB, before ";
  EXPECT_EQ(opened.description.substr(0, kBefore.size()), kBefore);
  EXPECT_THAT(opened.warnings, IsEmpty());
  EXPECT_EQ(opened.store->report().host.capacity, 6_MiB) << "one slab stages what goes past it";
}

TEST_P(CudaSpillStore, DoesWithoutDisks) {
  SpillStoreOptions options;
  options.kind = StoreKind::kRam;
  options.ram_capacity = 4_MiB;
  options.host_tier = 4_MiB;
  options.device = running.device;
  EXPECT_EQ(make_spill_store(options).store->report().capacity, 6_MiB);
}

TEST_P(CudaSpillStore, IsRefusedWithoutHostMemory) {
  for (const Bytes little : {0_B, 2_MiB})
    EXPECT_EQ(error_text<ConfigError>([&] { make_spill_store(behind(little)); }),
              message("{} of host memory are too little for what leaves cuda:0: 4.00 MiB are the "
                      "least",
                      little));
}

INSTANTIATE_TEST_SUITE_P(Pages, CudaSpillStore, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
