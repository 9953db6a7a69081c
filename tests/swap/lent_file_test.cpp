// Files that a device moves itself, with one that fails by exceptions.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "spillway/device/cpu.h"
#include "store/tiered/direct_transfers.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

class ThrowingFile final : public device::DirectFile {
  Moved do_move(Way, device::DeviceSpan, std::uint64_t) override {
    throw std::runtime_error("no memory for a message");
  }
};

/// Takes files, or throws.
class ThrowingIo final : public device::DirectFileIo {
 public:
  explicit ThrowingIo(bool takes) : takes_(takes) {}
  Opened open_file(int, device::DirectFiles) override {
    if (!takes_) throw std::runtime_error("no memory for a file");
    return {std::make_unique<ThrowingFile>(), {}};
  }

 private:
  const bool takes_;
};

class LentFileTest : public testing::Test {
 protected:
  static std::ptrdiff_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  }

  /// In the store's table, from which it is lent.
  int open_there() {
    int number = -1;
    table_.run(
        [&] { number = ::open((directory_.path() + "/file").c_str(), O_RDWR | O_CREAT, 0600); });
    return number;
  }

  const TemporaryDirectory directory_;
  OwnDescriptors table_;
};

TEST_F(LentFileTest, LeavesNoDescriptorWhereTheDeviceThrows) {
  const int number = open_there();
  ASSERT_GE(number, 0);
  ThrowingIo io(/*takes=*/false);
  const std::ptrdiff_t before = open_descriptors();
  EXPECT_THROW(LentFile(table_, number, io, device::DirectFiles::kOn), std::runtime_error);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(LentFileTest, ATransferThatThrowsHasFailed) {
  ThrowingIo io(/*takes=*/true);
  std::vector<std::unique_ptr<LentFile>> files;
  files.push_back(std::make_unique<LentFile>(table_, open_there(), io, device::DirectFiles::kOn));
  ExtentPlace place;
  table_.run([&] {
    const FileIdentity identity = identity_of(open_there());
    place.device = identity.device;
    place.inode = identity.inode;
  });
  const auto cpu = device::make_cpu_device();
  const device::DeviceMemory memory = cpu->allocate(4_KiB);
  DirectTransfers transfers(cpu->id(), std::move(files), 1, std::make_shared<Notifier>());
  Transfer transfer;
  transfer.memory = memory.span().data;
  transfer.size = 4096;
  transfers.submit(transfer, place);
  std::vector<TransferResult> results;
  while (results.empty()) transfers.collect(results);
  GoldenPart().add(results.front().detail);
  EXPECT_NE(results.front().error, 0);
}

}  // namespace
}  // namespace spillway::swap
