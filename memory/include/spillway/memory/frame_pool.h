#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/strong_id.h"

namespace spillway::memory {

/// A place in the pool's address space; it holds a frame or is empty.
using SlotId = StrongId<struct PoolSlotTag>;

/// Gives slots of a pool their physical memory.
class FrameSource {
 public:
  virtual ~FrameSource() = default;

  /// Makes a frame in an empty slot. Throws Error with the reason, and changes nothing, where
  /// others have taken the memory meanwhile that was promised; a source whose memory is its own
  /// ends the process.
  virtual void make_frame(SlotId slot) = 0;
  /// Gives the frame in a slot back to the system, and its bytes up.
  virtual void drop_frame(SlotId slot) = 0;
};

/// Keeps the frames that lie under no page, and the empty slots that frames return to. Frames are
/// made on first need and recycled without clearing after that. Not thread-safe: the owner of the
/// residency states guards it.
class FramePool {
 public:
  /// `source` has `slot_count` slots and outlives the pool. `limit` (at most `slot_count`) bounds
  /// the frames that exist, free ones and mapped ones together.
  FramePool(FrameSource& source, std::size_t slot_count, std::size_t limit);

  /// Has `count` frames at rest, made now if need be. False where the limit allows no more, or the
  /// source makes no more: `refusal` says why then, and until `ask_again` nobody asks.
  bool provide(std::size_t count);

  /// A slot that holds a frame, or nothing when there is none to be had.
  std::optional<SlotId> take_frame();

  /// Why the source has made no more frames; empty: it has made all that it was asked for.
  const std::string& refusal() const { return refusal_; }
  void ask_again() { refusal_.clear(); }

  /// Gives a frame back that was taken and not mapped, or has been unmapped into `slot`.
  void put_frame(SlotId slot);

  /// An empty slot to unmap a page into. There is one for every frame that was taken and mapped.
  SlotId take_empty_slot();

  /// Gives an emptied slot back: after its frame was mapped, or when an unmap failed.
  void put_empty_slot(SlotId slot);

  /// Notes that a taken frame was destroyed elsewhere (its page was dropped, not unmapped).
  void forget_frame();

  /// Changes how many frames may exist. Lowering drops free frames at once (their memory goes back
  /// to the system); frames in use are dropped as they return.
  void set_limit(std::size_t frames);

  /// Gives the memory of one free frame back to the system; a new one may be made later.
  void drop_free_frame();

  /// Has the memory of the frames that are at rest now replaced when they are taken. For the parent
  /// after fork(2), which leaves every frame shared with the child: a shared frame is copied before
  /// it moves, and its huge page is lost. Contents go; frames at rest have none that matter.
  void renew_free_frames() { to_renew_ = full_.size(); }

  std::size_t limit() const { return limit_; }
  std::size_t free_frames() const { return full_.size(); }   ///< Frames at rest.
  std::size_t existing_frames() const { return existing_; }  ///< At rest, taken, or mapped.
  /// How many frames `take_frame` can still give: at rest, or not made yet and not known to be
  /// refused.
  std::size_t available_frames() const {
    const bool can_be_made = limit_ > existing_ && refusal_.empty();
    return full_.size() + (can_be_made ? limit_ - existing_ : 0);
  }

 private:
  FrameSource& source_;
  std::size_t slot_count_;
  std::size_t limit_;
  std::size_t existing_ = 0;
  std::size_t to_renew_ = 0;  ///< So many of `full_`, from the first on, are to be renewed.
  std::vector<SlotId> full_;  ///< Last in, first out: the warmest frame is reused first.
  std::vector<SlotId> empty_;
  std::string refusal_;
};

}  // namespace spillway::memory
