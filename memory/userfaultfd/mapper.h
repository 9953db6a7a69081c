#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "spillway/memory/address_space.h"
#include "spillway/memory/frame_mapper.h"
#include "userfaultfd/kernel_interface.h"

namespace spillway::memory::userfaultfd {

/// Moves frames with UFFDIO_MOVE and learns of accesses from a userfaultfd, which one thread reads.
class Mapper final : public FrameMapper {
 public:
  explicit Mapper(Scope scope) : descriptor_(scope) {}
  ~Mapper() override;

  Regions reserve(Bytes arena_size, Bytes pool_size, AccessSink& sink) override;
  void prepare(std::byte* first, std::size_t pages) override;
  MoveResult map(std::byte* page, std::byte* pool_slot, Access allowed) override;
  MoveResult unmap(std::byte* pool_slot, std::byte* page) override;
  void forbid_writes(std::byte* first, std::size_t pages) override;
  void allow_writes(std::byte* first, std::size_t pages) override;
  void wake(std::byte* page) override;

 private:
  struct Attempt {
    int error = 0;
    std::size_t moved = 0;
  };

  /// Whether a page is write-protected. Calls for one page never overlap, so no lock guards it;
  /// atomic because a fault may lead from one thread's call to another's through the kernel alone.
  std::atomic<bool>& write_protected_at(const std::byte* page);
  /// Zero or an errno.
  int open_until(const std::byte* end);
  Attempt move_patiently(std::byte* to, std::byte* from, std::size_t already_moved);
  void put_back(std::byte* page, std::byte* pool_slot, std::size_t moved);
  void start_fault_thread();
  void run_on_fault_thread();
  bool report_faults_on_fault_thread();

  FaultDescriptor descriptor_;
  AddressSpace arena_;
  AddressSpace pool_;
  /// Bytes from the start of the arena that may be accessed. What lies beyond was never used: it is
  /// not in cores, nothing can fill it, and only limits of address space count it.
  std::atomic<std::size_t> open_bytes_{0};
  std::mutex opening_;
  std::vector<std::atomic<bool>> write_protected_;
  /// Closed pages that a forked child shares become the parent's own when they are opened, then.
  std::atomic<bool> cannot_unshare_{false};
  AccessSink* sink_ = nullptr;
  int stop_event_ = -1;
  std::unique_ptr<std::thread> fault_thread_;
};

}  // namespace spillway::memory::userfaultfd
