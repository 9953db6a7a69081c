#pragma once

#include <string>

#include "spillway/base/bytes.h"
#include "spillway/base/error.h"

namespace spillway::swap {

/// The pages that must be resident together exceed the budget, or, with a `reason`, what the device
/// has left of it. Nothing was changed.
class NoRoomError : public BudgetError {
 public:
  NoRoomError(Bytes wanted_bytes, Bytes held_bytes, Bytes small_bytes, Bytes budget,
              const std::string& reason = {})
      : BudgetError("no room for {} beside {} in use under a budget of {}{}{}", wanted_bytes,
                    held_bytes + small_bytes, budget,
                    reason.empty() ? ""
                                   : ", of which not all "
                                     "is there: ",
                    reason),
        wanted(wanted_bytes),
        held(held_bytes) {}
  Bytes wanted;
  Bytes held;  ///< By the operator itself.
};

/// It would fit, but the kernel lets too little leave.
class PinnedByKernelError : public BudgetError {
 public:
  using BudgetError::BudgetError;
};

/// It would fit, but a device tells nothing of the work that uses the rest.
class NotToldError : public BudgetError {
 public:
  using BudgetError::BudgetError;
};

/// Tensors take all addresses that are reserved for them, in memory and on disk together. Nothing
/// was changed.
class AddressesError : public UnsupportedError {
 public:
  using UnsupportedError::UnsupportedError;
};

/// The store takes nothing more: it is full or broken. What was to leave is still in memory.
class StoreError : public IoError {
 public:
  using IoError::IoError;
};

/// What the store holds does not come back, or not as it was written. Who asks again gets a read of
/// its own.
class UnreadableError : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace spillway::swap
