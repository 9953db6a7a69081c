#include "spillway/runtime/recording/stall_ledger.h"

#include <algorithm>

#include "spillway/runtime/recording/op_text.h"

namespace spillway::runtime {

namespace {

// Trainers whose shapes never repeat would fill memory with names.
constexpr std::size_t kMostOperators = 4096;

}  // namespace

void StallLedger::note(std::uint64_t signature, const OpText& text, Reason reason,
                       Duration waited) {
  if (waited < kNoticeable) return;
  const std::lock_guard lock(mutex_);
  if (causes_.size() >= kMostOperators && !causes_.contains(signature)) return;
  StallCause& cause = causes_[signature];
  if (cause.op.empty()) cause.op = text.describe();
  ++cause.times;
  (reason == Reason::kInputs ? cause.for_inputs : cause.for_room) += waited;
}

std::vector<StallCause> StallLedger::largest(std::size_t count) const {
  std::vector<StallCause> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [signature, cause] : causes_) all.push_back(cause);
  }
  std::sort(all.begin(), all.end(), [](const StallCause& a, const StallCause& b) {
    return a.total() != b.total() ? a.total() > b.total() : a.op < b.op;
  });
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace spillway::runtime
