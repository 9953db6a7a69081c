#include "turns.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway::transport {
namespace {

/// Who ends because the job has ended, which is not its own failure.
class EndedWithJob final : public TransportError {
 public:
  using TransportError::TransportError;
};

constexpr int kPollsInATurn = 1000;

/// Those of the thread's own, as long as it is a member.
thread_local Rank rank_here;
thread_local void* member_here = nullptr;

}  // namespace

Rank Turns::rank_of_this_thread() { return rank_here; }

void Turns::add_locked(Rank rank, std::function<void()> work) {
  Member& member = members_.emplace_back();
  member.rank = rank;
  member.thread =
      std::thread([this, &member, work = std::move(work)] { run_member(member, work); });
}

void Turns::run_member(Member& member, const std::function<void()>& work) {
  rank_here = member.rank;
  member_here = &member;
  std::exception_ptr thrown;
  {
    Lock lock(mutex_);
    member.turn.wait(lock, [&] { return running_ == &member; });
  }
  try {
    work();
  } catch (...) {
    thrown = std::current_exception();
  }
  Lock lock(mutex_);
  if (thrown) note_failure_locked(member.rank, thrown);
  member.has_ended = true;
  note_change_locked();
  pass_on_locked();
}

void Turns::note_failure_locked(Rank rank, const std::exception_ptr& thrown) {
  if (is_death(thrown)) return;
  std::string words = "something that is no std::exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const EndedWithJob&) {
    return;
  } catch (const std::exception& error) {
    words = error.what();
  } catch (...) {
  }
  if (failure_ == nullptr || rank < failed_) {
    failure_ = thrown;
    failed_ = rank;
  }
  end_job_locked(message("rank {} has failed: {}", rank, words));
}

void Turns::end_job_locked(const std::string& reason) {
  if (!reason_.empty()) return;
  reason_ = reason;
  note_end_locked();
  note_change_locked();
}

void Turns::check_job_locked() const {
  if (!reason_.empty()) throw EndedWithJob("{}", reason_);
}

void Turns::run_all() {
  Lock lock(mutex_);
  pass_on_locked();
  all_ended_.wait(lock, [this] { return running_ == nullptr; });
  lock.unlock();
  for (Member& member : members_) member.thread.join();
}

/// Gives the turn to somebody, or to nobody where all have ended.
void Turns::pass_on_locked() {
  running_ = choose_locked();
  (running_ != nullptr ? running_->turn : all_ended_).notify_one();
}

Turns::Member* Turns::choose_locked() {
  while (true) {
    do_due_locked();
    std::vector<Member*> ready;
    bool all_have_ended = true;
    for (Member& member : members_) {
      if (member.has_ended) continue;
      all_have_ended = false;
      const Wait& wait = member.wait;
      if (!reason_.empty() || wait.until <= now_ || !wait.is_over || wait.is_over())
        ready.push_back(&member);
    }
    if (all_have_ended) return nullptr;
    if (!ready.empty()) return ready[draw_locked(ready.size())];
    if (!advance_locked()) end_job_locked(all_wait_locked());
  }
}

/// Goes to the next moment at which something happens; false: nothing ever will.
bool Turns::advance_locked() {
  TimePoint next = next_moment_locked();
  for (const Member& member : members_)
    if (!member.has_ended) next = std::min(next, member.wait.until);
  if (next == TimePoint::max()) return false;
  now_ = std::max(now_, next);
  note_change_locked();
  return true;
}

std::string Turns::all_wait_locked() const {
  std::string text = "all ranks wait for one another:";
  const char* separator = " ";
  for (const Member& member : members_) {
    if (member.has_ended) continue;
    text += message("{}rank {} for {}", separator, member.rank, member.wait.subject());
    separator = ", ";
  }
  return text;
}

void Turns::wait_locked(Lock& lock, Wait wait) {
  if (member_here == nullptr)
    throw TransportError("a thread waits for {} that is not known to be of a rank", wait.subject());
  Member& self = *static_cast<Member*>(member_here);
  self.wait = std::move(wait);
  pass_on_locked();
  self.turn.wait(lock, [&] { return running_ == &self; });
  self.wait = {};
  self.polls = 0;
  check_job_locked();
}

void Turns::poll_locked(Lock& lock) {
  if (member_here != nullptr && ++static_cast<Member*>(member_here)->polls < kPollsInATurn) return;
  wait_locked(lock, {.is_over = [this, before = changes_] { return changes_ != before; },
                     .subject = [] { return "anything to change"; }});
}

}  // namespace spillway::transport
