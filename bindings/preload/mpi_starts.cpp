// MPI begins with what its launcher has told, which the program does not see where it is one on all
// ranks: the command has renamed these variables (hide_launcher of src/base). That holds for the
// core's MPI and for a program that starts it first.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "next_definition.h"
#include "registered_hooks.h"
#include "spillway/preload/active.h"

namespace spillway::preload {
namespace {

constexpr char kHidden[] = SPILLWAY_HIDDEN_LAUNCHER;
constexpr size_t kHiddenLength = sizeof kHidden - 1;

/// MPI knows one process of each rank: what that has started is none.
bool is_of_another_rank() {
  const char* joined = getenv(SPILLWAY_JOINED_VARIABLE);
  return joined != nullptr && strtol(joined, nullptr, 10) != getpid();
}

/// Such a program may start others by a launcher of its own, whose MPI connects by these.
bool has_nearer_launcher() {
  return getenv("PMI_FD") != nullptr || getenv("PMI_PORT") != nullptr ||
         getenv("PMIX_NAMESPACE") != nullptr;
}

/// The variables have their own names while it lives. Python has copied its environment before.
class ShownLauncher {
 public:
  ShownLauncher() {
    size_t most = 0;
    while (environ != nullptr && environ[most] != nullptr) ++most;
    variables_ = static_cast<Variable*>(calloc(most + 1, sizeof(Variable)));
    if (variables_ == nullptr || is_of_another_rank() || has_nearer_launcher()) return;
    for (size_t i = 0; i < most; ++i) {
      const char* const equals = strchr(environ[i], '=');
      if (equals == nullptr || strncmp(environ[i], kHidden, kHiddenLength) != 0) continue;
      const char* const name = environ[i] + kHiddenLength;
      variables_[count_++] = {.name = strndup(name, static_cast<size_t>(equals - name)),
                              .value = equals + 1,
                              .before = nullptr};
    }
    for (size_t i = 0; i < count_; ++i) {
      Variable& variable = variables_[i];
      if (variable.name == nullptr) continue;
      const char* const before = getenv(variable.name);
      variable.before = before == nullptr ? nullptr : strdup(before);
      setenv(variable.name, variable.value, 1);
    }
  }
  ~ShownLauncher() {
    for (size_t i = 0; i < count_; ++i) {
      const Variable& variable = variables_[i];
      if (variable.name == nullptr) continue;
      if (variable.before == nullptr)
        unsetenv(variable.name);
      else
        setenv(variable.name, variable.before, 1);
      free(variable.before);
      free(variable.name);
    }
    free(variables_);
  }
  ShownLauncher(const ShownLauncher&) = delete;
  ShownLauncher& operator=(const ShownLauncher&) = delete;

 private:
  struct Variable {
    char* name;
    const char* value;
    char* before;  ///< What the program has set under that name, or null.
  };
  Variable* variables_ = nullptr;
  size_t count_ = 0;
};

template <class Function>
Function mpi_function(const char* name, const void* caller) {
  return reinterpret_cast<Function>(next_definition(name, name, caller));
}

}  // namespace
}  // namespace spillway::preload

using spillway::preload::mpi_function;
using spillway::preload::ShownLauncher;

extern "C" {

SPILLWAY_VISIBLE int MPI_Init(int* count, char*** words) {
  const auto real = mpi_function<int (*)(int*, char***)>("MPI_Init", __builtin_return_address(0));
  const ShownLauncher shown;
  return real(count, words);
}

SPILLWAY_VISIBLE int MPI_Init_thread(int* count, char*** words, int wanted, int* given) {
  const auto real = mpi_function<int (*)(int*, char***, int, int*)>("MPI_Init_thread",
                                                                    __builtin_return_address(0));
  const ShownLauncher shown;
  return real(count, words, wanted, given);
}

}  // extern "C"
