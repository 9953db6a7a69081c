#include "spillway/runtime/reporting/refusal.h"

#include "spillway/swap/swap_errors.h"

namespace spillway::runtime {

std::string name_of(RefusalCause cause) {
  switch (cause) {
    case RefusalCause::kNone: return {};
    case RefusalCause::kBudget: return "budget";
    case RefusalCause::kStore: return "store";
    case RefusalCause::kUnreadable: return "unreadable";
    case RefusalCause::kRecomputation: return "recomputation";
    case RefusalCause::kPinned: return "pinned";
    case RefusalCause::kAddresses: return "addresses";
  }
  return {};
}

std::string remedy(RefusalCause cause) {
  switch (cause) {
    case RefusalCause::kNone:
    case RefusalCause::kBudget: return {};
    case RefusalCause::kStore:
      return "name a directory with more room, or a second one, with --nvme";
    case RefusalCause::kUnreadable:
      return "go on from the last checkpoint, with a directory on another disk (--nvme)";
    case RefusalCause::kRecomputation:
      return "go on from the last checkpoint with --recompute off, which only moves tensors";
    case RefusalCause::kPinned: return "allow more with --budget, or run it without locked memory";
    case RefusalCause::kAddresses:
      return "allow more addresses where a limit is named, or let it hold less: tensors on disk "
             "take "
             "addresses, too";
  }
  return {};
}

bool is_refusal(const Error& error) {
  return dynamic_cast<const IoError*>(&error) != nullptr ||
         dynamic_cast<const RecomputeError*>(&error) != nullptr ||
         dynamic_cast<const swap::PinnedByKernelError*>(&error) != nullptr ||
         dynamic_cast<const swap::AddressesError*>(&error) != nullptr;
}

Refusal refusal_by(const Error& error, const std::string& who) {
  const char* const what = error.what();
  if (dynamic_cast<const RecomputeError*>(&error) != nullptr)
    return {RefusalCause::kRecomputation,
            message("{} needs a dropped tensor that cannot be recomputed: {}", who, what)};
  if (dynamic_cast<const swap::UnreadableError*>(&error) != nullptr)
    return {RefusalCause::kUnreadable,
            message("{} needs a tensor that cannot be read back: {}", who, what)};
  if (dynamic_cast<const swap::PinnedByKernelError*>(&error) != nullptr)
    return {RefusalCause::kPinned, message("{}, needed for {}", what, who)};
  if (dynamic_cast<const swap::AddressesError*>(&error) != nullptr)
    return {RefusalCause::kAddresses, message("{} cannot have its tensors: {}", who, what)};
  return {RefusalCause::kStore, message("{}, needed for {}", what, who)};
}

std::string sentence_of(const Refusal& refusal) {
  const bool is_all_there = refusal.cause == RefusalCause::kStore ||
                            refusal.cause == RefusalCause::kPinned ||
                            refusal.cause == RefusalCause::kAddresses;
  const char* const outlook = is_all_there
                                  ? "All tensors are still there, but the trainer cannot go on"
                                  : "The trainer cannot go on without it";
  return message("{}. {}: {}.", refusal.text, outlook, remedy(refusal.cause));
}

}  // namespace spillway::runtime
