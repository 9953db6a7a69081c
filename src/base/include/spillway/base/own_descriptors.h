#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace spillway {

/// A table of descriptors beside the program's, so that no close, dup2 or system call of the
/// program reaches what is open in it, nor takes the number of such a file for one of its own. The
/// kernel keeps tables by thread: one thread gives up the program's table, and threads that it
/// starts share its own. Where the kernel refuses that, `is_apart` is false, and all of this
/// happens in the program's table.
///
/// Whatever opens, uses or closes a descriptor of this table does so in `run` or on a thread made
/// by `start_thread`. Any thread, except in a forked child, which has no such table.
class OwnDescriptors {
 public:
  /// Starts the thread, named `spillway-files`. Throws std::system_error without a thread.
  OwnDescriptors();
  /// Closes what is open in the table, once the threads that share it have ended.
  ~OwnDescriptors();
  OwnDescriptors(const OwnDescriptors&) = delete;
  OwnDescriptors& operator=(const OwnDescriptors&) = delete;

  bool is_apart() const { return why_shared_.empty(); }
  const std::string& why_shared() const { return why_shared_; }  ///< Empty: the table is apart.

  /// Whether the calling thread uses this table,
  bool is_current() const;
  /// or no such table, but the program's.
  static bool is_programs();
  /// False in a forked child.
  bool is_reachable() const;

  /// Does `job` on a thread of this table, which is the calling one where it can be, and returns
  /// when it is done, with what it throws. The job takes no lock that a caller may hold.
  template <typename Job>
  void run(Job&& job) {
    if (is_current())
      job();
    else
      hand_over(std::ref(job));
  }

  /// A thread that shares this table; signals are blocked on it. What `body` throws ends the
  /// process with its text. Throws std::system_error.
  std::thread start_thread(std::function<void()> body);

  /// Makes a descriptor of this table known in the table of the calling thread, too, and returns
  /// its number there, or -1 and errno. Numbers that a program counts on are left free.
  int lend(int number);

  /// Children of later forks get this descriptor. `begin_fork` returns whether the coming child
  /// has them all. The owner lets no two of these calls overlap, and no two forks.
  void show_to_children(int number);
  void hide_from_children(int number);
  bool begin_fork();
  void end_fork_in_parent();
  /// The number of such a descriptor in the child of the latest fork; -1: it has none. No lock.
  int number_in_child(int number) const;

 private:
  struct Shown {
    int number;
    int in_child;
  };

  /// The thread, and what it shares with those who hand a job over. Left alone in a forked child,
  /// where the thread is not, and the end of what it waits for would wait for it.
  struct Server {
    std::mutex turn;
    std::mutex mutex;
    std::condition_variable changed;
    const std::function<void()>* job = nullptr;
    std::exception_ptr thrown;
    bool is_ending = false;
    std::thread thread;
  };

  void serve();
  void leave_program();
  void hand_over(const std::function<void()>& job);

  pid_t owner_ = 0;
  std::string why_shared_ = "it has not left the program's";
  std::vector<Shown> shown_;
  std::unique_ptr<Server> server_ = std::make_unique<Server>();
};

/// Which open file a descriptor means: numbers are used again, files are told apart.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// The open file behind the number in the calling thread's table; both fields 0: none.
FileIdentity identity_of(int descriptor) noexcept;

/// Moves a new descriptor to a number above those that programs count on, above 2 in any case, and
/// returns it; the descriptor itself where there is no room.
int moved_up(int descriptor) noexcept;

/// Before last words: on a thread with descriptors of its own, number 2 becomes what the program
/// has there. Elsewhere nothing. Allocates nothing and takes no lock.
void regain_standard_error() noexcept;

}  // namespace spillway
