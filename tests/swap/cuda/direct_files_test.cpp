// Pages that an emulated GPU moves between its memory and files itself, past the host: one slab of
// host memory, whose pages are as small as it can map. Each case is a process of its own, as ctest
// runs them: cuFile is opened once in a process, and never again.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "support/emulated_cuda/files/cufile_faults.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"
#include "swap/masked_io.h"

namespace spillway::swap {
namespace {

using device::DirectFiles;

constexpr Bytes kPage = 64_KiB;
constexpr std::size_t kPages = 3;  // Of a storage.

class DirectFilesOfAGpu : public testing::Test {
 protected:
  OpenedSpillStore open(DirectFiles asked = DirectFiles::kOn, bool verify = false,
                        std::size_t directories = 1) const {
    SpillStoreOptions options;
    options.directories.assign(directories, {directory_.path(), 64_MiB});
    options.extent_size = kPage;
    options.host_tier = kPage * 2;
    options.device = device_;
    options.direct = asked;
    options.verify = verify;
    return make_spill_store(options);
  }

  void use(OpenedSpillStore opened) {
    SwapEngineOptions options;
    options.budget = kPage * 9;
    options.arena_size = 1_GiB;
    swap_ = std::make_unique<SwapEngine>(options, memory::make_cuda_pages(device_, kPage),
                                         std::move(opened.store), clock_);
  }

  /// An operator that copies between all of a storage and `bytes`.
  void operate(std::byte* address, std::vector<char>& bytes, bool writes) {
    PinSet pins;
    RangeUse use = swap_->find(address);
    use.writes = writes;
    swap_->pin(pins, {&use, 1});
    const device::DeviceSpan here = device::host_span_of_all(bytes);
    const device::DeviceSpan there{device_->id(), address, here.size};
    queue_->copy(writes ? there : here, writes ? here : there);
    const device::Event done = queue_->record();
    swap_->unpin(pins, nullptr, done);
    EXPECT_EQ(done.wait().error, "");
  }

  /// Writes ten storages, reads them, adds to them and reads them again; three of them are there at
  /// once.
  void train() {
    std::vector<std::byte*> storages;
    const auto bytes_of = [](std::size_t number, char round) {
      return std::vector<char>((kPage * kPages).count(), static_cast<char>(10 * round + number));
    };
    for (std::size_t i = 0; i < 10; ++i)
      storages.push_back(swap_->allocate(kPage * kPages, nullptr).address);
    for (char round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < storages.size(); ++i) {
        std::vector<char> bytes = bytes_of(i, round);
        operate(storages[i], bytes, true);
      }
      for (std::size_t i = 0; i < storages.size(); ++i) {
        std::vector<char> bytes((kPage * kPages).count());
        operate(storages[i], bytes, false);
        EXPECT_EQ(bytes, bytes_of(i, round)) << i << " in round " << int{round};
      }
    }
  }

  /// Why such a store is refused.
  std::string refusal(DirectFiles asked = DirectFiles::kOn, bool verify = false,
                      std::size_t directories = 1) const {
    return error_text<UnsupportedError>([&] { open(asked, verify, directories); });
  }

  /// By cuFile in this case.
  unsigned long long moved(int writes) const {
    return emu_cufile_moved(writes) - moved_before_.at(static_cast<std::size_t>(writes));
  }
  StoreReport report() const { return swap_->statistics().store; }

  void TearDown() override {
    emu_cufile_fail("");
    ::unsetenv("CUFILE_ALLOW_COMPAT_MODE");
  }

  const std::array<unsigned long long, 2> moved_before_{emu_cufile_moved(0), emu_cufile_moved(1)};
  SteadyClock clock_;
  const TemporaryDirectory directory_;
  std::shared_ptr<device::Device> device_ =
      device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
  std::unique_ptr<device::Queue> queue_ = device_->make_queue("trainer");
  std::unique_ptr<SwapEngine> swap_;
};

TEST_F(DirectFilesOfAGpu, PagesGoPastHostMemory) {
  GoldenPart golden;
  mask_io(golden);
  OpenedSpillStore opened = open();
  golden.add(opened.description);
  EXPECT_EQ(opened.why_not_direct, "");
  use(std::move(opened));
  train();
  EXPECT_GT(report().directly_written, kPage * 20);
  EXPECT_GT(report().directly_read, kPage * 20);
  EXPECT_EQ(report().directly_written + report().host.written, report().written);
  EXPECT_EQ(report().directly_read + report().host.read, report().read) << "no demotion was read";
  EXPECT_EQ(report().directly_written.count(), moved(1));
  EXPECT_EQ(report().directly_read.count(), moved(0));
}

TEST_F(DirectFilesOfAGpu, WithoutThemAllGoesByWayOfASlab) {
  use(open(DirectFiles::kOff));
  train();
  EXPECT_EQ(report().directly_written + report().directly_read, Bytes());
  EXPECT_EQ(moved(0) + moved(1), 0U);
}

TEST_F(DirectFilesOfAGpu, AShortTransferGoesOn) {
  emu_cufile_fail("short:5");
  use(open());
  train();
  EXPECT_EQ(report().directly_written.count(), moved(1));
  EXPECT_EQ(report().directly_read.count(), moved(0));
}

TEST_F(DirectFilesOfAGpu, WhatFailsGoesByWayOfASlabAndIsToldOnce) {
  GoldenPart golden;
  for (const char* const faults : {"read:4", "write:4"}) {
    emu_cufile_fail(faults);
    use(open());
    testing::internal::CaptureStderr();
    train();
    golden.add(faults, testing::internal::GetCapturedStderr());
    EXPECT_GT(report().directly_written, Bytes());
    EXPECT_LT(report().directly_read + report().directly_written, report().read);
    EXPECT_EQ(report().refusal, "") << "the disk is as good as before";
    EXPECT_EQ(report().retries, 0U);
    swap_.reset();
  }
}

TEST_F(DirectFilesOfAGpu, AFileThatTheProgramClosesGoesByWayOfASlab) {
  use(open());
  for (int number = 1000; number < 1064; ++number) {
    struct stat facts {};
    if (::fstat(number, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_nlink == 0 &&
        facts.st_size > 0)
      ::close(number);
  }
  testing::internal::CaptureStderr();
  train();
  GoldenPart().add(testing::internal::GetCapturedStderr());
  EXPECT_EQ(report().directly_read + report().directly_written, Bytes());
}

TEST_F(DirectFilesOfAGpu, AreRefusedWithTheReason) {
  GoldenPart golden;
  golden.add(refusal(DirectFiles::kOn, /*verify=*/true));
  for (const char* const fault : {"open", "register"}) {
    emu_cufile_fail(fault);
    golden.add(fault, refusal());
  }
}

TEST_F(DirectFilesOfAGpu, AreRefusedWhereOneOfTwoIs) {
  emu_cufile_fail("register:2");
  GoldenPart().add(refusal(DirectFiles::kOn, false, 2));
}

TEST_F(DirectFilesOfAGpu, OneOfTwoIsUsedUnasked) {
  ::setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
  emu_cufile_fail("register:2");
  OpenedSpillStore opened = open(DirectFiles::kAuto, false, 2);
  GoldenPart golden;
  mask_io(golden);
  golden.add(opened.description);
  golden.add(opened.why_not_direct);
  use(std::move(opened));
  train();
  EXPECT_GT(report().directly_read, Bytes());
  EXPECT_GT(report().host.read, Bytes());
}

TEST_F(DirectFilesOfAGpu, EachRefusedFileHasItsReason) {
  GoldenPart().add(open(DirectFiles::kAuto, false, 2).why_not_direct);
}

TEST_F(DirectFilesOfAGpu, AreUsedUnaskedWhereNoByteCanStopInHostMemory) {
  GoldenPart golden;
  golden.add("it may fall back", open(DirectFiles::kAuto).why_not_direct);
  EXPECT_EQ(device::why_no_direct_files().find("cuFile may fall back"), 0U);
  ::setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
  EXPECT_EQ(device::why_no_direct_files(), "");
  golden.add("it is verified", open(DirectFiles::kAuto, /*verify=*/true).why_not_direct);
  use(open(DirectFiles::kAuto));
  train();
  EXPECT_GT(report().directly_read, Bytes());
}

TEST_F(DirectFilesOfAGpu, AreLeftAloneWhereCufileWasOpenedToFallBack) {
  use(open());  // Which does not ask.
  ::setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);
  GoldenPart().add(open(DirectFiles::kAuto).why_not_direct);
}

/// What the check of order would miss if drives were unknown to it.
TEST_F(DirectFilesOfAGpu, ADriveThatWritesWhatAStreamStillReadsIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const device::DeviceMemory memory = device_->allocate(2_MiB);
  std::vector<char> bytes(kPage.count());
  const auto nothing = [](void*) {};
  EXPECT_DEATH(
      {
        queue_->copy(device::host_span_of_all(bytes), memory.span().first(kPage));
        emu_cuda_drive(memory.span().data, kPage.count(), 1, "cuFileRead", nothing, nullptr);
        queue_->copy(memory.span().first(kPage), device::host_span_of_all(bytes));
        emu_cuda_drive(memory.span().data, kPage.count(), 0, "cuFileWrite", nothing, nullptr);
      },
      "not ordered: 'cuFile(Read|Write)' on a drive");
}

}  // namespace
}  // namespace spillway::swap
