#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "spillway/recompute/replay_engine.h"

namespace spillway::recompute {

/// Stands in for paged memory: LibTorch's CPU allocator, which gives each large block a key.
class PagedTable final : public c10::Allocator {
 public:
  /// Size from which new blocks are paged.
  std::atomic<std::size_t> paged_from{4096};
  /// Is told of blocks that are about to end, and may keep them.
  std::atomic<ReplayEngine*> told{nullptr};

  /// Installed at the first call, for the life of the process.
  static PagedTable& instance();

  c10::DataPtr allocate(std::size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, std::size_t count) const override;

  /// Ends a block without telling.
  void give_back(void* memory);

  PagedStorage find(const void* data) const;
  void* address_of(StorageId id) const;
  std::size_t count() const;

 private:
  struct Block {
    StorageId id;
    std::size_t size = 0;
  };
  static void release(void* memory);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
  std::uint32_t next_slot_ = 0;
};

}  // namespace spillway::recompute
