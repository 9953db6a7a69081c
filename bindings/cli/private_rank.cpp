#include "private_rank.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "private_rank_lines.h"
#include "spillway/base/error.h"
#include "spillway/base/read_pipe.h"
#include "spillway/preload/active.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kFolderStart[] = "spillway-rank-";
constexpr char kOwner[] = "owner";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// When a process was started, in ticks of the kernel; empty: there is none.
std::string start_of(const std::string& process) {
  const std::string line = first_line("/proc/" + process + "/stat");
  // Its name, between parentheses, may hold anything.
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  constexpr int kFieldsBefore = 19;
  std::string field;
  for (int i = 0; i <= kFieldsBefore; ++i) rest >> field;
  return rest ? field : std::string();
}

std::string link_text(const fs::path& path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

/// Which processes the numbers of this one's fellows mean: a machine, since when, and a name space.
std::string world_of_processes() {
  utsname machine{};
  ::uname(&machine);
  return message("{} {} {}", machine.nodename, first_line("/proc/sys/kernel/random/boot_id"),
                 link_text("/proc/self/ns/pid"));
}

std::string owner_text(const std::string& process) {
  return message("{} {} {}", world_of_processes(), process, start_of(process));
}

/// Whether the process that a folder was made for is gone. Those of other machines and containers
/// cannot be judged.
bool is_left_behind(const fs::path& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) ||
      facts.st_uid != ::geteuid())
    return false;
  const std::string owner = link_text(folder / kOwner);
  const std::string world = world_of_processes();
  if (owner.rfind(world + " ", 0) != 0) return false;
  const std::string process = owner.substr(world.size() + 1);
  return owner_text(process.substr(0, process.find(' '))) != owner;
}

void remove_whole(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  // Folders in it may be closed to their own user.
  if (!error) return;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored))
      fs::permissions(at->path(), fs::perms::owner_all, ignored);
    at.increment(error);
  }
  fs::remove_all(folder, error);
}

void remove_what_was_left(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const fs::path folder = at->path();
    if (folder.filename().string().rfind(kFolderStart, 0) == 0 && is_left_behind(folder))
      remove_whole(folder);
  }
}

std::string make_folder(const std::string& parent) {
  // The process that becomes the program finds its number in the name.
  std::string folder = message("{}/{}{}-XXXXXX", parent, kFolderStart, ::getpid());
  const std::string owner = owner_text(std::to_string(::getpid()));
  if (::mkdtemp(folder.data()) == nullptr)
    throw IoError("cannot make a folder in {} for the files of this rank: {} (name another with "
                  "TMPDIR)",
                  parent, std::strerror(errno));
  if (::symlink(owner.c_str(), (folder + "/" + kOwner).c_str()) != 0)
    throw IoError("cannot make a link in {}: {}", folder, std::strerror(errno));
  return folder;
}

/// What the process beside the rank works with.
struct Beside {
  int rank_process;  ///< A descriptor that becomes readable when it has ended; -1: refused here.
  int lines;         ///< Where the rank writes its errors.
  int shown;         ///< Where those of Spillway go.
};

constexpr int kFirstFree = 3;

/// Keeps those descriptors alone, as 0, 1 and 2, so that no pipe of the launcher stays open here.
Beside keep_alone(Beside given) {
  const int lines = ::fcntl(given.lines, F_DUPFD, kFirstFree);
  const int rank_process = ::fcntl(given.rank_process, F_DUPFD, kFirstFree);
  const int shown = ::fcntl(given.shown, F_DUPFD, kFirstFree);
  ::dup2(lines, 0);
  if (::dup2(rank_process, 1) < 0) ::close(1);
  ::dup2(shown, 2);
  // Linux before 5.9 has no close_range.
  if (::syscall(SYS_close_range, kFirstFree, ~0U, 0) != 0)
    for (int number = kFirstFree; number < 1024; ++number) ::close(number);
  return {.rank_process = rank_process < 0 ? -1 : 1, .lines = 0, .shown = 2};
}

void outlive_the_launcher() {
  ::setsid();
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2})
    ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "spillway-rank");
  [[maybe_unused]] const int changed = ::chdir("/");
}

class Server {
 public:
  Server(const Beside& beside, const std::string& rank, const std::string& folder)
      : beside_(beside), lines_(rank), folder_(folder) {
    if (::pipe2(copy_.data(), O_CLOEXEC) != 0) ::_exit(1);
  }

  /// Passes lines on until nobody writes any more, and removes the folder once the rank has ended.
  void serve() {
    std::array<pollfd, 2> asked{{{beside_.lines, POLLIN, 0}, {beside_.rank_process, POLLIN, 0}}};
    while (asked[0].fd >= 0 || asked[1].fd >= 0) {
      if (::poll(asked.data(), asked.size(), -1) < 0 && errno != EINTR) break;
      if (asked[0].revents != 0) {
        if (!pass_on()) asked[0].fd = -1;
      } else if (asked[1].revents != 0) {
        end_rank();
        asked[1].fd = -1;
      }
    }
    end_rank();
  }

 private:
  void show(const std::string& text) {
    write_all(beside_.shown, text);
    if (!text.empty()) wait_until_read(beside_.shown, std::chrono::milliseconds(100));
  }

  /// Lines stay in the rank's pipe until they are shown: a rank that is about to end the job looks
  /// whether its last words are read. Returns whether more may come.
  bool pass_on() {
    const ssize_t size = ::tee(beside_.lines, copy_[1], room_.size(), 0);
    if (size < 0) return errno == EINTR || errno == EAGAIN;
    if (size == 0) return false;
    const ssize_t got = ::read(copy_[0], room_.data(), static_cast<std::size_t>(size));
    if (got > 0) show(lines_.of({room_.data(), static_cast<std::size_t>(got)}));
    return got > 0 && ::read(beside_.lines, room_.data(), static_cast<std::size_t>(got)) > 0;
  }

  void end_rank() {
    std::error_code error;
    show(lines_.rest());
    if (fs::exists(folder_ + "/failed", error)) show(lines_.last_words());
    remove_whole(folder_);
  }

  Beside beside_;
  SpillwayLines lines_;
  std::string folder_;
  std::array<int, 2> copy_{};
  std::array<char, 65536> room_{};
};

/// A process that nobody has to wait for: the program's own children stay its only ones.
void start_beside(const Beside& beside, const std::string& rank, const std::string& folder) {
  const pid_t between = ::fork();
  if (between < 0) throw IoError("cannot start a process: {}", std::strerror(errno));
  if (between > 0) {
    int status = 0;
    while (::waitpid(between, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) throw IoError("cannot start a process beside rank {}", rank);
    return;
  }
  const pid_t started = ::fork();
  if (started != 0) ::_exit(started < 0 ? 1 : 0);
  outlive_the_launcher();
  Server(keep_alone(beside), rank, folder).serve();
  ::_exit(0);
}

int open_or_throw(const char* path, int flags) {
  const int file = ::open(path, flags | O_CLOEXEC);
  if (file < 0) throw IoError("cannot open {}: {}", path, std::strerror(errno));
  return file;
}

}  // namespace

void become_private_rank(const PrivateRankOptions& options) {
  std::error_code error;
  const std::string parent = fs::canonical(options.parent_folder, error).string();
  if (error)
    throw IoError("cannot make a folder in {} for the files of this rank: {} (name another with "
                  "TMPDIR)",
                  options.parent_folder, error.message());
  remove_what_was_left(parent);
  const std::string folder = make_folder(parent);
  std::array<int, 2> ends{};
  // Where it is refused, the end of the rank is that of all who write its errors.
  const auto self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw IoError("cannot watch over rank {}: {}", options.rank, std::strerror(errno));
  start_beside({.rank_process = self, .lines = ends[0], .shown = STDERR_FILENO}, options.rank,
               folder);
  ::dup2(open_or_throw("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(open_or_throw("/dev/null", O_WRONLY), STDOUT_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  for (const int number : {ends[0], ends[1], self}) ::close(number);
  ::setenv(SPILLWAY_PRIVATE_FILES_VARIABLE, folder.c_str(), 1);
}

Finding examine_working_folder() {
  std::error_code error;
  const std::string path = fs::current_path(error).string();
  struct statx facts {};
  const bool is_known = ::statx(AT_FDCWD, ".", 0, STATX_BTIME, &facts) == 0;
  return check_working_folder(path, is_known && (facts.stx_mask & STATX_BTIME) != 0);
}

}  // namespace spillway::cli
