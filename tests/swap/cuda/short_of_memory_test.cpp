// A GPU whose memory others take, on an emulated one that has little: 2 MiB and six pages, and
// 4 MiB of the host that can be pinned.
#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "spillway/swap/swap_errors.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::swap {
namespace {

using testing::IsEmpty;

constexpr Bytes kPage = 64_KiB;

class ShortOfMemory : public testing::Test {
 protected:
  SpillStoreOptions behind(Bytes host_memory) const {
    SpillStoreOptions options;
    options.kind = StoreKind::kRam;
    options.ram_capacity = 128_MiB;
    options.host_tier = host_memory;
    options.device = device_;
    return options;
  }

  std::unique_ptr<SwapEngine> engine() {
    SwapEngineOptions options;
    options.budget = kPage * 12;
    options.arena_size = 1_GiB;
    return std::make_unique<SwapEngine>(options, memory::make_cuda_pages(device_, kPage),
                                        make_spill_store(behind(4_MiB)).store, clock_);
  }

  /// An operator that copies between all of a storage and `bytes`, and has ended.
  void operate(SwapEngine& swap, std::byte* address, std::vector<char>& bytes, bool writes) {
    PinSet pins;
    RangeUse use = swap.find(address);
    use.writes = writes;
    swap.pin(pins, {&use, 1});
    const device::DeviceSpan here = device::host_span_of_all(bytes);
    const device::DeviceSpan there{device_->id(), address, here.size};
    queue_->copy(writes ? there : here, writes ? here : there);
    EXPECT_EQ(queue_->record().wait().error, "");
  }
  void fill(SwapEngine& swap, std::byte* address, char value) {
    std::vector<char> bytes((kPage * 3).count(), value);
    operate(swap, address, bytes, true);
  }
  bool holds(SwapEngine& swap, std::byte* address, char value) {
    std::vector<char> bytes((kPage * 3).count());
    operate(swap, address, bytes, false);
    return bytes == std::vector<char>(bytes.size(), value);
  }

  SteadyClock clock_;
  std::shared_ptr<device::Device> device_ =
      device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
  std::unique_ptr<device::Queue> queue_ = device_->make_queue("trainer");
};

TEST_F(ShortOfMemory, AnEngineDoesWithWhatItGetsOfItsBudgetAndLaterWithMore) {
  std::optional others(device_->allocate(2_MiB));
  ASSERT_EQ(device_->memory().free, kPage * 6);
  auto swap = engine();
  std::vector<std::byte*> storages;
  for (char i = 0; i < 4; ++i) {
    storages.push_back(swap->allocate(kPage * 3, nullptr).address);
    fill(*swap, storages.back(), i);
  }
  for (char i = 0; i < 4; ++i) EXPECT_TRUE(holds(*swap, storages[static_cast<std::size_t>(i)], i));
  EXPECT_EQ(swap->statistics().counted_peak, kPage * 6);
  const std::array uses{swap->find(storages[0]), swap->find(storages[1]), swap->find(storages[2])};
  const auto pin_nine_pages = [&] {
    PinSet pins;
    swap->pin(pins, uses);
    return swap->statistics().counted;
  };
  GoldenPart golden;
  golden.mask(std::regex("beside .* in use"), "beside SIZE in use");
  golden.add(error_text<NoRoomError>(pin_nine_pages));
  others.reset();
  EXPECT_GE(pin_nine_pages(), kPage * 9);
  for (char i = 0; i < 4; ++i) EXPECT_TRUE(holds(*swap, storages[static_cast<std::size_t>(i)], i));
}

TEST_F(ShortOfMemory, AStoreSaysThatItsHostMemoryIsNotPinned) {
  EXPECT_THAT(make_spill_store(behind(4_MiB)).warnings, IsEmpty());
  const OpenedSpillStore opened = make_spill_store(behind(8_MiB));
  GoldenPart().add(opened.warnings);
}

}  // namespace
}  // namespace spillway::swap
