#include "counted_draws.h"

#include <chrono>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::recompute {
namespace {

struct Position {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

Position position_of(const at::Generator& generator) {
  const std::lock_guard lock(generator.unsafeGetGeneratorImpl()->mutex_);
  return {generator.current_seed(), generator.get_offset()};
}

/// Lets the program's generator stand for another one. What it counts in its own state it goes on
/// counting when this ends.
class Exchanged {
 public:
  Exchanged(at::Generator& own, const at::Generator& other) : own_(own) {
    const std::lock_guard lock(own_.unsafeGetGeneratorImpl()->mutex_);
    state_ = own_.graphsafe_get_state();
    own_.graphsafe_set_state(other);
  }
  ~Exchanged() {
    const std::lock_guard lock(own_.unsafeGetGeneratorImpl()->mutex_);
    own_.graphsafe_set_state(state_);
  }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  at::Generator& own_;
  at::Generator state_;
};

}  // namespace

std::unique_lock<std::recursive_timed_mutex> turn_to_draw(const DrawTurns& turns) {
  // Two operators may each hold memory that the other one waits for.
  constexpr std::chrono::minutes kPatience(1);
  std::unique_lock turn(*turns, kPatience);
  if (!turn.owns_lock())
    throw Error("other threads have been drawing random numbers on this device for a minute: let "
                "one thread draw, allow more with --budget, or run with --recompute off");
  return turn;
}

std::string CountedDraws::end_first(const at::Generator& start) {
  const Position before = position_of(start);
  const Position after = position_of(source_);
  if (after.seed != before.seed) return "its generator of random numbers was given another state";
  if (after.offset <= before.offset) return "its generator of random numbers did not move";
  drawn_ = after.offset - before.offset;
  return {};
}

void CountedDraws::run_from(at::Generator& start, bool is_hidden, const std::string& name,
                            const std::function<void()>& call) const {
  const Position before = position_of(start);
  if (is_hidden) {
    const auto turn = turn_to_draw(turns_);
    at::Generator own = source_;
    const Exchanged exchanged(own, start);
    call();
  } else {
    call();
  }
  const Position after = position_of(start);
  if (after.seed != before.seed || after.offset != before.offset + drawn_)
    throw Error("{} drew other random numbers when it ran again: its generator came from {} to {}, "
                "and not to {}, as if another thread had used it, too",
                name, before.offset, after.offset, before.offset + drawn_);
}

}  // namespace spillway::recompute
