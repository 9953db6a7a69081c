#include "held_memory.h"

#include <algorithm>
#include <memory>

#include "core.h"
#include "spillway/phantoms/phantom_memory.h"

namespace spillway::torch_binding {
namespace {

// For memory that stays without being held.
char stays_by_itself;

}  // namespace

std::size_t tensor_bytes(const void* memory, std::size_t size) {
  Core* const core = Core::running();
  if (core == nullptr || size == 0) return 0;
  const swap::RangeUse use = core->runtime().find(memory, Bytes(size));
  if (!use.storage.is_some()) {
    // The kernel would tell the program of a bad address, on this rank alone.
    if (phantoms::PhantomMemory::contains(memory)) split::SplitProgram::read_past_operators(memory);
    return 0;
  }
  const std::size_t page = core->runtime().engine().page_size().count();
  const std::size_t in_first_page = page - reinterpret_cast<std::uintptr_t>(memory) % page;
  return std::min(size, in_first_page + (use.touched() - 1) * page);
}

std::size_t bytes_at_once(Bytes budget, Bytes page_size) {
  constexpr std::uint64_t kPartOfBudget = 16;
  const std::uint64_t pages = budget.count() / kPartOfBudget / page_size.count();
  return std::max<std::uint64_t>(pages, 1) * page_size.count();
}

void* hold_memory(const void* memory, std::size_t size, int is_filled, int is_direct) {
  Core& core = *Core::running();
  if (core.is_forked_child()) return &stays_by_itself;
  if (runtime::Runtime::runs_operator()) return nullptr;
  swap::RangeUse use = core.runtime().find(memory, Bytes(size));
  use.writes = is_filled != 0;
  try {
    if (use.writes) core.runtime().before_write(use);
    auto pins = std::make_unique<swap::PinSet>(is_direct != 0 ? swap::Hold::kKernel
                                                              : swap::Hold::kSystemCall);
    core.runtime().engine().pin(*pins, {&use, 1});
    return pins.release();
  } catch (...) {
    // No room, or a broken disk: touching it will tell, with the reason. The caller is C.
    return nullptr;
  }
}

void release_memory(void* token) {
  if (token != &stays_by_itself) delete static_cast<swap::PinSet*>(token);
}

}  // namespace spillway::torch_binding
