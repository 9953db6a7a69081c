// Files that drives move into the memory of devices and out of it past the host: libcufile.so.0.
// Its types are as the reference of cuFile 1 has them.
#include "cufile_faults.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "emulation.h"

namespace {

enum Error : int {
  kDone = 0,
  kDriverNotThere = 5001,
  kFileNotServed = 5008,
  kMemoryNotServed = 5013,
  kNoFile = 5018,
  kNotDirect = 5020,
  kInvalid = 5022,
  kNotRegistered = 5027,
};

struct File {
  int number;
};

/// The Nth call from now on; 0: none.
struct Faults {
  bool open = false;
  int add = 0;
  int read = 0;
  int write = 0;
  int cut = 0;
};

struct State {
  std::mutex mutex;
  bool is_open = false;
  bool may_fall_back = true;
  Faults faults;
  std::set<File*> files;
  std::atomic<unsigned long long> read{0};
  std::atomic<unsigned long long> written{0};
};

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "emulated cuFile: %s\n", text.c_str());
  std::abort();
}

Faults faults_of(const char* text) {
  Faults faults;
  std::istringstream list(text == nullptr ? "" : text);
  for (std::string fault; std::getline(list, fault, ',');) {
    const auto colon = fault.find(':');
    const std::string kind = fault.substr(0, colon);
    const int number = colon == std::string::npos ? 1 : std::atoi(fault.c_str() + colon + 1);
    if (kind == "open")
      faults.open = true;
    else if (kind == "register")
      faults.add = number;
    else if (kind == "read")
      faults.read = number;
    else if (kind == "write")
      faults.write = number;
    else if (kind == "short")
      faults.cut = number;
    else
      die("EMU_CUFILE_FAULTS cannot be read: " + fault);
  }
  return faults;
}

State& state() {
  static auto* all = [] {
    auto* made = new State;  // Leaked: threads move bytes to the end.
    made->faults = faults_of(std::getenv("EMU_CUFILE_FAULTS"));
    return made;
  }();
  return *all;
}

/// As direct I/O wants it of all three.
bool is_aligned(std::uint64_t number) { return number % 4096 == 0; }

/// What a call moves, after faults; 0: it fails.
std::size_t allowed(bool writes, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  int& fails = writes ? state().faults.write : state().faults.read;
  if (fails == 1) return 0;
  if (fails > 1) --fails;
  int& cut = state().faults.cut;
  if (cut == 0 || --cut > 0) return bytes;
  return bytes / 2;
}

ssize_t move(void* handle, void* base, std::size_t bytes, off_t offset, off_t within, bool writes) {
  auto* const file = static_cast<File*>(handle);
  {
    const std::lock_guard lock(state().mutex);
    if (state().files.count(file) == 0) return -kNotRegistered;
  }
  auto* const address = static_cast<char*>(base) + within;
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(address)) || !is_aligned(bytes) ||
      !is_aligned(static_cast<std::uint64_t>(offset)))
    die("a transfer that is not whole blocks, which would go through host memory");
  const std::size_t asked = allowed(writes, bytes);
  if (asked == 0) {
    errno = EIO;
    return -1;
  }
  struct Work {
    int number;
    char* address;
    std::size_t bytes;
    off_t offset;
    bool writes;
    ssize_t moved = 0;
    int error = 0;
  } work{file->number, address, asked, offset, writes};
  const auto run = [](void* argument) {
    auto& mine = *static_cast<Work*>(argument);
    mine.moved = mine.writes ? pwrite(mine.number, mine.address, mine.bytes, mine.offset)
                             : pread(mine.number, mine.address, mine.bytes, mine.offset);
    mine.error = errno;
  };
  if (emu_cuda_drive(address, asked, writes ? 0 : 1, writes ? "cuFileWrite" : "cuFileRead", run,
                     &work) == 0)
    return -kMemoryNotServed;
  if (work.moved < 0) {
    errno = work.error;
    return -1;
  }
  (writes ? state().written : state().read) += static_cast<unsigned long long>(work.moved);
  return work.moved;
}

}  // namespace

extern "C" {

struct CUfileError_t {
  int err;
  CUresult cu_err;
};
struct CUfileDescr_t {
  int type;
  union {
    int fd;
    void* handle;
  } handle;
  const void* fs_ops;
};
struct CUfileDrvProps_t {
  unsigned major_version;
  unsigned minor_version;
  std::size_t poll_thresh_size;
  std::size_t max_direct_io_size;
  unsigned dstatusflags;
  unsigned dcontrolflags;
  int fflags;
  unsigned sizes[5];
};

CUfileError_t cuFileDriverOpen() {
  const std::lock_guard lock(state().mutex);
  if (state().faults.open) return {kDriverNotThere, CUDA_SUCCESS};
  const char* const set = std::getenv("CUFILE_ALLOW_COMPAT_MODE");
  if (!state().is_open) state().may_fall_back = set == nullptr || std::string_view(set) != "false";
  state().is_open = true;
  return {kDone, CUDA_SUCCESS};
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t* all) {
  const std::lock_guard lock(state().mutex);
  *all = {};
  if (!state().is_open) return {kDriverNotThere, CUDA_SUCCESS};
  all->major_version = 2;
  all->dstatusflags = 1U << 4;  // NVMe.
  all->dcontrolflags = state().may_fall_back ? 1U << 1 : 0U;
  return {kDone, CUDA_SUCCESS};
}

CUfileError_t cuFileHandleRegister(void** handle, CUfileDescr_t* description) {
  const std::lock_guard lock(state().mutex);
  if (!state().is_open) return {kDriverNotThere, CUDA_SUCCESS};
  if (state().faults.add == 1) return {kFileNotServed, CUDA_SUCCESS};
  if (state().faults.add > 1) --state().faults.add;
  if (description->type != 1) return {kInvalid, CUDA_SUCCESS};
  const int flags = fcntl(description->handle.fd, F_GETFL);
  struct stat facts = {};
  if (flags < 0 || fstat(description->handle.fd, &facts) != 0 || !S_ISREG(facts.st_mode))
    return {kNoFile, CUDA_SUCCESS};
  if ((flags & O_DIRECT) == 0) return {kNotDirect, CUDA_SUCCESS};
  auto* const file = new File{description->handle.fd};
  state().files.insert(file);
  *handle = file;
  return {kDone, CUDA_SUCCESS};
}

void cuFileHandleDeregister(void* handle) {
  const std::lock_guard lock(state().mutex);
  auto* const file = static_cast<File*>(handle);
  if (state().files.erase(file) == 0) die("cuFileHandleDeregister of what is no file");
  delete file;
}

ssize_t cuFileRead(void* handle, void* base, std::size_t bytes, off_t offset, off_t within) {
  return move(handle, base, bytes, offset, within, false);
}

ssize_t cuFileWrite(void* handle, const void* base, std::size_t bytes, off_t offset, off_t within) {
  return move(handle, const_cast<void*>(base), bytes, offset, within, true);
}

void emu_cufile_fail(const char* faults) {
  const std::lock_guard lock(state().mutex);
  state().faults = faults_of(faults);
}

unsigned long long emu_cufile_moved(int writes) {
  return writes != 0 ? state().written : state().read;
}
}
