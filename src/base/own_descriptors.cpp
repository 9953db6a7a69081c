#include "spillway/base/own_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"

namespace spillway {
namespace {

// Above what a program opens by counting up, below what would make the kernel's table long.
constexpr int kHighNumber = 1000;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizerReports = true;  // On number 2, from any thread.
#else
constexpr bool kSanitizerReports = false;
#endif

thread_local const OwnDescriptors* table_of_this_thread = nullptr;

long close_range_here(unsigned first, unsigned last, unsigned flags) {
  return ::syscall(SYS_close_range, first, last, flags);
}

/// Gives the calling thread a table of its own, with copies of all that was open. Returns 0 or an
/// errno value. Container filters refuse one of the two calls and not the other.
int leave_shared_table() {
  constexpr unsigned kNever = INT_MAX;
  if (::unshare(CLONE_FILES) == 0) return 0;
  const int error = errno;
  return close_range_here(kNever, kNever, CLOSE_RANGE_UNSHARE) == 0 ? 0 : error;
}

std::vector<int> listed_descriptors() {
  std::vector<int> open;
  DIR* const listed = ::opendir("/proc/thread-self/fd");
  if (listed == nullptr) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    constexpr rlim_t kMost = 1 << 16;
    for (int number = 0; number < static_cast<int>(std::min(limit.rlim_cur, kMost)); ++number)
      open.push_back(number);
    return open;
  }
  while (const dirent* entry = ::readdir(listed)) {
    const int number = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && number != ::dirfd(listed)) open.push_back(number);
  }
  ::closedir(listed);
  return open;
}

/// A copy of the program's that stayed open would keep a reader from ever seeing the end of its
/// pipe.
void close_copies() {
  constexpr int kKept = kSanitizerReports ? STDERR_FILENO : -1;
  const bool is_closed = (kKept < 1 || close_range_here(0, kKept - 1, 0) == 0) &&
                         close_range_here(kKept + 1, UINT_MAX, 0) == 0;
  if (is_closed) return;
  // Before Linux 5.9 one by one.
  for (const int number : listed_descriptors())
    if (number != kKept) ::syscall(SYS_close, number);
}

/// What is written to 0, 1 and 2 by habit must not go into a file that took the number.
void fill_standard_numbers() {
  int number = 0;
  do {
    number = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) ::close(number);
}

/// A socket without a name to send from, or bound to a name that the kernel chooses.
class Mailbox {
 public:
  Mailbox() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Mailbox() {
    if (socket_ >= 0) ::close(socket_);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  bool bind() {
    address_.sun_family = AF_UNIX;
    length_ = sizeof address_;
    auto* const name = reinterpret_cast<sockaddr*>(&address_);
    return ::bind(socket_, name, sizeof(sa_family_t)) == 0 &&
           ::getsockname(socket_, name, &length_) == 0;
  }

  bool send(int descriptor, const Mailbox& to) const {
    Letter letter;
    letter.message.msg_name = const_cast<sockaddr_un*>(&to.address_);
    letter.message.msg_namelen = to.length_;
    cmsghdr* const header = CMSG_FIRSTHDR(&letter.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    return ::sendmsg(socket_, &letter.message, MSG_NOSIGNAL) == 1;
  }

  /// -1 and errno: none came.
  int receive() const {
    Letter letter;
    if (::recvmsg(socket_, &letter.message, MSG_CMSG_CLOEXEC) != 1) return -1;
    const cmsghdr* const header = CMSG_FIRSTHDR(&letter.message);
    int descriptor = -1;
    errno = EMFILE;  // The kernel leaves out what the table has no room for.
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
  }

 private:
  struct Letter {
    Letter() {
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = room.data();
      message.msg_controllen = room.size();
    }
    char text = 0;
    iovec part{&text, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
    msghdr message{};
  };

  int socket_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

/// The program's own number 2, as its main thread has it.
int open_program_error() {
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  const auto same = static_cast<int>(::syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0));
  if (process >= 0) ::close(process);
  if (same >= 0) return same;
  // Refused by many container filters. Anew, a file would be written from its start.
  return ::open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

}  // namespace

FileIdentity identity_of(int descriptor) noexcept {
  const int error = errno;
  struct stat facts {};
  const bool is_open = descriptor >= 0 && ::fstat(descriptor, &facts) == 0;
  errno = error;
  return is_open ? FileIdentity{facts.st_dev, facts.st_ino} : FileIdentity{};
}

int moved_up(int descriptor) noexcept {
  if (descriptor < 0) return descriptor;
  int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kHighNumber);
  if (moved < 0) moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return descriptor;
  ::close(descriptor);
  return moved;
}

void regain_standard_error() noexcept {
  if (table_of_this_thread == nullptr || !table_of_this_thread->is_apart() || kSanitizerReports)
    return;
  const int error = errno;
  const int found = open_program_error();
  if (found >= 0) ::dup2(found, STDERR_FILENO);
  errno = error;
}

OwnDescriptors::OwnDescriptors() : owner_(::getpid()) {
  {
    const SignalsBlocked blocked;
    server_->thread = std::thread([this] { serve(); });
  }
  leave_program();
}

OwnDescriptors::~OwnDescriptors() {
  if (!is_reachable()) {
    static_cast<void>(server_.release());
    return;
  }
  {
    const std::lock_guard lock(server_->mutex);
    server_->is_ending = true;
  }
  server_->changed.notify_all();
  server_->thread.join();
}

bool OwnDescriptors::is_current() const { return table_of_this_thread == this; }

bool OwnDescriptors::is_programs() { return table_of_this_thread == nullptr; }

bool OwnDescriptors::is_reachable() const { return ::getpid() == owner_; }

/// Closes nothing of the program before it is certain that its table stays as it is: some systems
/// that stand for Linux take the request and ignore it.
void OwnDescriptors::leave_program() {
  int trial[2] = {-1, -1};
  if (::pipe2(trial, O_CLOEXEC) != 0) {
    why_shared_ = message("{} (raise ulimit -n)", std::strerror(errno));
    return;
  }
  for (int& end : trial) end = moved_up(end);
  const FileIdentity meant = identity_of(trial[0]);
  int refused = 0;
  run([&] {
    refused = leave_shared_table();
    if (refused == 0) ::syscall(SYS_close, trial[0]);
  });
  const bool is_open_here = identity_of(trial[0]) == meant;
  if (is_open_here) ::close(trial[0]);
  ::close(trial[1]);
  if (refused != 0) {
    why_shared_ = message("{} (in a container allow the system call close_range or unshare)",
                          std::strerror(refused));
    return;
  }
  if (!is_open_here) {
    why_shared_ = "the system takes the request for one and does not heed it";
    return;
  }
  run([] {
    close_copies();
    fill_standard_numbers();
  });
  why_shared_.clear();
}

void OwnDescriptors::serve() {
  table_of_this_thread = this;
  ::pthread_setname_np(::pthread_self(), "spillway-files");
  Server& own = *server_;
  std::unique_lock lock(own.mutex);
  for (;;) {
    own.changed.wait(lock, [&] { return own.is_ending || own.job != nullptr; });
    if (own.is_ending) return;
    const std::function<void()>& job = *own.job;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      job();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    own.thrown = std::move(thrown);
    own.job = nullptr;
    own.changed.notify_all();
  }
}

void OwnDescriptors::hand_over(const std::function<void()>& job) {
  SPILLWAY_ASSERT(is_reachable());
  const std::lock_guard turn(server_->turn);
  std::unique_lock lock(server_->mutex);
  server_->job = &job;
  server_->changed.notify_all();
  server_->changed.wait(lock, [this] { return server_->job == nullptr; });
  if (server_->thrown != nullptr) std::rethrow_exception(std::exchange(server_->thrown, nullptr));
}

std::thread OwnDescriptors::start_thread(std::function<void()> body) {
  std::thread started;
  run([&] {
    const SignalsBlocked blocked;
    started = std::thread([this, body = std::move(body)] {
      table_of_this_thread = this;
      try {
        body();
      } catch (const std::exception& error) {
        regain_standard_error();
        std::fprintf(stderr, "[spillway] internal error: %s\n", error.what());
        std::abort();
      }
    });
  });
  return started;
}

int OwnDescriptors::lend(int number) {
  if (!is_apart() || is_current()) return moved_up(::fcntl(number, F_DUPFD_CLOEXEC, 0));
  Mailbox here;
  if (!here.bind()) return -1;
  FileIdentity wanted;
  bool is_sent = false;
  run([&] {
    wanted = identity_of(number);
    is_sent = Mailbox().send(number, here);
  });
  if (!is_sent) return -1;
  // Anybody may write to the box, but only we have the file.
  for (;;) {
    const int came = here.receive();
    if (came < 0) return -1;
    if (identity_of(came) == wanted) return moved_up(came);
    ::close(came);
  }
}

void OwnDescriptors::show_to_children(int number) { shown_.push_back({number, -1}); }

void OwnDescriptors::hide_from_children(int number) {
  std::erase_if(shown_, [&](const Shown& shown) { return shown.number == number; });
}

bool OwnDescriptors::begin_fork() {
  for (Shown& shown : shown_) shown.in_child = is_apart() ? lend(shown.number) : shown.number;
  return std::all_of(shown_.begin(), shown_.end(),
                     [](const Shown& shown) { return shown.in_child >= 0; });
}

void OwnDescriptors::end_fork_in_parent() {
  if (!is_apart()) return;
  for (Shown& shown : shown_) {
    if (shown.in_child < 0) continue;
    FileIdentity meant;
    run([&] { meant = identity_of(shown.number); });
    // The program may have closed it meanwhile, and use the number.
    if (identity_of(shown.in_child) == meant) ::close(shown.in_child);
    shown.in_child = -1;
  }
}

int OwnDescriptors::number_in_child(int number) const {
  for (const Shown& shown : shown_)
    if (shown.number == number) return shown.in_child;
  return -1;
}

}  // namespace spillway
