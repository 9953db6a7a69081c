#include "held_memory.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core.h"
#include "spillway/base/log.h"

namespace spillway::torch_binding {
namespace {

constexpr std::uint64_t kPartOfBudget = 16;

void complain_once(const char* why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log_error("a system call on a spilled tensor will fail: {}. A larger budget, or the mapper "
              "\"userfaultfd\" (see spillway doctor), helps.",
              why);
}

}  // namespace

std::size_t hold_memory(const void* memory, std::size_t size, int is_filled, void** token) {
  *token = nullptr;
  Core* const core = Core::running();
  if (core == nullptr || core->is_forked_child()) return size;
  swap::SwapEngine& engine = core->runtime().engine();
  const auto most = std::max<std::uint64_t>(
      engine.budget().count() / kPartOfBudget / memory::kPageBytes * memory::kPageBytes,
      memory::kPageBytes);
  const std::size_t held = std::min<std::size_t>(size, most);
  swap::RangeUse use = engine.find(memory, Bytes(held));
  if (!use.range.is_some()) return size;
  use.writes = is_filled != 0;
  try {
    auto pins = std::make_unique<swap::PinSet>();
    engine.pin(*pins, {&use, 1});
    *token = pins.release();
  } catch (const std::exception& error) {
    complain_once(error.what());
  }
  return held;
}

void release_memory(void* token) { delete static_cast<swap::PinSet*>(token); }

}  // namespace spillway::torch_binding
