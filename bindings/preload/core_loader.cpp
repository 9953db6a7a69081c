#include "core_loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kept_environment.h"
#include "messages.h"
#include "private_files.h"
#include "run_listener.h"
#include "spillway/preload/hooks.h"
#include "torch_in_process.h"

namespace spillway::preload {
namespace {

enum LoadState { kUntouched, kTried };
int load_state = kUntouched;

bool is_under_the_command() { return spillway_is_active() != 0; }

// Under `spillway run` a budget was promised, so a program without it must not go on. Whoever sets
// LD_PRELOAD by hand gets the line and the plain program.
__attribute__((format(printf, 1, 2))) void refuse(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  say("error", pattern, arguments);
  va_end(arguments);
  if (is_under_the_command()) _exit(2);
}

// The folder of this library; empty when the loader does not know it.
void own_folder(char (&folder)[PATH_MAX]) {
  folder[0] = '\0';
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&load_core_if_torch_is_here), &here) == 0 ||
      here.dli_fname == nullptr)
    return;
  snprintf(folder, sizeof folder, "%s", here.dli_fname);
  char* slash = strrchr(folder, '/');
  if (slash != nullptr) *slash = '\0';
}

struct Minor {
  unsigned major, minor;
};

bool is_older(const Minor& one, const Minor& other) {
  return one.major != other.major ? one.major < other.major : one.minor < other.minor;
}

// The newest that is not newer than `version`, or else the oldest.
const Minor& nearest_of(const Minor* served, size_t count, const TorchVersion& version) {
  size_t nearest = 0;
  while (nearest + 1 < count && !is_older({version.major, version.minor}, served[nearest + 1]))
    ++nearest;
  return served[nearest];
}

// The minor releases of LibTorch that have a core in `folder`, the oldest first; their number.
template <size_t kMost>
size_t find_served(const char* folder, Minor (&served)[kMost]) {
  DIR* entries = opendir(folder);
  if (entries == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = readdir(entries)) {
    Minor found{};
    int end = 0;
    sscanf(entry->d_name, "libspillway_core_%u.%u.so%n", &found.major, &found.minor, &end);
    if (end == 0 || entry->d_name[end] != '\0' || count == kMost) continue;
    size_t at = count++;
    for (; at > 0 && is_older(found, served[at - 1]); --at) served[at] = served[at - 1];
    served[at] = found;
  }
  closedir(entries);
  return count;
}

// "2.11, 2.13"
void list_served(const Minor* served, size_t count, char (&list)[256]) {
  int length = 0;
  list[0] = '\0';
  for (size_t i = 0; i < count && length < static_cast<int>(sizeof list); ++i)
    length += snprintf(list + length, sizeof list - static_cast<size_t>(length), "%s%u.%u",
                       i == 0 ? "" : ", ", served[i].major, served[i].minor);
}

// Takes our entry out of LD_PRELOAD, so that children of this process start without us.
void leave_children_alone(const char* folder) {
  const char* before = getenv("LD_PRELOAD");
  if (before == nullptr) return;
  char after[8192];
  size_t length = 0;
  const size_t folder_length = strlen(folder);
  while (*before != '\0') {
    const size_t entry = strcspn(before, ": ");
    const bool is_ours = entry > folder_length && strncmp(before, folder, folder_length) == 0 &&
                         memmem(before, entry, "/libspillway_preload.so", 23) != nullptr;
    if (entry > 0 && !is_ours) {
      if (length + entry + 2 > sizeof after) return;
      if (length > 0) after[length++] = ':';
      memcpy(after + length, before, entry);
      length += entry;
    }
    before += entry + (before[entry] != '\0' ? 1 : 0);
  }
  after[length] = '\0';
  if (length == 0)
    unsetenv("LD_PRELOAD");
  else
    setenv("LD_PRELOAD", after, 1);
}

void refuse_version(const TorchInProcess& torch, const char* folder) {
  Minor served[32];
  const size_t count = find_served(folder, served);
  char list[256];
  list_served(served, count, list);
  if (count == 0) {
    refuse("no libspillway_core_*.so in %s: the installation is incomplete (install it again, or "
           "start the program without Spillway)",
           folder);
  } else if (!torch.version.is_known()) {
    refuse("cannot tell the version of the LibTorch in this process (%s), and this Spillway serves "
           "LibTorch %s (use an official build of LibTorch, or start the program without Spillway)",
           torch.path, list);
  } else {
    const Minor& nearest = nearest_of(served, count, torch.version);
    refuse("this program runs LibTorch %s (%s), but this Spillway serves LibTorch %s (build the "
           "program with the nearest, %u.%u, or Spillway for the program's, or start it without "
           "Spillway)",
           torch.version.text, torch.path, list, nearest.major, nearest.minor);
  }
}

void load_core(const TorchInProcess& torch) {
  char folder[PATH_MAX];
  own_folder(folder);
  char core[PATH_MAX + 64];
  snprintf(core, sizeof core, "%s/libspillway_core_%u.%u.so", folder, torch.version.major,
           torch.version.minor);
  if (!torch.version.is_known() || access(core, R_OK) != 0) {
    refuse_version(torch, folder);
    return;
  }
  tell_of_core();  // Where it cannot begin it says so itself, and ends the process.
  void* const loaded = dlopen(core, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    refuse("cannot load the core library: %s", dlerror());
    return;
  }
  void (*is_loaded)(void) = nullptr;
  *reinterpret_cast<void**>(&is_loaded) = dlsym(loaded, SPILLWAY_CORE_IS_LOADED);
  if (is_loaded != nullptr) is_loaded();
  const char* children = getenv("SPILLWAY_CHILDREN");
  if (children == nullptr || strcmp(children, "strip") != 0) return;
  // What they write is this rank's own, too.
  if (has_private_files()) return;
  leave_children_alone(folder);
  forget_environment();
}

}  // namespace

bool is_core_tried() { return __atomic_load_n(&load_state, __ATOMIC_ACQUIRE) == kTried; }

void load_core_if_torch_is_here() {
  if (is_core_tried()) return;
  TorchInProcess torch;
  find_torch(torch, /*with_version=*/false);
  if (torch.copies == 0) return;
  // Set before loading: the core's own initialisers come back here through what we interpose.
  if (__atomic_exchange_n(&load_state, kTried, __ATOMIC_ACQ_REL) == kTried) return;
  if (torch.copies > 1) {
    refuse("LibTorch is twice in this process: %s and %s (remove one from the program's libraries, "
           "RPATH or LD_LIBRARY_PATH)",
           torch.path, torch.second);
    return;
  }
  if (torch.has_core) {  // Linked in: it has started, or will, by its own initialisers.
    tell_of_core();
    return;
  }
  find_torch(torch, /*with_version=*/true);
  load_core(torch);
}

void load_core_at_first_allocation() {
  static int asked = 0;
  if (__atomic_load_n(&asked, __ATOMIC_RELAXED) != 0) return;
  // Once: where LibTorch lies hidden in another library, each allocation would search in vain.
  __atomic_store_n(&asked, 1, __ATOMIC_RELAXED);
  load_core_if_torch_is_here();
}

void report_torch_that_came_unseen() {
  if (is_core_tried() || !is_under_the_command()) return;
  TorchInProcess torch;
  find_torch(torch, /*with_version=*/false);
  if (torch.copies > 0 && !torch.has_core)
    warn("LibTorch (%s) was loaded while the program ran, out of sight of Spillway, and worked "
         "without it (link the program with LibTorch, or with spillway::spillway)",
         torch.path);
}

}  // namespace spillway::preload
