#include "replay_verdicts.h"

namespace spillway::torch_binding {

ReplayVerdicts::Advice ReplayVerdicts::begin(std::uint64_t kind, const c10::FunctionSchema& op,
                                             bool is_wanted) {
  const std::lock_guard lock(mutex_);
  const auto found = kinds_.find(kind);
  if (found == kinds_.end()) {
    if (kinds_.size() >= most_) return Advice::kLeaveFull;
    kinds_.emplace(kind, Kind{&op});
    return Advice::kCompare;
  }
  switch (found->second.outcome) {
    case Outcome::kDiffers: return Advice::kLeave;
    case Outcome::kUnrecordable:
      if (!is_wanted) return Advice::kRecord;
      found->second.outcome = Outcome::kBeingCompared;
      return Advice::kCompare;
    case Outcome::kBeingCompared:
    case Outcome::kEqual: break;
  }
  return Advice::kRecord;
}

void ReplayVerdicts::set(std::uint64_t kind, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  const auto found = kinds_.find(kind);
  if (found != kinds_.end()) found->second.outcome = outcome;
}

void ReplayVerdicts::settle(std::uint64_t kind, bool is_equal) {
  set(kind, is_equal ? Outcome::kEqual : Outcome::kDiffers);
}

void ReplayVerdicts::note_unrecordable(std::uint64_t kind) { set(kind, Outcome::kUnrecordable); }

void ReplayVerdicts::forget(std::uint64_t kind) {
  const std::lock_guard lock(mutex_);
  kinds_.erase(kind);
}

runtime::VerifiedReplays ReplayVerdicts::sum() const {
  runtime::VerifiedReplays sum;
  const std::lock_guard lock(mutex_);
  for (const auto& [hash, kind] : kinds_) {
    if (kind.outcome == Outcome::kEqual) ++sum.operators[toString(kind.op->operator_name())];
    sum.equal_kinds += kind.outcome == Outcome::kEqual ? 1 : 0;
    sum.differing_kinds += kind.outcome == Outcome::kDiffers ? 1 : 0;
  }
  return sum;
}

}  // namespace spillway::torch_binding
