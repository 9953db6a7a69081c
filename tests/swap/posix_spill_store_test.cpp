#include "spill_store_conformance.h"
#include "store/posix/factory.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

struct PosixFixture {
  TemporaryDirectory directory;
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    const SpillDirectory place{directory.path(), Bytes(extents * kExtentBytes)};
    return make_posix_store(std::make_unique<ExtentFile>(place), depth,
                            std::make_shared<Notifier>());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Posix, SpillStoreConformance, PosixFixture);

}  // namespace
}  // namespace spillway::swap
