// The functions that list a folder or tell where the process is. A folder that has entries which
// all ranks see and others of this rank's own is listed as one; else they are as before.

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "file_calls.h"
#include "next_function.h"
#include "private_folder.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(&::opendir) known_opendir;
decltype(&::fdopendir) known_fdopendir;
decltype(&::readdir) known_readdir;
// readdir_r, which warns who names it.
int (*known_readdir_r)(DIR*, dirent*, dirent**);
decltype(&::closedir) known_closedir;
decltype(&::rewinddir) known_rewinddir;
decltype(&::telldir) known_telldir;
decltype(&::seekdir) known_seekdir;
decltype(&::dirfd) known_dirfd;
decltype(&::getcwd) known_getcwd;
decltype(&::realpath) known_realpath;

// No DIR of the C library begins with this: a descriptor and a lock.
constexpr unsigned long kMark = 0x79617720'6c6c6970;

/// A folder whose entries come from two: those of the rank first, then the shared ones that it
/// sees.
struct MergedFolder {
  unsigned long mark;
  DIR* own;
  DIR* shared;
  long told;  // Entries.
  bool is_in_shared;
  Place place;
};

MergedFolder* merged(DIR* folder) {
  if (!has_private_files()) return nullptr;
  auto* const found = reinterpret_cast<MergedFolder*>(folder);
  return found->mark == kMark ? found : nullptr;
}

DIR* open_plain(const char* path) { return next_function(known_opendir, "opendir")(path); }

void close_plain(DIR* folder) {
  const int before = errno;
  if (folder != nullptr) next_function(known_closedir, "closedir")(folder);
  errno = before;
}

/// Takes over `shared`, which is null where it could not be opened.
DIR* merge(DIR* shared, const Place& place) {
  char path[PATH_MAX];
  if (shared == nullptr || private_path(place.name, path) != 0) return shared;
  DIR* own = open_plain(path);
  auto* const made = static_cast<MergedFolder*>(malloc(sizeof(MergedFolder)));
  if (made == nullptr) {
    close_plain(own);
    close_plain(shared);
    errno = ENOMEM;
    return nullptr;
  }
  *made = {kMark, own, shared, 0, own == nullptr, place};
  return reinterpret_cast<DIR*>(made);
}

bool is_listed_elsewhere(const char* name) {
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

bool is_seen(const MergedFolder& folder, const char* name) {
  if (is_listed_elsewhere(name)) return true;
  Place entry;
  return find_entry(folder.place, name, entry) == 0 &&
         (entry.kind == Kind::kShared || entry.kind == Kind::kMerged);
}

bool is_own(const MergedFolder& folder, const char* name) {
  if (is_listed_elsewhere(name)) return false;
  Place entry;
  return find_entry(folder.place, name, entry) == 0 && entry.kind != Kind::kMerged;
}

dirent* next_entry(MergedFolder& folder) {
  const auto read = next_function(known_readdir, "readdir");
  while (true) {
    dirent* entry = read(folder.is_in_shared ? folder.shared : folder.own);
    if (entry == nullptr && folder.is_in_shared) return nullptr;
    if (entry == nullptr) {
      folder.is_in_shared = true;
      continue;
    }
    if (folder.is_in_shared ? !is_seen(folder, entry->d_name) : !is_own(folder, entry->d_name))
      continue;
    ++folder.told;
    return entry;
  }
}

dirent* read_entry(DIR* folder) {
  MergedFolder* const found = merged(folder);
  dirent* entry =
      found != nullptr ? next_entry(*found) : next_function(known_readdir, "readdir")(folder);
  // What stands for a shared file of another name is a link to us alone.
  if (entry != nullptr && entry->d_type == DT_LNK && has_private_files())
    entry->d_type = DT_UNKNOWN;
  return entry;
}

int read_into(DIR* folder, dirent* room, dirent** entry) {
  if (!has_private_files()) return next_function(known_readdir_r, "readdir_r")(folder, room, entry);
  const dirent* next = read_entry(folder);
  *entry = next == nullptr ? nullptr : room;
  if (next != nullptr) memcpy(room, next, next->d_reclen);
  return 0;
}

void rewind_merged(MergedFolder& folder) {
  const auto rewind = next_function(known_rewinddir, "rewinddir");
  if (folder.own != nullptr) rewind(folder.own);
  rewind(folder.shared);
  folder.is_in_shared = folder.own == nullptr;
  folder.told = 0;
}

bool is_listed_twice(const Place& place) {
  return place.kind == Kind::kMerged || (place.kind == Kind::kShared && may_hide_entries(place));
}

/// A copy of a text that the caller has to free, or in the caller's room.
char* hand_over(const char* text, char* room) {
  return room == nullptr ? strdup(text) : strcpy(room, text);
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE DIR* opendir(const char* path) {
  if (!has_private_files()) return open_plain(path);
  Place place;
  const int error = find_place(AT_FDCWD, path, Follow::kYes, place);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  DIR* opened = open_plain(place.file);
  return is_listed_twice(place) ? merge(opened, place) : opened;
}

SPILLWAY_VISIBLE DIR* fdopendir(int file) {
  DIR* opened = next_function(known_fdopendir, "fdopendir")(file);
  if (!has_private_files() || opened == nullptr) return opened;
  Place place;
  if (find_place(file, ".", Follow::kYes, place) != 0 || !is_listed_twice(place)) return opened;
  return merge(opened, place);
}

SPILLWAY_VISIBLE dirent* readdir(DIR* folder) { return read_entry(folder); }

SPILLWAY_VISIBLE dirent64* readdir64(DIR* folder) {
  return reinterpret_cast<dirent64*>(readdir(folder));
}

SPILLWAY_VISIBLE int readdir_r(DIR* folder, dirent* room, dirent** entry) {
  return read_into(folder, room, entry);
}

SPILLWAY_VISIBLE int readdir64_r(DIR* folder, dirent64* room, dirent64** entry) {
  return read_into(folder, reinterpret_cast<dirent*>(room), reinterpret_cast<dirent**>(entry));
}

SPILLWAY_VISIBLE int closedir(DIR* folder) {
  MergedFolder* const found = merged(folder);
  if (found == nullptr) return next_function(known_closedir, "closedir")(folder);
  close_plain(found->own);
  const int result = next_function(known_closedir, "closedir")(found->shared);
  free(found);
  return result;
}

SPILLWAY_VISIBLE void rewinddir(DIR* folder) noexcept {
  MergedFolder* const found = merged(folder);
  if (found != nullptr)
    rewind_merged(*found);
  else
    next_function(known_rewinddir, "rewinddir")(folder);
}

SPILLWAY_VISIBLE long telldir(DIR* folder) noexcept {
  const MergedFolder* const found = merged(folder);
  return found != nullptr ? found->told : next_function(known_telldir, "telldir")(folder);
}

SPILLWAY_VISIBLE void seekdir(DIR* folder, long place) noexcept {
  MergedFolder* const found = merged(folder);
  if (found == nullptr) {
    next_function(known_seekdir, "seekdir")(folder, place);
    return;
  }
  rewind_merged(*found);
  while (found->told < place && next_entry(*found) != nullptr) {
  }
}

SPILLWAY_VISIBLE int dirfd(DIR* folder) noexcept {
  const MergedFolder* const found = merged(folder);
  return next_function(known_dirfd, "dirfd")(found != nullptr ? found->shared : folder);
}

SPILLWAY_VISIBLE int chdir(const char* path) noexcept {
  return at_place(AT_FDCWD, path, Follow::kYes, [](int, const char* found) {
    return static_cast<int>(syscall(SYS_chdir, found));
  });
}

SPILLWAY_VISIBLE char* getcwd(char* room, size_t size) noexcept {
  const auto call = next_function(known_getcwd, "getcwd");
  if (!has_private_files()) return call(room, size);
  char path[PATH_MAX];
  if (call(path, sizeof path) == nullptr) return nullptr;
  show_as_seen(path);
  if (room == nullptr && size == 0) return strdup(path);
  if (size == 0 || strlen(path) >= size) {
    errno = size == 0 ? EINVAL : ERANGE;
    return nullptr;
  }
  if (room == nullptr) room = static_cast<char*>(malloc(size));
  return room == nullptr ? nullptr : strcpy(room, path);
}

SPILLWAY_VISIBLE char* __getcwd_chk(char* room, size_t size, size_t real_size) noexcept {
  if (size > real_size) abort();
  return getcwd(room, size);
}

SPILLWAY_VISIBLE char* get_current_dir_name() noexcept { return getcwd(nullptr, 0); }

SPILLWAY_VISIBLE char* realpath(const char* path, char* room) noexcept {
  const auto call = next_function(known_realpath, "realpath");
  if (!has_private_files() || path == nullptr || *path == '\0') return call(path, room);
  Place place;
  int error = find_place(AT_FDCWD, path, Follow::kYes, place);
  if (error == 0 && place.kind == Kind::kOutside) {
    char* told = call(place.file, room);
    if (told != nullptr) show_as_seen(told);
    return told;
  }
  if (error == 0 && !place.exists()) error = ENOENT;
  if (error == 0) return hand_over(place.name[0] == '\0' ? "/" : place.name, room);
  errno = error;
  return nullptr;
}

SPILLWAY_VISIBLE char* __realpath_chk(const char* path, char* room, size_t size) noexcept {
  if (size < PATH_MAX) abort();
  return realpath(path, room);
}

SPILLWAY_VISIBLE char* canonicalize_file_name(const char* path) noexcept {
  return realpath(path, nullptr);
}

}  // extern "C"
