#include "userfaultfd/mapper.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "raw_calls.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::memory::userfaultfd {
namespace {

// Direct I/O that has just ended lets go of its pages on a kernel worker, which needs the core.
constexpr int kBusyAttempts = 64;

constexpr std::size_t kMessagesAtOnce = 64;

// The arena is opened in steps of so many bytes, or it would be done for nearly every storage.
constexpr std::size_t kOpeningStep = std::size_t{64} << 20;

Access access_of(const uffd_msg& message) {
  constexpr std::uint64_t kWriting = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;
  return (message.arg.pagefault.flags & kWriting) != 0 ? Access::kWrite : Access::kRead;
}

}  // namespace

std::unique_ptr<FrameMapper> make_mapper(Scope scope) { return std::make_unique<Mapper>(scope); }

FrameMapper::Regions Mapper::reserve(Bytes arena_size, Bytes pool_size, AccessSink& sink) {
  SPILLWAY_ASSERT(sink_ == nullptr);
  arena_ = AddressSpace(arena_size, AddressSpace::Opened::kAsNeeded, "paged storages");
  pool_ = AddressSpace(pool_size, AddressSpace::Opened::kAtOnce, "the frame pool");
  // Refused where huge pages are not built in: frames then consist of small pages, only slower.
  raw_madvise(arena_.begin(), arena_.size(), MADV_HUGEPAGE);
  raw_madvise(pool_.begin(), pool_.size(), MADV_HUGEPAGE);
  // Frames at rest hold nothing that a core should show.
  raw_madvise(pool_.begin(), pool_.size(), MADV_DONTDUMP);
  descriptor_.watch(arena_.begin(), arena_.size(),
                    UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
  // Frames move only into watched memory. Watching writes alone lets the kernel fill empty slots.
  descriptor_.watch(pool_.begin(), pool_.size(), UFFDIO_REGISTER_MODE_WP);
  write_protected_ = std::vector<std::atomic<bool>>(arena_.size() / kPageBytes);
  sink_ = &sink;
  start_fault_thread();
  return {arena_.begin(), pool_.begin()};
}

Mapper::~Mapper() {
  if (fault_thread_ == nullptr) return;
  if (!descriptor_.table().is_reachable()) {
    // The thread did not follow into this process; even to detach it would free it twice.
    static_cast<void>(fault_thread_.release());
    return;
  }
  descriptor_.table().run([this] {
    const std::uint64_t one = 1;
    if (write(stop_event_, &one, sizeof one) != sizeof one) {
      die_of_refusal("write(eventfd)", &stop_event_, errno);
    }
  });
  fault_thread_->join();  // Its table goes with it, and what is open there.
}

void Mapper::prepare(std::byte* first, std::size_t pages) {
  const int error = open_until(first + pages * kPageBytes);
  if (error != 0)
    throw UnsupportedError("cannot make {} of address space writable for paged storages: {}",
                           kPageSize * pages, why_refused(error, kPageSize * pages));
}

/// Opens the arena in front of `end`. Its open part stays one mapping.
int Mapper::open_until(const std::byte* end) {
  const auto wanted = static_cast<std::size_t>(end - arena_.begin());
  if (wanted <= open_bytes_.load(std::memory_order_acquire)) return 0;
  const std::lock_guard lock(opening_);
  if (wanted <= open_bytes_.load(std::memory_order_relaxed)) return 0;
  const std::size_t in_steps = (wanted + kOpeningStep - 1) / kOpeningStep * kOpeningStep;
  // Where a limit leaves no room for a whole step, as much as is needed.
  int error = 0;
  for (const std::size_t target : {std::min(in_steps, arena_.size()), wanted}) {
    error = arena_.open_until(arena_.begin() + target);
    if (error != 0) continue;
    open_bytes_.store(target, std::memory_order_release);
    break;
  }
  return error;
}

MoveResult Mapper::map(std::byte* page, std::byte* pool_slot, Access allowed) {
  const int refused = open_until(page + kPageBytes);
  if (refused != 0) die_of_refusal("mprotect", page, refused);
  const bool write_protected = allowed == Access::kRead;
  Attempt attempt = move_patiently(page, pool_slot, 0);
  if (attempt.error == EBUSY) {
    // A frame shared with a forked child moves once it has been copied.
    populate(pool_slot + attempt.moved, kPageBytes - attempt.moved);
    attempt = move_patiently(page, pool_slot, attempt.moved);
  }
  if (attempt.error == EBUSY && attempt.moved == 0) return MoveResult::kBusy;
  // A page that the program has locked (mlock) takes no frame from elsewhere, only a copy.
  const bool locked = attempt.error == EINVAL;
  if (attempt.error == EBUSY || locked) {
    // Threads may already use the first small pages of the frame, so there is no way back. What
    // holds the others only reads them or has ended, for a frame in the pool is its owner's alone.
    attempt.error = descriptor_.copy(page + attempt.moved, pool_slot + attempt.moved,
                                     kPageBytes - attempt.moved, write_protected);
    if (attempt.error == 0) discard(pool_slot + attempt.moved, kPageBytes - attempt.moved);
  }
  if (attempt.error != 0) die_of_refusal("UFFDIO_MOVE into a page", page, attempt.error);
  if (write_protected) descriptor_.set_write_protected(page, kPageBytes, true);
  write_protected_at(page) = write_protected;
  descriptor_.wake(page, kPageBytes);
  return MoveResult::kMoved;
}

MoveResult Mapper::unmap(std::byte* pool_slot, std::byte* page) {
  std::atomic<bool>& write_protected = write_protected_at(page);
  Attempt attempt = move_patiently(pool_slot, page, 0);
  if (attempt.error == EBUSY) {
    // Perhaps a forked child shares it. What is write-protected stays so.
    std::byte* const rest = page + attempt.moved;
    if (write_protected) {
      if (!unshare(rest, kPageBytes - attempt.moved)) cannot_unshare_ = true;
    } else {
      populate(rest, kPageBytes - attempt.moved);
    }
    attempt = move_patiently(pool_slot, page, attempt.moved);
  }
  // EINVAL: the program has locked the page in memory (mlock), so there it stays.
  if (attempt.error == EBUSY || attempt.error == EINVAL) {
    put_back(page, pool_slot, attempt.moved);
    return MoveResult::kBusy;
  }
  if (attempt.error != 0) die_of_refusal("UFFDIO_MOVE out of a page", page, attempt.error);
  write_protected = false;
  return MoveResult::kMoved;
}

void Mapper::forbid_writes(std::byte* first, std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i) write_protected_at(first + i * kPageBytes) = true;
  descriptor_.set_write_protected(first, pages * kPageBytes, true);
}

void Mapper::allow_writes(std::byte* first, std::size_t pages) {
  descriptor_.set_write_protected(first, pages * kPageBytes, false);
  for (std::size_t i = 0; i < pages; ++i) write_protected_at(first + i * kPageBytes) = false;
  if (cannot_unshare_) populate(first, pages * kPageBytes);
}

void Mapper::wake(std::byte* page) {
  descriptor_.replace_lost_number();
  descriptor_.wake(page, kPageBytes);
}

std::atomic<bool>& Mapper::write_protected_at(const std::byte* page) {
  SPILLWAY_ASSERT(arena_.contains(page));
  const auto offset = static_cast<std::size_t>(page - arena_.begin());
  SPILLWAY_ASSERT(offset % kPageBytes == 0);
  return write_protected_[offset / kPageBytes];
}

/// Moves what is left of one frame; gives up with EBUSY after some attempts without progress.
Mapper::Attempt Mapper::move_patiently(std::byte* to, std::byte* from, std::size_t already_moved) {
  Attempt attempt{0, already_moved};
  int futile = 0;
  while (attempt.moved < kPageBytes) {
    std::size_t step = 0;
    attempt.error = descriptor_.move(to + attempt.moved, from + attempt.moved,
                                     kPageBytes - attempt.moved, step);
    attempt.moved += step;
    if (attempt.error == 0) break;
    if (attempt.error != EBUSY && attempt.error != EAGAIN) return attempt;
    if (step > 0) {
      futile = 0;
    } else if (++futile == kBusyAttempts) {
      attempt.error = EBUSY;
      return attempt;
    } else {
      sched_yield();
    }
  }
  attempt.error = 0;
  return attempt;
}

/// Undoes the first `moved` bytes of a move to the pool. By copying, because only a copy can appear
/// write-protected at once; moved back, a protected page would be writable for a moment.
void Mapper::put_back(std::byte* page, std::byte* pool_slot, std::size_t moved) {
  if (moved == 0) return;
  const int error = descriptor_.copy(page, pool_slot, moved, write_protected_at(page));
  if (error != 0) die_of_refusal("UFFDIO_COPY", page, error);
  discard(pool_slot, moved);
  descriptor_.wake(page, kPageBytes);
}

void Mapper::start_fault_thread() {
  descriptor_.table().run([this] {
    stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_event_ < 0) throw UnsupportedError("eventfd is refused: {}", std::strerror(errno));
  });
  try {
    fault_thread_ = std::make_unique<std::thread>(
        descriptor_.table().start_thread([this] { run_on_fault_thread(); }));
  } catch (const std::system_error&) {
    throw UnsupportedError("no thread can be started that serves faults: {}", why_no_thread());
  }
}

void Mapper::run_on_fault_thread() {
  pthread_setname_np(pthread_self(), "spillway-fault");
  std::array<pollfd, 2> watched{
      {{descriptor_.number_there(), POLLIN, 0}, {stop_event_, POLLIN, 0}}};
  while (true) {
    if (poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      die_of_refusal("poll(userfaultfd)", arena_.begin(), errno);
    }
    if (watched[1].revents != 0) return;
    while (report_faults_on_fault_thread()) {
    }
  }
}

/// Returns whether there may be more to read.
bool Mapper::report_faults_on_fault_thread() {
  std::array<uffd_msg, kMessagesAtOnce> messages;
  const ssize_t size = read(descriptor_.number_there(), messages.data(), sizeof messages);
  if (size < 0) {
    if (errno == EAGAIN) return false;
    if (errno == EINTR) return true;
    die_of_refusal("read(userfaultfd)", arena_.begin(), errno);
  }
  const std::size_t count = static_cast<std::size_t>(size) / sizeof(uffd_msg);
  for (std::size_t i = 0; i < count; ++i) {
    if (messages[i].event != UFFD_EVENT_PAGEFAULT) continue;
    // An offset instead of a cast to a pointer; what lies below the arena wraps round to a huge
    // one.
    const std::uint64_t offset =
        messages[i].arg.pagefault.address - reinterpret_cast<std::uintptr_t>(arena_.begin());
    if (offset >= arena_.size()) continue;
    sink_->begin_access(static_cast<PageIndex>(offset / kPageBytes), access_of(messages[i]));
  }
  return count == kMessagesAtOnce;
}

}  // namespace spillway::memory::userfaultfd
