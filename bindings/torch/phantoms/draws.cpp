#include "draws.h"

#include <mutex>

#include "spillway/base/mersenne_twister.h"

namespace spillway::phantoms {
namespace {

using mersenne_twister::kWords;

/// The draw that finds no word left makes new ones and takes the first.
void begin_words(at::mt19937_data_pod& state) {
  mersenne_twister::next_block(state.state_);
  state.left_ = kWords;
  state.next_ = 1;
}

bool same_words(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.state_ == b.state_;
}

}  // namespace

std::optional<std::uint64_t> draws_between(const at::mt19937_data_pod& before,
                                           const at::mt19937_data_pod& after, std::uint64_t most) {
  if (before.seed_ != after.seed_) return std::nullopt;
  if (same_words(before, after) && after.next_ >= before.next_ &&
      before.left_ - after.left_ == static_cast<int>(after.next_ - before.next_))
    return after.next_ - before.next_;
  at::mt19937_data_pod now = before;
  for (std::uint64_t draws = 0; draws <= most;) {
    draws += static_cast<std::uint64_t>(now.left_);
    begin_words(now);
    if (same_words(now, after) && after.next_ >= now.next_)
      return draws + (after.next_ - now.next_);
  }
  return std::nullopt;
}

void skip_draws(at::mt19937_data_pod& state, std::uint64_t draws) {
  if (draws >= static_cast<std::uint64_t>(state.left_)) {
    draws -= static_cast<std::uint64_t>(state.left_);
    mersenne_twister::skip_blocks(state.state_, draws / kWords);
    draws %= kWords;
    begin_words(state);
  }
  state.left_ -= static_cast<int>(draws);
  state.next_ += static_cast<std::uint32_t>(draws);
}

void skip_draws(const at::Generator& of, std::uint64_t draws) {
  c10::GeneratorImpl* const any = of.unsafeGetGeneratorImpl();
  const std::lock_guard lock(any->mutex_);
  if (any->device().is_cuda()) {
    any->set_offset(any->get_offset() + draws);
    return;
  }
  auto& generator = *static_cast<at::CPUGeneratorImpl*>(any);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod state = engine.data();
  skip_draws(state, draws);
  engine.set_data(state);
  generator.set_engine(engine);
}

}  // namespace spillway::phantoms
