#include "program_lead.h"

#include <algorithm>
#include <utility>

namespace spillway::split {

std::uint64_t ProgramLead::turn() const {
  return ownership_.micro_batch_of_run() / ownership_.placement().pipelines();
}

std::uint64_t ProgramLead::most_lead() const {
  return std::max(2 * std::uint64_t{ownership_.placement().stages()}, lists_.lead());
}

void ProgramLead::look_at_micro_batch() {
  const std::uint64_t now = ownership_.micro_batch_of_run();
  if (now == std::exchange(micro_batch_, now)) return;
  most_queued_in_turn_ = std::max(most_queued_in_turn_, std::exchange(queued_in_turn_, 0));
  if (ownership_.micro_batch() == 0)
    lists_.begin_step(now - std::exchange(first_micro_batch_, now));
  if (turn() > most_lead()) executor_.wait_until_begun(turn() - most_lead());
}

void ProgramLead::before_call(const recompute::Surroundings::Flags& now,
                              Executor::MicroBatch micro_batch) {
  if (!flags_ || *flags_ != now) {
    if (flags_) executor_.wait_until_left(0);
    flags_ = now;
  }
  look_at_queue(micro_batch);
}

/// Micro-batches bound the lead where the program goes back. Where it does not, as in an
/// evaluation, calls do: as many wait as in the micro-batches that go back.
void ProgramLead::look_at_queue(Executor::MicroBatch micro_batch) {
  constexpr std::uint64_t kAtFirst = 1024;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 15;
  constexpr std::uint64_t kCallsBetweenLooks = 256;
  if (lists_.are_followed()) return;  // They need what they have next.
  if (micro_batch) ++queued_in_turn_;
  if (++queued_ % kCallsBetweenLooks != 0) return;
  const std::uint64_t most = most_queued_in_turn_ * (most_lead() + 1);
  executor_.wait_until_left(std::clamp(most, kAtFirst, kMost));
}

void ProgramLead::submit(PendingCall call, std::span<const pipeline::StorageOrdinal> reads,
                         std::span<const pipeline::StorageOrdinal> writes,
                         Executor::MicroBatch micro_batch) {
  if (!flags_) flags_ = recompute::Surroundings::of_this_thread()->flags;
  const bool differs = *flags_ != call.surroundings->flags;
  if (differs) executor_.wait_until_left(0);
  look_at_queue(micro_batch);
  executor_.add_call(std::move(call), reads, writes, std::nullopt, std::nullopt, {});
  if (differs) executor_.wait_until_left(0);
}

}  // namespace spillway::split
