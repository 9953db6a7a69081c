// The conformance suite on what a user of a GPU gets, with pages in the memory of that device.
#include "pages_cases.h"
#include "spill_store_conformance.h"
#include "spillway/swap/spill_store_factory.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

/// A third on disk, behind host memory. What of that stages pages holds none.
struct DeviceProductFixture {
  std::shared_ptr<device::Device> device = why_not().empty() ? open_paged_device() : nullptr;
  TemporaryDirectory directory;

  std::string why_not() const { return why_no_device(); }
  DevicePatternPages pages(std::size_t count) const { return {device, count}; }
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    const std::size_t on_disk = extents / 3;
    const std::size_t in_memory = extents - on_disk;
    SpillStoreOptions options;
    options.directories = {{directory.path(), Bytes(on_disk * kExtentBytes)}};
    options.queue_depth = depth;
    options.verify = true;
    options.host_tier = Bytes(in_memory * 4 / 3 * kExtentBytes);
    options.device = device;
    return make_spill_store(options).store;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Device, SpillStoreConformance, DeviceProductFixture);

}  // namespace
}  // namespace spillway::swap
