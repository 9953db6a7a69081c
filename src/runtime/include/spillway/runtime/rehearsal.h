#pragma once

#include "spillway/runtime/runtime.h"

namespace spillway::runtime {

/// A second run of the running operator of this thread, for as long as the object lives: its
/// allocations are not learned, its time does not count, and an allocation that fails is not
/// reported as a refusal.
class Rehearsal {
 public:
  explicit Rehearsal(Runtime& runtime);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  /// Whether an allocation has failed with NoRoomError or StoreError.
  bool ran_out_of_room() const;

 private:
  Runtime& runtime_;
  Runtime::Mark start_;
};

}  // namespace spillway::runtime
