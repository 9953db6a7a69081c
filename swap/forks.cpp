// What fork(2) leaves of the engine: in the parent all of it, in the child the bytes.
//
// A child has neither the I/O thread nor the fault thread. It reads pages that were out from their
// extents, which the parent keeps unchanged for it (forked_children.h). Where the store is a file,
// such a page becomes a private mapping of it at once: no signal is needed, system calls work, and
// children share the page cache. Else (memory, checksums) it is sealed and filled when touched.

#include <cerrno>
#include <csignal>

#include "engine_state.h"
#include "page_run.h"
#include "spillway/base/end_by_signal.h"
#include "store/extent_place.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {

// Each takes one of the 65530 mappings that a process may have by default. What is beyond is filled
// when touched.
constexpr std::size_t kShownPagesMax = 16384;

constexpr const char* kCannotRead =
    "a forked child cannot read a page of a tensor that was spilled when it was forked";

[[noreturn]] void end_as_unreadable() { end_by_signal(SIGBUS, kCannotRead, EIO); }

}  // namespace

void SwapEngine::State::begin_fork_locked() {
  // A child of a child inherits what the first one made of its pages.
  if (off_.load() || !is_inherited()) return;
  is_child_known_ = extents_held_ == 0 || children_.begin_fork();
}

void SwapEngine::State::leave_fork_in_parent() {
  if (off_.load() || !is_inherited()) return;
  children_.end_fork_in_parent();
  pool_->renew_free_frames();
}

void SwapEngine::State::enter_child() {
  if (off_.exchange(true)) return;
  children_.end_fork_in_child();
  memory::InheritedPages* const inherited = memory_->inherited_pages();
  if (inherited == nullptr) return;
  const auto seal = [&](PageIndex first, std::uint32_t pages) { inherited->seal(first, pages); };
  const auto open = [&](PageIndex first, std::uint32_t pages) {
    inherited->make_writable(first, pages);
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
      const Absence absence = absence_of(page);
      if (absence == Absence::kUnfilled) {
        page.state = PageState::kResident;  // Never filled: the child fills a page of its own.
        protected_run.add(index, open);
        continue;
      }
      any_out = true;
      page.state = PageState::kOut;
      const bool is_shown = absence == Absence::kStored && !range.is_dropped;
      if (is_shown && shown < kShownPagesMax && show_in_child(index)) {
        ++shown;
      } else {
        sealed.add(index, seal);
      }
    }
  }
  sealed.end(seal);
  protected_run.end(open);
  if (any_out) inherited->report_accesses(end_as_unreadable);
}

/// Maps the file of the store where a page was out. Its bytes come as they are touched.
bool SwapEngine::State::show_in_child(PageIndex index) {
  Page& page = pages_.get()[index];
  if (!is_child_known_) return false;
  const ExtentPlace place = store_->locate(page.extent);
  if (place.has_checksum || place.file < 0) return false;
  if (!memory_->inherited_pages()->show_file(index, place.file, place.offset)) return false;
  page.state = PageState::kResident;
  return true;
}

/// Serves an access of a forked child to a page that is sealed.
void SwapEngine::State::fill_in_child(PageIndex index) {
  memory::InheritedPages& inherited = *memory_->inherited_pages();
  if (!addresses_.has_storage(index)) end_by_signal(SIGSEGV, kTouchedAfterFree);
  Lock lock(mutex_);
  Page& page = pages_.get()[index];
  if (has_bytes_in_memory(page.state)) {
    inherited.make_writable(index, 1);  // Another thread was faster, or it was write-protected.
    return;
  }
  if (range_of(page).is_dropped)
    end_by_signal(SIGBUS, "a forked child touched a tensor that was to be recomputed when it was "
                          "forked; run with --recompute off");
  if (!is_child_known_)
    end_by_signal(SIGSEGV,
                  "a forked child touched a tensor that was spilled when it was forked, and the "
                  "system gave the parent no descriptor to keep it by; raise ulimit -n");
  std::byte* const staged = inherited.stage();
  if (staged == nullptr) end_by_signal(SIGBUS, kCannotRead, errno);
  const int error = read_extent(store_->locate(page.extent), staged, transfer_size(index));
  if (error != 0) end_by_signal(SIGBUS, kCannotRead, error);
  if (!inherited.place(index, staged)) end_by_signal(SIGBUS, kCannotRead, errno);
  page.state = PageState::kResident;
}

}  // namespace spillway::swap
