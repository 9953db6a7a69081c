#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "spillway/device/device.h"

namespace spillway::device {

/// Whether a device moves bytes between files and its memory by itself.
enum class DirectFiles : std::uint8_t {
  kOff,
  kOn,    ///< Or say why not.
  kAuto,  ///< Where it is certain that no byte stops in host memory on the way.
};

/// A file that a device reads and writes itself (GPUDirect Storage). Calls wait until the bytes
/// have moved, and know nothing of queues: whatever uses them is done before, or starts after. Any
/// thread with the table of descriptors in which the file was opened.
class DirectFile {
 public:
  virtual ~DirectFile() = default;

  enum class Way : std::uint8_t { kFromFile, kToFile };
  /// All bytes of `memory`, of the device, from or to `offset`; both are multiples of 4096, and so
  /// is the address. Where they do not come whole, the outcome says why.
  Outcome move(Way way, DeviceSpan memory, std::uint64_t offset);

 protected:
  struct Moved {
    std::size_t bytes = 0;  ///< May be fewer.
    std::string error;
  };

 private:
  virtual Moved do_move(Way way, DeviceSpan memory, std::uint64_t offset) = 0;
};

/// What a device may be in addition.
class DirectFileIo {
 public:
  virtual ~DirectFileIo() = default;

  struct Opened {
    std::unique_ptr<DirectFile> file;
    std::string reason;  ///< Why there is none, with the mend.
  };
  /// `descriptor`: of the calling thread, for direct I/O; to be closed after the file.
  virtual Opened open_file(int descriptor, DirectFiles asked) = 0;
};

/// Null: the device cannot.
DirectFileIo* direct_file_io(Device& device);

}  // namespace spillway::device
