#include "spillway/runtime/settings/mapper_choice.h"

#include <link.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/log.h"

namespace spillway::runtime {

using memory::MapperKind;
using memory::MapperProbe;

namespace {

bool traps_by_signal(MapperKind kind) {
  return kind == MapperKind::kSignal || kind == MapperKind::kCopy;
}

// Valgrind preloads a library of its own into each program.
bool is_under_valgrind() {
  const auto look = [](dl_phdr_info* library, std::size_t /*size*/, void* found) {
    const bool is_its = library->dlpi_name != nullptr &&
                        std::strstr(library->dlpi_name, "/vgpreload_core") != nullptr;
    if (is_its) *static_cast<bool*>(found) = true;
    return is_its ? 1 : 0;
  };
  bool found = false;
  ::dl_iterate_phdr(look, &found);
  return found;
}

bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  return false;
}

// One of its threads runs at a time: the one that faults would hold up the one that serves it.
void refuse_valgrind(const std::string& requested) {
  if (requested != "auto" && traps_by_signal(memory::mapper_kind_from(requested))) return;
  throw UnsupportedError(
      "valgrind is in this process: it runs one thread at a time, so the thread that a fault waits "
      "for never comes (run the program under valgrind without Spillway; or try --mapper copy, "
      "which needs a valgrind that can reserve the addresses)");
}

}  // namespace

MapperSurroundings mapper_surroundings() {
  return {&memory::probe_mapper, is_under_valgrind(), is_traced()};
}

MapperKind choose_mapper(const std::string& requested, const MapperSurroundings& surroundings) {
  if (surroundings.is_under_valgrind) refuse_valgrind(requested);
  bool is_told = !surroundings.is_traced;
  const auto tell_debugger = [&](MapperKind kind) {
    if (!traps_by_signal(kind) || std::exchange(is_told, true)) return;
    log_warning("a debugger watches this process, and the mapper {} works by SIGSEGV: tell gdb "
                "`handle SIGSEGV nostop noprint pass`",
                memory::name_of(kind));
  };
  if (requested != "auto") {
    const MapperKind kind = memory::mapper_kind_from(requested);
    tell_debugger(kind);
    return kind;
  }
  std::string reasons;
  for (const auto& known : memory::mapper_kinds()) {
    tell_debugger(known.value);
    const MapperProbe probe = surroundings.probe(known.value);
    if (probe.is_viable) return known.value;
    reasons += message("\n  {}: {}", known.name, probe.reason);
  }
  throw UnsupportedError("memory cannot be paged on this system:{}", reasons);
}

}  // namespace spillway::runtime
