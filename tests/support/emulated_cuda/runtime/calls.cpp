#include "calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "emulation.h"
#include "failure.h"
#include "settings.h"

namespace spillway::emulated {
namespace {

std::atomic<CallCounter*>& head() {
  static std::atomic<CallCounter*> first{nullptr};
  return first;
}

/// Stands for the files that the driver opens.
class DriverFile {
 public:
  DriverFile() : number_(memfd_create("emulated_driver", MFD_CLOEXEC)), inode_(inode()) {
    if (number_ < 0) die("memfd_create is refused");
  }
  bool is_open() const { return inode() == inode_; }

 private:
  ino_t inode() const {
    struct stat file = {};
    return fstat(number_, &file) == 0 ? file.st_ino : 0;
  }

  const int number_;
  const ino_t inode_;
};

/// Calls by function and name of the thread; the threads of a pool have one name.
struct CallsByThread {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, unsigned long long> calls;
};

CallsByThread& by_thread() {
  static auto* all = new CallsByThread;  // Leaked: threads call CUDA to the end.
  return *all;
}

struct PrintAtExit {
  ~PrintAtExit() {
    if (!settings().trace) return;
    const std::lock_guard lock(by_thread().mutex);
    for (const auto& [who, calls] : by_thread().calls) {
      std::fprintf(stderr, "emulated CUDA: %8llu calls of %s by %s\n", calls, who.first.c_str(),
                   who.second.c_str());
    }
  }
} print_at_exit;

thread_local bool in_host_function = false;

}  // namespace

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

void need_no_host_function(const char* call) {
  if (in_host_function)
    die(std::string(call) + " is called by a function of the host in a stream, which CUDA forbids");
}

CallCounter::CallCounter(const char* name) : name_(name), next_(head().load()) {
  while (!head().compare_exchange_weak(next_, this)) {
  }
}

void CallCounter::count() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (!settings().trace) return;
  char thread[16] = {};
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  const std::lock_guard lock(by_thread().mutex);
  ++by_thread().calls[{name_, thread}];
}

CallCounter* CallCounter::first() { return head().load(); }

void need_driver_files(const char* call) {
  static const DriverFile file;
  static const bool ends_at_exit = std::atexit(&emu_cuda_deinitialize) == 0;
  if (!ends_at_exit) die("atexit is refused");
  thread_local const bool is_open_here = file.is_open();
  if (is_open_here) return;
  // Who has other descriptors may have another standard error, too.
  const int error = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK);
  if (error >= 0) dup2(error, STDERR_FILENO);
  die(std::string(call) + " is called by a thread with other descriptors than the first caller of "
                          "CUDA has (unshare): the driver's files are not open there");
}

}  // namespace spillway::emulated

extern "C" unsigned long long emu_cuda_calls(const char* name) {
  unsigned long long calls = 0;
  for (auto* one = spillway::emulated::CallCounter::first(); one != nullptr; one = one->next()) {
    if (std::strcmp(one->name(), name) == 0) calls += one->calls();
  }
  return calls;
}
