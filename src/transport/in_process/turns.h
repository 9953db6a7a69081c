#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "spillway/base/clock.h"
#include "spillway/transport/transport.h"

namespace spillway::transport {

/// Lets threads of ranks run one at a time, and keeps the time that they live in. What happens
/// besides (messages that arrive) is told as the next moment to go to, and done when it is there.
class Turns {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit Turns(std::uint64_t seed) : draws_(seed) {}
  virtual ~Turns() = default;

  /// What a thread waits for.
  struct Wait {
    std::function<bool()> is_over;         ///< Asked with the lock.
    std::function<std::string()> subject;  ///< For whoever reads why all wait.
    TimePoint until = TimePoint::max();
  };

  /// Another thread of `rank`, which gets its first turn later.
  void add_locked(Rank rank, std::function<void()> work);
  /// Runs all that were added, and what they add, to their ends.
  void run_all();
  /// Waits, for a thread that was added. Throws TransportError where the job has ended, and for
  /// other threads.
  void wait_locked(Lock& lock, Wait wait);
  /// For a thread that asks whether something has happened: lets others run when it has asked often
  /// in one turn, or it would ask for ever.
  void poll_locked(Lock& lock);
  /// Of the thread that runs.
  static Rank rank_of_this_thread();

  /// All waits throw this from now on; the first reason counts.
  void end_job_locked(const std::string& reason);
  /// Throws TransportError where the job has ended.
  void check_job_locked() const;
  /// Why the job has ended; empty: it has not.
  const std::string& reason_locked() const { return reason_; }
  /// What the lowest rank has thrown that the end of the job did not make it throw.
  std::exception_ptr first_failure_locked() const { return failure_; }

  TimePoint now_locked() const { return now_; }
  std::uint64_t draw_locked(std::uint64_t below) { return draws_() % below; }
  std::mutex& mutex() const { return mutex_; }
  /// Something has changed that threads may ask for.
  void note_change_locked() { ++changes_; }

 protected:
  /// When something happens next without any thread; max: never.
  virtual TimePoint next_moment_locked() = 0;
  /// Does what is due.
  virtual void do_due_locked() = 0;
  /// The job has ended just now.
  virtual void note_end_locked() = 0;
  /// Whether an exception is how a rank dies, and no failure.
  virtual bool is_death(const std::exception_ptr& thrown) const = 0;

 private:
  struct Member {
    Rank rank;
    Wait wait;
    std::condition_variable turn;
    bool has_ended = false;
    int polls = 0;  ///< In this turn.
    std::thread thread{};
  };

  void run_member(Member& member, const std::function<void()>& work);
  void note_failure_locked(Rank rank, const std::exception_ptr& thrown);
  void pass_on_locked();
  Member* choose_locked();
  bool advance_locked();
  std::string all_wait_locked() const;

  mutable std::mutex mutex_;
  std::condition_variable all_ended_;
  std::mt19937_64 draws_;
  TimePoint now_{};
  std::uint64_t changes_ = 0;
  std::list<Member> members_;
  Member* running_ = nullptr;
  std::string reason_;
  Rank failed_;
  std::exception_ptr failure_;
};

}  // namespace spillway::transport
