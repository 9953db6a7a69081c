#include "userfaultfd/kernel_interface.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "raw_calls.h"
#include "spillway/base/error.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::memory::userfaultfd {
namespace {

std::uint64_t number_of(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? names.release : "unknown";
}

// The device file is the way for processes whose system call is refused, but which may open it.
int open_through_device(int flags) {
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  const int descriptor = ioctl(device, USERFAULTFD_IOC_NEW, static_cast<unsigned long>(flags));
  const int error = errno;
  close(device);
  errno = error;
  return descriptor;
}

int open_descriptor(Scope scope) {
  int flags = O_CLOEXEC | O_NONBLOCK;
  if (scope == Scope::kUserOnly) flags |= UFFD_USER_MODE_ONLY;
  int descriptor = static_cast<int>(syscall(SYS_userfaultfd, flags));
  if (descriptor >= 0) return descriptor;
  const int error = errno;
  descriptor = open_through_device(flags);
  if (descriptor >= 0) return descriptor;
  if (error == ENOSYS) {
    throw UnsupportedError(
        "userfaultfd is missing: the kernel ({}) is built without CONFIG_USERFAULTFD, or a "
        "container filter hides it; allow the system call in the container's seccomp profile",
        kernel_release());
  }
  if (error == EPERM && scope == Scope::kUserAndKernel) {
    throw UnsupportedError(
        "userfaultfd for system calls needs privilege: run `sysctl vm.unprivileged_userfaultfd=1`, "
        "or give read and write access to /dev/userfaultfd, or grant CAP_SYS_PTRACE; in a "
        "container "
        "allow the system call userfaultfd");
  }
  throw UnsupportedError(
      "userfaultfd cannot be opened: {}; in a container allow the system call userfaultfd",
      std::strerror(error));
}

std::uint64_t shake_hands(int descriptor, std::uint64_t wanted) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = wanted;
  if (ioctl(descriptor, UFFDIO_API, &api) != 0) {
    const int error = errno;
    close(descriptor);
    throw UnsupportedError("userfaultfd refuses its features {}: {}", wanted, std::strerror(error));
  }
  return api.features;
}

int open_with_features(Scope scope) {
  // The first handshake asks what there is; a descriptor allows one handshake only.
  const int asked = open_descriptor(scope);
  const std::uint64_t offered = shake_hands(asked, 0);
  close(asked);
  constexpr std::uint64_t kWanted = kFeatureWriteProtect | kFeatureMove;
  if ((offered & kWanted) != kWanted) {
    throw UnsupportedError("userfaultfd cannot {}: Linux 6.8 or newer is needed, this is {}",
                           (offered & kFeatureMove) == 0 ? "move pages" : "watch writes",
                           kernel_release());
  }
  const int descriptor = open_descriptor(scope);
  shake_hands(descriptor, kWanted);
  return descriptor;
}

}  // namespace

FaultDescriptor::FaultDescriptor(Scope scope) : own_(make_own_descriptors()) {
  // A program that closes it in a table that is shared would end in the middle of its training.
  if (!own_->is_apart())
    throw UnsupportedError("userfaultfd needs a table of descriptors of its own: {}",
                           own_->why_shared());
  own_->run([&] {
    number_there_ = open_with_features(scope);
    identity_ = identity_of(number_there_);
  });
  number_of_program_ = own_->lend(number_there_);
  if (number_of_program_ < 0)
    throw UnsupportedError("userfaultfd finds no room among the descriptors of the program: {}",
                           std::strerror(errno));
}

FaultDescriptor::~FaultDescriptor() {
  const int here = number_of_program_.load();
  if (identity_of(here) == identity_) close(here);
}

/// The thread of a store, say, has neither our table nor the program's.
std::atomic<int>& FaultDescriptor::number_here() {
  thread_local std::atomic<int> number_of_this_thread{-1};
  return OwnDescriptors::is_programs() ? number_of_program_ : number_of_this_thread;
}

/// Threads with another table try the number that they have, and look what it means only when
/// the kernel refuses.
int FaultDescriptor::ask(unsigned long request, void* argument) {
  if (own_->is_current()) return ioctl(number_there_, request, argument) == 0 ? 0 : errno;
  const int here = number_here().load();
  if (ioctl(here, request, argument) == 0) return 0;
  int error = errno;
  if (identity_of(here) == identity_) return error;
  replace_lost_number();
  own_->run([&] { error = ioctl(number_there_, request, argument) == 0 ? 0 : errno; });
  return error;
}

/// Without room in the program's table every request takes the way by the other thread from now on.
void FaultDescriptor::replace_lost_number() {
  if (own_->is_current() || identity_of(number_here().load()) == identity_) return;
  const std::lock_guard lock(replacing_);
  if (identity_of(number_here().load()) == identity_) return;
  number_here().store(own_->lend(number_there_));
}

void FaultDescriptor::watch(std::byte* address, std::size_t size, std::uint64_t mode) {
  uffdio_register request{};
  request.range = {number_of(address), size};
  request.mode = mode;
  const int error = ask(UFFDIO_REGISTER, &request);
  if (error != 0) {
    throw UnsupportedError("userfaultfd cannot watch {} bytes at {}: {}", size,
                           static_cast<const void*>(address), std::strerror(error));
  }
}

int FaultDescriptor::move(std::byte* to, std::byte* from, std::size_t size, std::size_t& moved) {
  MoveRequest request{number_of(to), number_of(from), size, kMoveWithoutWake, 0};
  const int error = ask(kMove, &request);
  moved = request.moved > 0 ? static_cast<std::size_t>(request.moved) : 0;
  return error;
}

int FaultDescriptor::copy(std::byte* to, const std::byte* from, std::size_t size,
                          bool write_protected) {
  std::size_t done = 0;
  while (done < size) {
    uffdio_copy request{};
    request.dst = number_of(to + done);
    request.src = number_of(from + done);
    request.len = size - done;
    request.mode = UFFDIO_COPY_MODE_DONTWAKE | (write_protected ? UFFDIO_COPY_MODE_WP : 0);
    const int error = ask(UFFDIO_COPY, &request);
    if (error != EAGAIN) return error;
    if (request.copy > 0) done += static_cast<std::size_t>(request.copy);
  }
  return 0;
}

void FaultDescriptor::set_write_protected(std::byte* address, std::size_t size,
                                          bool write_protected) {
  uffdio_writeprotect request{};
  request.range = {number_of(address), size};
  request.mode = write_protected ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
  int error = EAGAIN;
  while (error == EAGAIN) error = ask(UFFDIO_WRITEPROTECT, &request);
  if (error != 0) die_of_refusal("UFFDIO_WRITEPROTECT", address, error);
}

void FaultDescriptor::wake(std::byte* address, std::size_t size) {
  uffdio_range range{number_of(address), size};
  const int error = ask(UFFDIO_WAKE, &range);
  if (error != 0) die_of_refusal("UFFDIO_WAKE", address, error);
}

}  // namespace spillway::memory::userfaultfd
