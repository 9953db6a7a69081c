// The functions of the C library that list folders by calls of its own: where the files of the
// process are its own (private_files.h), they list those.

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "next_function.h"
#include "private_files.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

decltype(&::glob) known_glob;
decltype(&::scandir) known_scandir;

/// What scandir gives to its caller, who frees it.
class Listing {
 public:
  ~Listing() {
    for (int i = 0; i < count_; ++i) free(entries_[i]);
    free(entries_);
  }
  Listing() = default;
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  bool add(const dirent& entry) {
    if (count_ == room_) {
      const int more = room_ == 0 ? 16 : 2 * room_;
      void* grown = realloc(entries_, static_cast<size_t>(more) * sizeof(dirent*));
      if (grown == nullptr) return false;
      entries_ = static_cast<dirent**>(grown);
      room_ = more;
    }
    auto* const kept = static_cast<dirent*>(malloc(entry.d_reclen));
    if (kept == nullptr) return false;
    memcpy(kept, &entry, entry.d_reclen);
    entries_[count_++] = kept;
    return true;
  }

  int hand_over(Order order, dirent*** list) {
    if (order != nullptr && count_ > 1)
      qsort(entries_, static_cast<size_t>(count_), sizeof(dirent*),
            reinterpret_cast<int (*)(const void*, const void*)>(order));
    *list = entries_ != nullptr ? entries_ : static_cast<dirent**>(malloc(sizeof(dirent*)));
    entries_ = nullptr;
    const int count = count_;
    count_ = 0;
    return count;
  }

 private:
  dirent** entries_ = nullptr;
  int count_ = 0;
  int room_ = 0;
};

int list_folder(const char* path, dirent*** list, Filter filter, Order order) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return -1;
  Listing listing;
  bool has_room = true;
  while (const dirent* entry = has_room ? readdir(folder) : nullptr)
    if (filter == nullptr || filter(entry) != 0) has_room = listing.add(*entry);
  closedir(folder);
  return has_room ? listing.hand_over(order, list) : -1;
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE int scandir(const char* path, dirent*** list, Filter filter, Order order) {
  if (has_private_files()) return list_folder(path, list, filter, order);
  return next_function(known_scandir, "scandir")(path, list, filter, order);
}

SPILLWAY_VISIBLE int scandir64(const char* path, dirent64*** list, int (*filter)(const dirent64*),
                               int (*order)(const dirent64**, const dirent64**)) {
  return scandir(path, reinterpret_cast<dirent***>(list), reinterpret_cast<Filter>(filter),
                 reinterpret_cast<Order>(order));
}

SPILLWAY_VISIBLE int glob(const char* pattern, int flags, int (*told)(const char*, int),
                          glob_t* found) {
  const auto call = next_function(known_glob, "glob");
  if (!has_private_files() || (flags & GLOB_ALTDIRFUNC) != 0)
    return call(pattern, flags, told, found);
  found->gl_opendir = [](const char* path) { return static_cast<void*>(opendir(path)); };
  found->gl_readdir = [](void* folder) { return readdir(static_cast<DIR*>(folder)); };
  found->gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
  found->gl_stat = [](const char* path, struct stat* facts) { return stat(path, facts); };
  found->gl_lstat = [](const char* path, struct stat* facts) { return lstat(path, facts); };
  return call(pattern, flags | GLOB_ALTDIRFUNC, told, found);
}

SPILLWAY_VISIBLE int glob64(const char* pattern, int flags, int (*told)(const char*, int),
                            glob64_t* found) {
  return glob(pattern, flags, told, reinterpret_cast<glob_t*>(found));
}

}  // extern "C"
