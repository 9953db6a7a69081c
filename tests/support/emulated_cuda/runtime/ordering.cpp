#include "ordering.h"

#include <map>
#include <mutex>
#include <utility>

#include "../driver/mappings.h"
#include "address_space.h"
#include "failure.h"
#include "pinned_memory.h"
#include "settings.h"

namespace spillway::emulated::ordering {
namespace {

struct State {
  std::mutex mutex;
  AccessCheck check;
  std::map<int, std::vector<Access>> captured;
};

State& state() {
  static auto* all = new State;  // Leaked: workers use it to the end.
  return *all;
}

void die_of(const std::optional<Conflict>& conflict) {
  if (conflict) die(conflict->text());
}

/// Calls `act(first, bytes, offset)` for all that lies beneath the addresses: one chunk may lie
/// beneath several, and is the same memory at each.
template <class Act>
void for_memory_at(const std::optional<Range>& range, std::uintptr_t address, std::size_t bytes,
                   Act act) {
  if (!range || range->kind != Kind::kReserved) return act(address, bytes, std::uintptr_t{0});
  for (const Mappings::Piece& piece : Mappings::of_process().beneath(address, bytes))
    act(piece.physical, piece.bytes, piece.address - piece.physical);
}

void use(int stream, const void* address, std::size_t bytes, Use kind, const char* what,
         Protection protection) {
  check_mapped(address, bytes, what, Moment::kSubmission);
  if (!settings().check) return;
  const AddressSpace& space = AddressSpace::of_process();
  const auto range = space.find(address);
  if (!range) return;
  const bool is_protected = protection == Protection::kFromHost && space.is_pinned(address);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(state().mutex);
  const auto captured = state().captured.find(stream);
  if (captured != state().captured.end()) {
    captured->second.push_back({address, bytes, kind, what, protection});
    return;
  }
  for_memory_at(range, begin, bytes,
                [&](std::uintptr_t first, std::size_t count, std::uintptr_t offset) {
                  die_of(state().check.use(stream, first, count, kind, what, offset));
                });
  if (!is_protected) return;
  const std::uint64_t tick = state().check.clock_of(stream).of(stream);
  PinnedMemory::of_process().protect(*range, {begin, begin + bytes, kind, stream, tick, what});
}

}  // namespace

int add_stream(std::string name) {
  const std::lock_guard lock(state().mutex);
  return state().check.add_stream(std::move(name));
}

void begin(int stream) {
  if (!settings().check) return;
  const std::lock_guard lock(state().mutex);
  if (!state().captured.contains(stream)) state().check.begin(stream);
}

void use(int stream, const void* address, std::size_t bytes, Use kind, const char* what) {
  use(stream, address, bytes, kind, what, Protection::kNone);
}

void use_protected(int stream, const void* address, std::size_t bytes, Use kind, const char* what) {
  use(stream, address, bytes, kind, what, Protection::kFromHost);
}

void use(int stream, const Access& access) {
  use(stream, access.address, access.bytes, access.kind, access.what.c_str(), access.protection);
}

void begin_capture(int stream) {
  const std::lock_guard lock(state().mutex);
  state().captured[stream];
}

std::vector<Access> take_captured(int stream) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().captured[stream], {});
}

void end_capture(int stream) {
  const std::lock_guard lock(state().mutex);
  state().captured.erase(stream);
}

Clock now(int stream) {
  if (!settings().check) return {};
  const std::lock_guard lock(state().mutex);
  return state().check.clock_of(stream);
}

void wait(int stream, const Clock& event) {
  if (!settings().check) return;
  const std::lock_guard lock(state().mutex);
  state().check.wait(stream, event);
}

void wait_for_stream(int stream, int other) {
  if (!settings().check) return;
  const std::lock_guard lock(state().mutex);
  state().check.wait(stream, state().check.clock_of(other));
}

void host_learns(const Clock& event) {
  if (!settings().check) return;
  const std::lock_guard lock(state().mutex);
  state().check.host_learns(event);
  PinnedMemory::of_process().release(state().check.host());
}

void take_away(const void* address, std::size_t bytes, const char* what) {
  if (!settings().check) return;
  const auto range = AddressSpace::of_process().find(address);
  const std::lock_guard lock(state().mutex);
  for_memory_at(range, reinterpret_cast<std::uintptr_t>(address), bytes,
                [&](std::uintptr_t first, std::size_t count, std::uintptr_t offset) {
                  die_of(state().check.take_away(first, count, what, offset));
                });
}

}  // namespace spillway::emulated::ordering
