// The conformance suite on stores that are made of stores.
#include "spill_store_conformance.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/posix/factory.h"
#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "store/striped/factory.h"
#include "store/verifying/factory.h"
#include "support/fault_store.h"
#include "support/host_memory_before.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

const SteadyClock kClock;

struct VerifyingFixture {
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    return make_verifying_store(
        make_ram_store(Bytes(extents * kExtentBytes), depth, std::make_shared<Notifier>()), "RAM");
  }
};

/// Every transfer fails now and then, none for good.
struct RetryingFixture {
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    auto notifier = std::make_shared<Notifier>();
    auto ram = make_ram_store(Bytes(extents * kExtentBytes), depth, notifier);
    const FaultOptions faults{.seed = 1, .failing = 0.2, .delaying = 0.2, .errors = {EIO, EAGAIN}};
    auto faulty = std::make_unique<FaultStore>(std::move(ram), notifier, faults);
    const RetryOptions patient{.attempts_max = 20, .first_pause = Duration(100)};
    return make_retrying_store(std::move(faulty), notifier, kClock, patient);
  }
};

/// Children of different kind and size.
struct StripedFixture {
  TemporaryDirectory directory;
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    auto notifier = std::make_shared<Notifier>();
    const std::size_t on_disk = extents / 3;
    std::vector<std::unique_ptr<SpillStore>> children;
    children.push_back(make_ram_store(Bytes((extents - on_disk) * kExtentBytes), depth, notifier));
    const SpillDirectory place{directory.path(), Bytes(on_disk * kExtentBytes)};
    children.push_back(make_posix_store(std::make_unique<ExtentFile>(place), depth / 4, notifier));
    return make_striped_store(std::move(children), notifier);
  }
};

/// What a user gets: everything at once, on two directories.
struct ProductFixture {
  TemporaryDirectory first, second;
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    const Bytes half = Bytes(extents / 2 * kExtentBytes);
    SpillStoreOptions options;
    options.directories = {{first.path(), half}, {second.path(), half}};
    options.queue_depth = depth;
    options.verify = true;
    return make_spill_store(options).store;
  }
};

/// Half in host memory; that much is always on its way down.
struct TieredFixture {
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    auto notifier = std::make_shared<Notifier>();
    auto lower = make_ram_store(Bytes(extents / 2 * kExtentBytes), depth, notifier);
    return host_memory_before(std::move(lower), static_cast<std::uint32_t>(extents - extents / 2),
                              notifier);
  }
};

/// As `ram:SIZE,DIR` has it.
struct TieredProductFixture {
  TemporaryDirectory directory;
  std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth) {
    SpillStoreOptions options;
    options.directories = {{directory.path(), Bytes(extents / 3 * kExtentBytes)}};
    options.queue_depth = depth;
    options.verify = true;
    options.host_tier = Bytes((extents - extents / 3) * kExtentBytes);
    return make_spill_store(options).store;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Verifying, SpillStoreConformance, VerifyingFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Retrying, SpillStoreConformance, RetryingFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Striped, SpillStoreConformance, StripedFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Product, SpillStoreConformance, ProductFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(Tiered, SpillStoreConformance, TieredFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(TieredProduct, SpillStoreConformance, TieredProductFixture);

}  // namespace
}  // namespace spillway::swap
