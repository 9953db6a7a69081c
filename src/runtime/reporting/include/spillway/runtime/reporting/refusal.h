#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "spillway/base/error.h"

namespace spillway::runtime {

/// Why a run could not go on, or only slowly.
enum class RefusalCause : std::uint8_t {
  kNone,
  kBudget,         ///< An operator does not fit.
  kStore,          ///< The spill store takes nothing more.
  kUnreadable,     ///< Bytes in the store cannot be read back.
  kRecomputation,  ///< A dropped tensor cannot be recomputed.
  kPinned,         ///< The kernel keeps tensors in memory that are locked or in use by a device.
  kAddresses,      ///< The reserved addresses are used up, by tensors in memory and on disk.
};

inline constexpr std::size_t kRefusalCauses = 7;

/// As the statistics file calls it: "store"; empty for none.
std::string name_of(RefusalCause cause);

/// The next step for the user. Empty for none, and for an operator that does not fit: there the
/// budget that would do is known.
std::string remedy(RefusalCause cause);

struct Refusal {
  RefusalCause cause = RefusalCause::kNone;
  std::string text;  ///< The event and its operator; no sentence yet.
};

/// Whether it is of the spill store, of a replay, of what the kernel keeps, or of addresses. What
/// does not fit is told of in another way.
bool is_refusal(const Error& error);

/// Of such an error, thrown when `who`, an operator, needed something.
Refusal refusal_by(const Error& error, const std::string& who);

/// The same as one sentence or two, with what has become of the tensors and what to do next.
std::string sentence_of(const Refusal& refusal);

}  // namespace spillway::runtime
