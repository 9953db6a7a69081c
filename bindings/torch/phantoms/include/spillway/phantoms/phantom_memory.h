#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace spillway::phantoms {

/// Addresses without memory: whoever touches them faults. For storages of phantoms; nothing is
/// taken but address space, of which ended storages give theirs to later ones. Any thread. Throws
/// std::bad_alloc without address space.
class PhantomMemory final : public c10::Allocator {
 public:
  /// Lives as long as the process: storages end after static objects.
  static PhantomMemory& instance();

  c10::DataPtr allocate(std::size_t bytes) override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

  /// By which storages of phantoms are known.
  static c10::DeleterFnPtr deleter();
  /// Whether an address is one of these, of a block that has ended, too. Safe in signal handlers.
  static bool contains(const void* address) noexcept;
  /// Is told of each block that ends, on the thread that ends it. Set once.
  using EndObserver = void (*)(const void* address) noexcept;
  static void observe_ends(EndObserver observer);

 private:
  PhantomMemory() = default;
};

}  // namespace spillway::phantoms
