// What fork(2) leaves of the engine: in the parent all of it, in the child the bytes.
//
// A child has neither the I/O thread nor the fault thread. It reads pages that were out from their
// extents, which the parent keeps unchanged for it (forked_children.h). Where the store is a file,
// such a page becomes a private mapping of it at once: no signal is needed, system calls work, and
// children share the page cache. Else (memory, checksums) it is sealed and filled when touched.

#include <signal.h>
#include <ucontext.h>

#include <cerrno>

#include "end_by_signal.h"
#include "engine_state.h"
#include "page_run.h"
#include "spillway/memory/hand_on_signal.h"
#include "spillway/memory/inherited_pages.h"
#include "store/extent_place.h"

namespace spillway::swap {

using memory::kPageBytes;
using memory::PageIndex;

namespace {

// Each takes one of the 65530 mappings that a process may have by default. What is beyond is filled
// when touched.
constexpr std::size_t kShownPagesMax = 16384;

constexpr const char* kCannotRead =
    "a forked child cannot read a page of a tensor that was spilled when it was forked";

/// Set in a forked child only, for its signal handler.
struct ChildOfFork {
  memory::FaultSink* engine = nullptr;
  std::byte* arena = nullptr;
  std::size_t arena_bytes = 0;
  struct sigaction previous_of_segv {};
  struct sigaction previous_of_bus {};
};
ChildOfFork child;

void handle_in_child(int number, siginfo_t* info, void* context) {
  const int error = errno;
  auto* const address = static_cast<std::byte*>(info->si_addr);
  const auto offset = static_cast<std::size_t>(address - child.arena);
  if (info->si_code <= 0 || offset >= child.arena_bytes) {
    memory::hand_on_signal(number == SIGSEGV ? child.previous_of_segv : child.previous_of_bus,
                           number, info, context);
  } else if (number == SIGBUS) {
    end_by_signal(SIGBUS, kCannotRead, EIO);
  } else {
    const sigset_t& blocked = static_cast<const ucontext_t*>(context)->uc_sigmask;
    child.engine->serve_fault(address, memory::Access::kRead, blocked);
  }
  errno = error;
}

void install_handler(int number, struct sigaction& previous) {
  struct sigaction action {};
  action.sa_sigaction = handle_in_child;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  ::sigaction(number, &action, &previous);
}

}  // namespace

void SwapEngine::State::begin_fork_locked() {
  // A child of a child inherits what the first one made of its pages.
  if (off_.load()) return;
  is_child_known_ = extents_held_ == 0 || children_.begin_fork();
}

void SwapEngine::State::leave_fork_in_parent() {
  if (off_.load()) return;
  children_.end_fork_in_parent();
  has_forked_ = true;
  pool_->renew_free_frames();
}

void SwapEngine::State::enter_child() {
  if (off_.exchange(true)) return;
  children_.end_fork_in_child();
  child.engine = this;
  child.arena = arena_base_;
  child.arena_bytes = arena_pages_ * kPageBytes;
  const auto seal = [this](PageIndex first, std::uint32_t pages) {
    memory::seal_pages(address_of(first), pages);
  };
  const auto open = [this](PageIndex first, std::uint32_t pages) {
    memory::open_pages(address_of(first), pages);
  };
  PageRun sealed;
  PageRun protected_run;
  std::size_t shown = 0;
  bool any_out = false;
  for (const Range& range : ranges_) {
    if (!range.is_live || range.is_dying) continue;
    for (PageIndex index = range.first; index < range.first + range.pages; ++index) {
      Page& page = pages_.get()[index];
      if (has_bytes_in_memory(page.state)) {
        if (page.write_protected) protected_run.add(index, open);
        continue;
      }
      if (!page.extent.is_some() && !range.is_dropped) {
        page.state = PageState::kResident;  // Never filled: the child fills a page of its own.
        protected_run.add(index, open);
        continue;
      }
      any_out = true;
      page.state = PageState::kOut;
      if (!range.is_dropped && shown < kShownPagesMax && show_in_child(index)) {
        ++shown;
      } else {
        sealed.add(index, seal);
      }
    }
  }
  sealed.end(seal);
  protected_run.end(open);
  if (!any_out) return;
  install_handler(SIGSEGV, child.previous_of_segv);
  install_handler(SIGBUS, child.previous_of_bus);
}

/// Maps the file of the store where a page was out. Its bytes come as they are touched.
bool SwapEngine::State::show_in_child(PageIndex index) {
  Page& page = pages_.get()[index];
  if (!is_child_known_) return false;
  const ExtentPlace place = store_->locate(page.extent);
  if (place.has_checksum || place.file < 0) return false;
  if (!memory::show_file(address_of(index), 1, place.file, place.offset)) return false;
  page.state = PageState::kResident;
  return true;
}

/// Serves an access of a forked child to a page that is sealed.
void SwapEngine::State::fill_in_child(const std::byte* address) {
  const auto index = static_cast<PageIndex>((address - arena_base_) / kPageBytes);
  if (!addresses_.find(offset_of(address)).storage.is_some())
    end_by_signal(SIGSEGV, kTouchedAfterFree);
  Lock lock(mutex_);
  Page& page = pages_.get()[index];
  if (has_bytes_in_memory(page.state)) {
    memory::open_pages(address_of(index),
                       1);  // Another thread was faster, or it was write-protected.
    return;
  }
  if (range_of(page).is_dropped)
    end_by_signal(SIGBUS,
                  "a forked child touched a tensor that was to be computed again when it was "
                  "forked; run with --recompute off");
  if (!is_child_known_)
    end_by_signal(SIGSEGV,
                  "a forked child touched a tensor that was spilled when it was forked, and the "
                  "system gave the parent no descriptor to keep it by; raise ulimit -n");
  std::byte* const staged = memory::stage_page();
  if (staged == nullptr) end_by_signal(SIGBUS, kCannotRead, errno);
  const int error = read_extent(store_->locate(page.extent), staged, transfer_size(index));
  if (error != 0) end_by_signal(SIGBUS, kCannotRead, error);
  if (!memory::place_page(address_of(index), staged)) end_by_signal(SIGBUS, kCannotRead, errno);
  page.state = PageState::kResident;
}

}  // namespace spillway::swap
