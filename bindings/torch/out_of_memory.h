#pragma once

#include <c10/util/Exception.h>

#include "spillway/base/error.h"
#include "spillway/swap/swap_errors.h"

namespace spillway::torch_binding {

/// Calls `body`. Where that finds no room, under the budget, in the store or among addresses,
/// throws what programs catch for "out of memory", c10::OutOfMemoryError, in the same words. What
/// is lost stays as it was thrown: no smaller batch brings that back.
template <typename Body>
decltype(auto) with_torch_errors(const Body& body) {
  // Without a backtrace: it would be printed behind the words, and is never what helps.
  try {
    return body();
  } catch (const BudgetError& error) {
    throw c10::OutOfMemoryError(error.what());
  } catch (const swap::StoreError& error) {
    throw c10::OutOfMemoryError(error.what());
  } catch (const swap::AddressesError& error) {
    throw c10::OutOfMemoryError(error.what());
  }
}

}  // namespace spillway::torch_binding
