// Accesses that no operator announced, and what is left of them after a fork.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine_state.h"

namespace spillway::swap {

using memory::Access;
using memory::kPageBytes;
using memory::PageIndex;

namespace {

void end_with_segmentation_fault(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
  ::signal(SIGSEGV, SIG_DFL);
  ::kill(::getpid(), SIGSEGV);
}

// Set in a forked child only: where the paged memory of its parent lies.
std::byte* child_arena = nullptr;
std::size_t child_arena_bytes = 0;
struct sigaction child_previous_action;

void report_fault_in_child(int signal, siginfo_t* info, void* context) {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(info->si_addr) - child_arena);
  if (offset < child_arena_bytes) {
    end_with_segmentation_fault(
        "[spillway] error: a forked child touched a tensor that was spilled when it was forked; "
        "fork before training, use threads, or copy what the child needs before the fork\n");
    return;
  }
  if ((child_previous_action.sa_flags & SA_SIGINFO) != 0) {
    child_previous_action.sa_sigaction(signal, info, context);
  } else {
    ::sigaction(SIGSEGV, &child_previous_action, nullptr);  // The access repeats without us.
  }
}

}  // namespace

void SwapEngine::State::begin_fault(std::byte* address, Access access) {
  const TimePoint start = clock_.now();
  Lock lock(mutex_);
  const auto index = static_cast<PageIndex>((address - arena_base_) / kPageBytes);
  if (!find(address).range.is_some()) {
    lock.unlock();
    end_with_segmentation_fault(
        "[spillway] error: the program touched tensor memory after it was freed\n");
    return;
  }
  Page& page = pages_.get()[index];
  Range& range = range_of(page.range);
  ++counts_.faults;
  range.faulted = true;
  touch_page_locked(range, index - range.first);
  switch (page.state) {
    case PageState::kOut:
      page.state = PageState::kReadQueued;
      [[fallthrough]];
    case PageState::kReadQueued:
      page.open_on_arrival = true;
      open_faults_.push_back({index, start});
      std::erase(demand_reads_, index);  // It stands in one queue only, now in the faster one.
      if (std::find(fault_reads_.begin(), fault_reads_.end(), index) == fault_reads_.end())
        fault_reads_.push_back(index);
      make_room_locked();
      kick_locked();
      break;
    case PageState::kReading:
      page.open_on_arrival = true;
      open_faults_.push_back({index, start});
      break;
    case PageState::kResident:
    case PageState::kWriteQueued:
    case PageState::kWriting:
      if (access == Access::kWrite && page.closed) {
        if (page.state != PageState::kResident) cancel_write_locked(page);
        page.dirty = true;
        page.closed = false;
        if (page.state == PageState::kResident) drop_extent_locked(page);
        mapper_->allow_writes(address_of(index), 1);
      } else {
        mapper_->wake(address_of(index));
      }
      counts_.fault_wait += clock_.now() - start;
      break;
  }
}

/// The page has come, or is gone for good: nobody waits for it any more.
void SwapEngine::State::end_faults_locked(PageIndex index) {
  if (open_faults_.empty()) return;
  const TimePoint now = clock_.now();
  std::erase_if(open_faults_, [&](const OpenFault& fault) {
    if (fault.index != index) return false;
    counts_.fault_wait += now - fault.start;
    return true;
  });
}

void SwapEngine::State::serve_fault(std::byte* address, Access access) {
  begin_fault(address, access);
  Lock lock(mutex_);
  const auto index = static_cast<PageIndex>((address - arena_base_) / kPageBytes);
  const Page& page = pages_.get()[index];
  while (find(address).range.is_some() &&
         (page.state == PageState::kOut || page.state == PageState::kReadQueued ||
          page.state == PageState::kReading)) {
    ++waiters_;
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    --waiters_;
    if (page.state == PageState::kOut) {
      lock.unlock();
      begin_fault(address, access);
      lock.lock();
    }
  }
}

void SwapEngine::State::leave_fork_in_parent() {
  has_forked_ = true;
  pool_->renew_free_frames();
}

/// The child has a copy of what was resident, and neither the I/O thread nor the fault thread.
void SwapEngine::State::enter_child() {
  off_.store(true);
  child_arena = arena_base_;
  child_arena_bytes = arena_pages_ * kPageBytes;
  bool any_out = false;
  for (const Range& range : ranges_) {
    if (!range.is_live) continue;
    for (std::uint32_t i = 0; i < range.pages; ++i) {
      const PageState state = pages_.get()[range.first + i].state;
      if (state != PageState::kOut && state != PageState::kReadQueued &&
          state != PageState::kReading)
        continue;
      memory::seal_pages(address_of(range.first + i), 1);
      any_out = true;
    }
  }
  if (!any_out) return;
  struct sigaction action {};
  action.sa_sigaction = report_fault_in_child;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &child_previous_action);
}

}  // namespace spillway::swap
