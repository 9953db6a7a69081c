#pragma once

#include <optional>

#include "signal/factory.h"
#include "signal/fault_handler.h"
#include "spillway/memory/address_space.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory::signal {

/// Moves frames with mremap, or copies them; pages without a frame are closed to all access, and
/// the trap of whoever touches one is served on its own thread.
class Mapper final : public FrameMapper {
 public:
  explicit Mapper(Movement movement) : movement_(movement) {}
  Regions reserve(Bytes arena_size, Bytes pool_size, AccessSink& sink) override;
  MoveResult map(std::byte* page, std::byte* pool_slot, Access allowed) override;
  MoveResult unmap(std::byte* pool_slot, std::byte* page) override;
  void forbid_writes(std::byte* first, std::size_t pages) override;
  void allow_writes(std::byte* first, std::size_t pages) override;
  void wake(std::byte* page) override;

 private:
  void note_access(const std::byte* first, std::size_t pages);
  MoveResult copy_in(std::byte* page, std::byte* pool_slot, Access allowed);
  MoveResult copy_out(std::byte* pool_slot, std::byte* page);

  Movement movement_;
  AddressSpace arena_;
  AddressSpace pool_;
  PageChanges changes_;
  std::optional<FaultHandler> handler_;  ///< Last: leaves before the memory does.
};

}  // namespace spillway::memory::signal
