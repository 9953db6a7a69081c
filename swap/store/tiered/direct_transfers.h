#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "spillway/base/own_descriptors.h"
#include "spillway/device/direct_files.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

/// A file of a store's directory that a device reads and writes itself: open in the program's table
/// of descriptors, too, where the driver's files are.
class LentFile {
 public:
  /// The file that is open as `number` in that table. Throws IoError where it cannot be lent, and
  /// UnsupportedError where the device does not take it. On a thread with the program's table.
  LentFile(OwnDescriptors& descriptors, int number, device::DirectFileIo& device,
           device::DirectFiles asked);
  ~LentFile();
  LentFile(const LentFile&) = delete;
  LentFile& operator=(const LentFile&) = delete;

  bool holds(const ExtentPlace& place) const {
    return place.device == identity_.device && place.inode == identity_.inode;
  }
  device::Outcome move(Direction direction, device::DeviceSpan memory, std::uint64_t offset);

 private:
  bool is_open() const { return identity_of(number_) == identity_; }

  int number_;
  FileIdentity identity_;
  std::unique_ptr<device::DirectFile> file_;
};

/// Transfers between a device and files that need no host memory, on a few threads that share the
/// program's table of descriptors. Those that fail are for the caller to carry out in another way.
class DirectTransfers {
 public:
  DirectTransfers(device::DeviceId device, std::vector<std::unique_ptr<LentFile>> files,
                  std::size_t depth, std::shared_ptr<Notifier> notifier);
  ~DirectTransfers();
  DirectTransfers(const DirectTransfers&) = delete;
  DirectTransfers& operator=(const DirectTransfers&) = delete;

  /// Whether an extent that lies there can be moved. Any thread.
  bool reaches(const ExtentPlace& place) const { return file_at(place) != nullptr; }

  // The I/O thread.
  void submit(const Transfer& transfer, const ExtentPlace& place);
  void collect(std::vector<TransferResult>& results);

 private:
  struct Job {
    Transfer transfer;
    std::uint64_t offset;
    LentFile* file;
  };

  LentFile* file_at(const ExtentPlace& place) const;
  void carry_out_on_worker();

  const device::DeviceId device_;
  const std::vector<std::unique_ptr<LentFile>> files_;
  const std::shared_ptr<Notifier> notifier_;

  std::mutex mutex_;
  std::condition_variable work_arrived_;
  std::deque<Job> queue_;
  std::vector<TransferResult> finished_;
  bool is_stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace spillway::swap
