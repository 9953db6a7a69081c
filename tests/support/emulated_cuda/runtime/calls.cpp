#include "calls.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "emulation.h"
#include "settings.h"

namespace spillway::emulated {
namespace {

std::atomic<CallCounter*>& head() {
  static std::atomic<CallCounter*> first{nullptr};
  return first;
}

struct PrintAtExit {
  ~PrintAtExit() {
    if (!settings().trace) return;
    std::map<std::string, unsigned long long> sorted;
    for (CallCounter* one = CallCounter::first(); one != nullptr; one = one->next()) {
      sorted[one->name()] += one->calls();
    }
    for (const auto& [name, calls] : sorted) {
      std::fprintf(stderr, "emulated CUDA: %8llu calls of %s\n", calls, name.c_str());
    }
  }
} print_at_exit;

}  // namespace

CallCounter::CallCounter(const char* name) : name_(name), next_(head().load()) {
  while (!head().compare_exchange_weak(next_, this)) {
  }
}

CallCounter* CallCounter::first() { return head().load(); }

}  // namespace spillway::emulated

extern "C" unsigned long long emu_cuda_calls(const char* name) {
  unsigned long long calls = 0;
  for (auto* one = spillway::emulated::CallCounter::first(); one != nullptr; one = one->next()) {
    if (std::strcmp(one->name(), name) == 0) calls += one->calls();
  }
  return calls;
}
