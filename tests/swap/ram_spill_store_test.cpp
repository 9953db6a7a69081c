#include "spill_store_conformance.h"
#include "store/ram/factory.h"

namespace spillway::swap {
namespace {

struct RamFixture {
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    return make_ram_store(Bytes(extents * kExtentBytes), depth, std::make_shared<Notifier>());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ram, SpillStoreConformance, RamFixture);

}  // namespace
}  // namespace spillway::swap
