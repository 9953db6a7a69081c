#include "spill_store_conformance.h"
#include "store/io_uring/factory.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

struct IoUringFixture {
  TemporaryDirectory directory;
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    const SpillDirectory place{directory.path(), Bytes(extents * kExtentBytes)};
    return make_io_uring_store(std::make_unique<ExtentFile>(place), depth,
                               std::make_shared<Notifier>());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(IoUring, SpillStoreConformance, IoUringFixture);

}  // namespace
}  // namespace spillway::swap
