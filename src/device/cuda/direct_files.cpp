// Files that a GPU reads and writes itself, by NVIDIA's libcufile.
#include "direct_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/shared_library.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::device {
namespace {

constexpr const char* kCufileLibrary = "libcufile.so.0";
constexpr const char* kMayFallBack = "CUFILE_ALLOW_COMPAT_MODE";

// What the reference of cuFile says of its types, in the version 1.
struct Status {
  int error = 0;  ///< From 5001 on.
  CUresult of_driver = CUDA_SUCCESS;
};
struct Description {
  int kind = 1;  ///< A descriptor of Linux.
  union {
    int descriptor;
    void* handle = nullptr;
  };
  const void* functions = nullptr;
};
struct Properties {
  unsigned major = 0;  ///< Of nvidia-fs.
  unsigned minor = 0;
  std::size_t poll_threshold = 0;
  std::size_t largest_transfer = 0;
  unsigned systems = 0;  ///< File systems that it serves, by bits.
  unsigned control = 0;
  std::array<unsigned, 64> rest{};  ///< Newer versions may say more.
};
constexpr unsigned kControlMayFallBack = 1U << 1;
using CufileHandle = void*;

struct Cufile {
  Status (*open_driver)() = nullptr;
  Status (*properties)(Properties*) = nullptr;
  Status (*add_file)(CufileHandle*, Description*) = nullptr;
  void (*remove_file)(CufileHandle) = nullptr;
  ssize_t (*read)(CufileHandle, void*, std::size_t, off_t, off_t) = nullptr;
  ssize_t (*write)(CufileHandle, const void*, std::size_t, off_t, off_t) = nullptr;
};

constexpr std::array<std::pair<int, const char*>, 16> kCufileErrors{
    {{5001, "its driver is not loaded (nvidia-fs)"},
     {5004, "its driver has another version (nvidia-fs)"},
     {5007, "this machine is not served"},
     {5008, "this file system is not served"},
     {5009, "this GPU is not served"},
     {5010, "its driver has failed (nvidia-fs)"},
     {5011, "CUDA has failed"},
     {5012, "this address is no memory of a GPU"},
     {5013, "this kind of memory is not served"},
     {5018, "this kind of file is not served"},
     {5020, "the file is not open for direct I/O"},
     {5025, "the driver or the file may not be used"},
     {5030, "it has failed within (its log, cufile.log, may tell why)"},
     {5033, "its driver cannot be set up (nvidia-fs)"},
     {5034, "its settings exclude this file"},
     {5036, "the memory of the GPU cannot be pinned"}}};

std::string cufile_text(int error) {
  for (const auto& [number, text] : kCufileErrors)
    if (number == error) return message("{} (cuFile error {})", text, error);
  return message("cuFile error {}", error);
}

/// Fills `found`, or says why it cannot.
std::string open_cufile(Cufile& found) {
  std::string why;  // Of no help: it is mostly not installed.
  void* const library = load_library(kCufileLibrary, why);
  if (library == nullptr)
    return message("{} is not there: install NVIDIA's GDS tools", kCufileLibrary);
  if (find_function(library, "cuFileDriverOpen", found.open_driver) &&
      find_function(library, "cuFileDriverGetProperties", found.properties) &&
      find_function(library, "cuFileHandleRegister", found.add_file) &&
      find_function(library, "cuFileHandleDeregister", found.remove_file) &&
      find_function(library, "cuFileRead", found.read) &&
      find_function(library, "cuFileWrite", found.write)) {
    const int error = found.open_driver().error;
    constexpr int kIsOpen = 5026;
    if (error == 0 || error == kIsOpen) return {};
    return message("{} cannot be opened: {}", kCufileLibrary, cufile_text(error));
  }
  return message("{} lacks functions: take that of CUDA 12 or later", kCufileLibrary);
}

struct FoundCufile {
  const Cufile* functions = nullptr;  ///< Null: see `reason`. Stays for ever.
  std::string reason;
};

/// Once in a process: it starts threads, and writes a log. It closes its driver itself at the end.
FoundCufile find_cufile() {
  static std::mutex mutex;
  static Cufile cufile;
  static const Cufile* is_open = nullptr;
  const std::lock_guard lock(mutex);
  if (is_open != nullptr) return {is_open, {}};
  std::string reason = open_cufile(cufile);
  if (reason.empty()) is_open = &cufile;
  return {is_open, std::move(reason)};
}

/// Else a file that cannot be served is read into host memory and copied, and nobody is told.
std::string why_uncertain() {
  const char* const set = std::getenv(kMayFallBack);
  const std::string_view value = set == nullptr ? "" : set;
  if (value == "false" || value == "0") return {};
  return message("cuFile may fall back to copies by way of host memory, and does not tell: set "
                 "{}=false, or give --gds on",
                 kMayFallBack);
}

std::string why_uncertain(const Cufile& cufile) {
  Properties properties;
  if (const Status got = cufile.properties(&properties); got.error != 0)
    return message("cuFile does not tell how it is set: {}", cufile_text(got.error));
  if ((properties.control & kControlMayFallBack) == 0) return {};
  return message("cuFile was opened before {} was set to false", kMayFallBack);
}

/// The library for such files, or why none.
FoundCufile find_cufile(DirectFiles asked) {
  if (asked == DirectFiles::kAuto)
    if (std::string reason = why_uncertain(); !reason.empty()) return {nullptr, std::move(reason)};
  FoundCufile found = find_cufile();
  if (found.functions == nullptr || asked != DirectFiles::kAuto) return found;
  if (std::string reason = why_uncertain(*found.functions); !reason.empty())
    return {nullptr, std::move(reason)};
  return found;
}

class CudaFile final : public DirectFile {
 public:
  CudaFile(const Cufile& cufile, std::shared_ptr<CudaContext> context, CufileHandle handle)
      : cufile_(cufile), context_(std::move(context)), handle_(handle) {}
  ~CudaFile() override {
    const OnDevice on(*context_);
    cufile_.remove_file(handle_);
  }

 private:
  Moved do_move(Way way, DeviceSpan memory, std::uint64_t offset) override {
    const OnDevice on(*context_);
    const auto at = static_cast<off_t>(offset);
    const ssize_t moved = way == Way::kFromFile
                              ? cufile_.read(handle_, memory.data, memory.size.count(), at, 0)
                              : cufile_.write(handle_, memory.data, memory.size.count(), at, 0);
    if (moved >= 0) return {static_cast<std::size_t>(moved), {}};
    if (moved == -1) return {0, std::strerror(errno)};
    return {0, cufile_text(static_cast<int>(-moved))};
  }

  const Cufile& cufile_;
  const std::shared_ptr<CudaContext> context_;
  const CufileHandle handle_;
};

}  // namespace

DirectFileIo::Opened open_cuda_file(std::shared_ptr<CudaContext> context, int descriptor,
                                    DirectFiles asked) {
  FoundCufile found = find_cufile(asked);
  if (found.functions == nullptr) return {nullptr, std::move(found.reason)};
  Description description;
  description.descriptor = descriptor;
  CufileHandle handle = nullptr;
  const OnDevice on(*context);
  if (const Status added = found.functions->add_file(&handle, &description); added.error != 0)
    return {nullptr, message("cuFile does not take the file: {}", cufile_text(added.error))};
  return {std::make_unique<CudaFile>(*found.functions, std::move(context), handle), {}};
}

std::string why_no_direct_files() { return find_cufile(DirectFiles::kAuto).reason; }

}  // namespace spillway::device
