// What the pages of a GPU ask of the driver, and what they make of its refusals, on the emulated
// CUDA. Its settings are read once a process, so cases that change them are processes of their own.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::memory {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Bytes kPage = 64_KiB;

/// Nobody reports accesses.
class NoSink final : public AccessSink {
  void begin_access(PageIndex, Access) override { ADD_FAILURE(); }
  TrapEnd serve_access(PageIndex, Access, const std::function<bool()>&) override {
    ADD_FAILURE();
    return TrapEnd::kServed;
  }
};

/// Eight pages and four slots of the first GPU.
class Pages {
 public:
  Pages() { memory_->reserve(8, 4, sink_); }
  PageMemory* operator->() const { return memory_.get(); }
  device::Device& device() const { return *device_; }
  void admit(device::DeviceId peer) const { admit_peer(*memory_, peer); }

 private:
  std::shared_ptr<device::Device> device_ =
      device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
  NoSink sink_;
  std::unique_ptr<PageMemory> memory_ = make_cuda_pages(device_, kPage);
};

class CudaPageCalls : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// Ends the process with 0 where `program` finds nothing wrong.
template <class Program>
[[noreturn]] void run_with(const char* name, const char* value, Program program) {
  ::setenv(name, value, 1);
  program();
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

#define EXPECT_HOLDS_WITH(name, value, program) \
  EXPECT_EXIT(run_with(name, value, program), testing::ExitedWithCode(0), "")

TEST_F(CudaPageCalls, AFrameIsMemoryOfTheDeviceFromItsFirstToItsLastDay) {
  const std::size_t before = emu_cuda_used(0);
  {
    const Pages pages;
    EXPECT_EQ(emu_cuda_used(0), before) << "addresses are none";
    pages->make_frame(SlotId(0));
    pages->make_frame(SlotId(1));
    pages->make_frame(SlotId(2));
    EXPECT_EQ(emu_cuda_used(0), before + 3 * kPage.count());
    pages->map(7, SlotId(0), Access::kWrite);
    pages->map(3, SlotId(1), Access::kWrite);
    EXPECT_EQ(emu_cuda_used(0), before + 3 * kPage.count());
    ASSERT_EQ(pages->unmap(SlotId(0), 3), MoveResult::kMoved);
    pages->drop_frame(SlotId(0));
    EXPECT_EQ(emu_cuda_used(0), before + 2 * kPage.count());
  }
  EXPECT_EQ(emu_cuda_used(0), before) << "mapped or at rest";
}

TEST_F(CudaPageCalls, MovingAFrameMakesNoneAndWaitsForNothing) {
  constexpr const char* kOnes[] = {"cuMemMap", "cuMemSetAccess", "cuMemUnmap"};
  constexpr const char* kNone[] = {"cuMemCreate",           "cuMemRelease", "cudaDeviceSynchronize",
                                   "cudaStreamSynchronize", "cudaFree",     "cudaEventSynchronize"};
  const Pages pages;
  pages->make_frame(SlotId(0));
  std::map<std::string, unsigned long long> before;
  for (const char* name : kOnes) before[name] = emu_cuda_calls(name);
  for (const char* name : kNone) before[name] = emu_cuda_calls(name);
  pages->map(2, SlotId(0), Access::kRead);
  ASSERT_EQ(pages->unmap(SlotId(1), 2), MoveResult::kMoved);
  for (const char* name : kOnes) EXPECT_EQ(emu_cuda_calls(name), before[name] + 1) << name;
  for (const char* name : kNone) EXPECT_EQ(emu_cuda_calls(name), before[name]) << name;
}

/// Fills a frame at its alias, and reads it at the page above it.
void use_at_both(bool waits) {
  const Pages pages;
  const auto in = pages.device().make_queue("in");
  const auto trainer = pages.device().make_queue("trainer");
  std::vector<char> bytes(kPage.count(), 7);
  pages->make_frame(SlotId(0));
  in->copy(pages->span_of(SlotId(0)), device::host_span_of_all(bytes));
  pages->map(3, SlotId(0), Access::kRead);
  if (waits) trainer->wait(in->record());
  trainer->copy(device::host_span_of_all(bytes), pages->span_of(PageIndex(3)));
  EXPECT_EQ(trainer->record().wait().error, "");
  EXPECT_EQ(bytes, std::vector<char>(kPage.count(), 7));
}

TEST_F(CudaPageCalls, WhoUsesAPageWaitsForWhatFilledItsFrame) {
  use_at_both(/*waits=*/true);
  EXPECT_DEATH(use_at_both(/*waits=*/false),
               "not ordered: 'copy, device to host' on .* that 'copy, host to device' on .* wrote "
               "at 0x");
}

TEST_F(CudaPageCalls, ADeviceThatIsFullRefusesAFrameAndNothingHasChanged) {
  EXPECT_HOLDS_WITH("EMU_CUDA_MEMORY", "128KiB", [] {
    const Pages pages;
    pages->make_frame(SlotId(0));
    pages->make_frame(SlotId(1));
    GoldenPart().add(error_text([&] { pages->make_frame(SlotId(2)); }));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "LibTorch would take it for its own";
    pages->drop_frame(SlotId(0));
    pages->make_frame(SlotId(2));
    pages->map(0, SlotId(2), Access::kWrite);
  });
}

TEST_F(CudaPageCalls, ADeviceWithoutVirtualMemoryIsRefusedWithTheWayToMendIt) {
  EXPECT_HOLDS_WITH("EMU_CUDA_VIRTUAL", "0", [] {
    GoldenPart().add(error_text<UnsupportedError>([] { const Pages pages; }));
  });
}

/// Its threads may move pages when CUDA has ended by its own function at exit.
TEST_F(CudaPageCalls, OnADeviceThatIsLostOrHasEndedFramesMoveWithoutAWord) {
  const auto move_frames = [](const std::function<void()>& lose) {
    const Pages pages;
    pages->make_frame(SlotId(0));
    pages->make_frame(SlotId(1));
    pages->map(0, SlotId(0), Access::kWrite);
    lose();
    pages->map(1, SlotId(1), Access::kWrite);
    EXPECT_EQ(pages->unmap(SlotId(0), 0), MoveResult::kMoved);
    EXPECT_EQ(pages->unmap(SlotId(1), 1), MoveResult::kMoved);
    EXPECT_THAT([&] { pages->make_frame(SlotId(2)); },
                ThrowsMessage<Error>(HasSubstr("device cuda:0 is lost to this process")));
  };
  EXPECT_HOLDS_WITH("EMU_CUDA_DEVICES", "1",
                    [&] { move_frames([] { emu_cuda_lose(0, cudaErrorIllegalAddress); }); });
  EXPECT_HOLDS_WITH("EMU_CUDA_DEVICES", "1", [&] { move_frames(&emu_cuda_deinitialize); });
}

TEST_F(CudaPageCalls, KernelsOfAPeerReachThePagesOnceItIsAdmitted) {
  const auto program = [](bool is_admitted) {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const Pages pages;
    for (std::uint32_t i = 0; i < 3; ++i) pages->make_frame(SlotId(i));
    pages->map(0, SlotId(0), Access::kWrite);
    if (is_admitted) pages.admit({device::DeviceKind::kCuda, 1});
    pages->map(1, SlotId(1), Access::kWrite);
    pages->prepare_map(2, SlotId(2));
    pages->map(2, SlotId(2), Access::kWrite);
    for (PageIndex page = 0; page < 3; ++page) {
      emu_cuda_begin(stream);
      emu_cuda_use(stream, pages->span_of(page).data, kPage.count(), 1, "a kernel");
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  };
  EXPECT_HOLDS_WITH("EMU_CUDA_DEVICES", "2", [&] { program(true); });
  EXPECT_DEATH(run_with("EMU_CUDA_DEVICES", "2", [&] { program(false); }),
               "'a kernel' of device 1 uses memory at .* access to other devices alone");
}

/// Sets all of a page by a copy, which ends before this does.
void fill(Pages& pages, device::DeviceSpan span, unsigned char value) {
  std::vector<std::byte> bytes(span.size.count(), std::byte{value});
  const auto queue = pages.device().make_queue("test");
  queue->copy(span, device::host_span(bytes.data(), span.size));
  EXPECT_EQ(queue->record().wait().error, "");
}

unsigned value_of(Pages& pages, device::DeviceSpan span) {
  std::vector<std::byte> bytes(span.size.count());
  const auto queue = pages.device().make_queue("test");
  queue->copy(device::host_span(bytes.data(), span.size), span);
  EXPECT_EQ(queue->record().wait().error, "");
  for (const std::byte byte : bytes) EXPECT_EQ(byte, bytes.front());
  return std::to_integer<unsigned>(bytes.front());
}

TEST_F(CudaPageCalls, PagesThatEndAndBeginAnewTakeNone) {
  Pages pages;
  for (std::uint32_t i = 0; i < 4; ++i) pages->make_frame(SlotId(i));
  for (std::uint32_t i = 0; i < 4; ++i) pages->map_fresh(i, SlotId(i));
  const auto maps = emu_cuda_calls("cuMemMap");
  const auto unmaps = emu_cuda_calls("cuMemUnmap");
  // In another order, so that each slot has another page's frame.
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 4; ++i)
      ASSERT_EQ(pages->unmap_ended(SlotId(3 - i), i), MoveResult::kMoved);
    for (std::uint32_t i = 0; i < 4; ++i) pages->map_fresh(i, SlotId((i + round) % 4));
    for (std::uint32_t i = 0; i < 4; ++i) fill(pages, pages->span_of(PageIndex{i}), i + round);
    for (std::uint32_t i = 0; i < 4; ++i)
      EXPECT_EQ(value_of(pages, pages->span_of(PageIndex{i})), i + round);
  }
  EXPECT_EQ(emu_cuda_calls("cuMemMap"), maps);
  EXPECT_EQ(emu_cuda_calls("cuMemUnmap"), unmaps);
}

TEST_F(CudaPageCalls, APreparedPageArrivesWithoutACallAndMayEndInstead) {
  Pages pages;
  pages->make_frame(SlotId(0));
  fill(pages, pages->span_of(SlotId(0)), 5);
  pages->prepare_map(2, SlotId(0));
  const auto maps = emu_cuda_calls("cuMemMap");
  pages->map(2, SlotId(0), Access::kRead);
  EXPECT_EQ(emu_cuda_calls("cuMemMap"), maps);
  EXPECT_EQ(value_of(pages, pages->span_of(PageIndex(2))), 5U);
  ASSERT_EQ(pages->unmap(SlotId(1), 2), MoveResult::kMoved);
  pages->prepare_map(2, SlotId(1));
  pages->map(3, SlotId(1), Access::kRead);  // As page 2 has ended.
  EXPECT_EQ(value_of(pages, pages->span_of(PageIndex(3))), 5U);
}

/// Against a model: each page that is there has the bytes that it was filled with last, whatever
/// ended meanwhile, and pages that are out lie beneath no address.
TEST_F(CudaPageCalls, PagesKeepTheirBytesWhateverEndsBesideThem) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  Pages pages;
  constexpr std::uint32_t kPages = 8;
  std::vector<SlotId> full;
  std::vector<SlotId> empty;
  for (std::uint32_t i = 0; i < 4; ++i) {
    pages->make_frame(SlotId(i));
    full.push_back(SlotId(i));
  }
  std::array<std::optional<unsigned>, kPages> model;
  for (int turn = 0; turn < 400; ++turn) {
    const std::uint32_t page = below(kPages);
    const auto value = static_cast<unsigned char>(1 + turn % 200);
    if (model[page]) {
      EXPECT_EQ(value_of(pages, pages->span_of(PageIndex{page})), *model[page]);
      const SlotId slot = empty.back();
      empty.pop_back();
      ASSERT_EQ(below(2) == 0 ? pages->unmap(slot, page) : pages->unmap_ended(slot, page),
                MoveResult::kMoved);
      full.push_back(slot);
      model[page].reset();
    } else if (!full.empty()) {
      std::swap(full[below(static_cast<std::uint32_t>(full.size()))], full.back());
      const SlotId slot = full.back();
      full.pop_back();
      if (below(2) == 0) {
        fill(pages, pages->span_of(slot), value);
        if (below(2) == 0) pages->prepare_map(page, slot);
        if (below(8) == 0) {  // The page has ended before it came.
          full.push_back(slot);
          continue;
        }
        pages->map(page, slot, Access::kWrite);
      } else {
        pages->map_fresh(page, slot);
        fill(pages, pages->span_of(PageIndex{page}), value);
      }
      empty.push_back(slot);
      model[page] = value;
    }
    if (below(16) == 0 && !full.empty()) {
      pages->drop_frame(full.back());
      pages->make_frame(full.back());
    }
  }
}

}  // namespace
}  // namespace spillway::memory
