#include "private_files.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include <initializer_list>

#include "private_folder.h"
#include "raw_files.h"
#include "spillway/preload/active.h"

namespace spillway::preload {

ViewState view_state = ViewState::kUnknown;

namespace {

constexpr int kLinksMax = 40;  // As the kernel has it.
// What such a link of ours leads to is a shared file that was renamed.
constexpr char kMovedFrom[] = "/proc/spillway-moved";
constexpr char kFiles[] = "/files";
constexpr char kGone[] = "/gone";
constexpr char kNew[] = "/new";
constexpr char kOwner[] = "/owner";  // As old as the rank.

// Set once, before the state says so. The folder of the rank and what lies in it.
char root[PATH_MAX];
size_t root_length = 0;
// When the rank began, by the clock of the file system that its folder is in; zero: nobody knows.
timespec begin_of_rank;
// Where Open MPI and PMIx keep what the ranks of a host share; may be empty.
char launcher_folder[PATH_MAX];

// Of shared files that this process has met, by a number made of the name; the latest of those that
// fall together. Zero: none.
constexpr size_t kMetMax = 4096;
unsigned long met[kMetMax];

unsigned long number_of(const char* name) {
  unsigned long number = 14695981039346656037UL;  // FNV-1a.
  for (; *name != '\0'; ++name)
    number = (number ^ static_cast<unsigned char>(*name)) * 1099511628211UL;
  return number;
}

void remember(const char* name) {
  const unsigned long number = number_of(name);
  __atomic_store_n(&met[number % kMetMax], number, __ATOMIC_RELAXED);
}

template <size_t size>
bool starts_with(const char* text, const char (&start)[size]) {
  return strncmp(text, start, size - 1) == 0;
}

bool is_below(const char* path, const char* folder) {
  const size_t length = strlen(folder);
  return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/// Devices, what the kernel tells, what ranks share through MPI and our own folder are the same for
/// everybody.
bool is_outside(const char* name) {
  for (const char* folder : {"/dev", "/proc", "/sys"})
    if (is_below(name, folder)) return true;
  return is_below(name, root) ||
         (launcher_folder[0] != '\0' && is_below(name, &launcher_folder[0]));
}

int join(char (&path)[PATH_MAX], const char* part, const char* name) {
  const int length =
      snprintf(path, sizeof path, "%.*s%s%s", static_cast<int>(root_length), root, part, name);
  return length < static_cast<int>(sizeof path) ? 0 : ENAMETOOLONG;
}

/// Of texts that are no longer than a path may be.
void copy_text(char (&to)[PATH_MAX], const char* from) {
  const size_t length = strnlen(from, sizeof to - 1);
  memcpy(to, from, length);
  to[length] = '\0';
}

/// The place of the folder that a relative path begins at; false: it has no name.
bool begin_at(int folder, Place& place) {
  char told[PATH_MAX];
  if (folder == AT_FDCWD) {
    if (raw::value(SYS_getcwd, &told[0], sizeof told) < 0) return false;
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    if (raw::read_link(link, told) != 0) return false;
  }
  if (told[0] != '/') return false;
  show_as_seen(told);
  if (is_outside(told)) return false;
  copy_text(place.name, strcmp(told, "/") == 0 ? "" : told);
  return true;
}

void leave_entry(Place& place) {
  char* slash = strrchr(place.name, '/');
  if (slash != nullptr) *slash = '\0';
}

int add_entry(Place& place, const char* entry, size_t length) {
  const size_t before = strlen(place.name);
  if (length > NAME_MAX || before + 1 + length >= PATH_MAX) return ENAMETOOLONG;
  place.name[before] = '/';
  memcpy(place.name + before + 1, entry, length);
  place.name[before + 1 + length] = '\0';
  return 0;
}

const char* shown(const char* name) { return *name == '\0' ? "/" : name; }

bool is_after_begin(long seconds, long nanoseconds) {
  if (begin_of_rank.tv_sec == 0) return false;
  if (seconds != begin_of_rank.tv_sec) return seconds > begin_of_rank.tv_sec;
  return nanoseconds > begin_of_rank.tv_nsec;
}

bool is_after_begin(const timespec& moment) {
  return is_after_begin(moment.tv_sec, moment.tv_nsec);
}

/// Whether something shared was made after this rank began, where the file system tells.
bool is_younger(const char* path, const struct stat& facts) {
  struct statx born {};
  struct statfs system {};
  if (!is_after_begin(facts.st_ctim) ||
      raw::call(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &born) != 0 ||
      (born.stx_mask & STATX_BTIME) == 0 ||
      !is_after_begin(born.stx_btime.tv_sec, born.stx_btime.tv_nsec))
    return false;
  // A folder of a container's image is born again when something changes in it. It has one link.
  return !S_ISDIR(facts.st_mode) || facts.st_nlink > 1 ||
         raw::call(SYS_statfs, path, &system) != 0 || system.f_type != OVERLAYFS_SUPER_MAGIC;
}

/// What lies under the place's name.
int look(Place& place) {
  place.folder = AT_FDCWD;
  const bool is_hidden = is_gone(place.name);
  const int too_long = join(place.file, kFiles, place.name);
  if (too_long != 0) return too_long;
  struct stat shared {};
  int lacks_shared = is_hidden ? ENOENT : raw::facts_of(shown(place.name), shared);
  if (lacks_shared == 0 && is_younger(shown(place.name), shared)) lacks_shared = ENOENT;
  if (raw::facts_of(place.file, place.facts) == 0) {
    place.kind = Kind::kPrivate;
    char target[PATH_MAX];
    if (S_ISDIR(place.facts.st_mode) && lacks_shared == 0 && S_ISDIR(shared.st_mode)) {
      place.kind = Kind::kMerged;
      place.facts = shared;
      copy_text(place.file, shown(place.name));
    } else if (S_ISLNK(place.facts.st_mode) && raw::read_link(place.file, target) == 0 &&
               starts_with(target, kMovedFrom)) {
      place.kind = Kind::kMoved;
      copy_text(place.file, target + sizeof kMovedFrom - 1);
      return raw::facts_of(place.file, place.facts);
    }
    return 0;
  }
  place.kind = lacks_shared == 0 ? Kind::kShared : Kind::kNothing;
  place.facts = shared;
  if (lacks_shared == 0) {
    copy_text(place.file, shown(place.name));
    remember(place.name);
  }
  return lacks_shared == ENOTDIR || lacks_shared == ENOENT ? 0 : lacks_shared;
}

/// The way of a path that is not walked yet, with the texts of links in it put in.
struct Way {
  char text[PATH_MAX];
  const char* rest = text;
  int links = 0;

  int put_in(const char* target) {
    char behind[PATH_MAX];
    copy_text(behind, rest);
    rest = text;
    const int length = snprintf(text, sizeof text, "%s/%s", target, behind);
    return length < static_cast<int>(sizeof text) ? 0 : ENAMETOOLONG;
  }
};

int follow_link(Place& place, Way& way) {
  if (++way.links > kLinksMax) return ELOOP;
  char target[PATH_MAX];
  const int error = raw::read_link(place.file, target);
  if (error != 0) return error;
  if (target[0] == '/')
    place.name[0] = '\0';
  else
    leave_entry(place);
  const int too_long = way.put_in(target);
  return too_long != 0 ? too_long : look(place);
}

void go_outside(Place& place, const Way& way) {
  snprintf(place.file, sizeof place.file, "%s%s", place.name, way.rest);
  place.kind = Kind::kOutside;
}

int walk(Place& place, Way& way, Follow follow) {
  while (true) {
    way.rest += strspn(way.rest, "/");
    if (*way.rest == '\0') return 0;
    if (!place.exists()) return ENOENT;
    if (!place.is_folder()) return ENOTDIR;
    const size_t length = strcspn(way.rest, "/");
    const char* entry = way.rest;
    way.rest += length;
    if (length == 1 && entry[0] == '.') continue;
    int error = 0;
    if (length == 2 && strncmp(entry, "..", 2) == 0)
      leave_entry(place);
    else
      error = add_entry(place, entry, length);
    if (error != 0) return error;
    if (is_outside(place.name)) {
      go_outside(place, way);
      return 0;
    }
    error = look(place);
    // A link with something behind it is followed, were it a slash alone.
    if (error == 0 && S_ISLNK(place.facts.st_mode) && (*way.rest == '/' || follow == Follow::kYes))
      error = follow_link(place, way);
    if (error != 0) return error;
  }
}

}  // namespace

bool is_gone(const char* name) {
  char mark[PATH_MAX];
  if (join(mark, kGone, "") != 0) return false;
  size_t length = strlen(mark);
  for (const char* at = name; *at == '/';) {
    const size_t entry = 1 + strcspn(at + 1, "/");
    if (length + entry >= sizeof mark) return false;
    memcpy(mark + length, at, entry);
    length += entry;
    mark[length] = '\0';
    at += entry;
    struct stat facts {};
    if (raw::facts_of(mark, facts) != 0) return false;
    if ((facts.st_mode & S_ISVTX) != 0) return true;
  }
  return false;
}

int mark_gone(const char* name) {
  if (is_gone(name)) return 0;
  char mark[PATH_MAX];
  const int too_long = join(mark, kGone, name);
  if (too_long != 0) return too_long;
  for (char* at = mark + root_length + sizeof kGone;; ++at) {
    const char ended = *at;
    if (ended != '/' && ended != '\0') continue;
    *at = '\0';
    const int error = raw::make_folder(mark, S_IRWXU);
    *at = ended;
    if (error != 0 && error != EEXIST) return error;
    if (ended == '\0') break;
  }
  return raw::change_mode(mark, S_IRWXU | S_ISVTX);
}

bool has_met(const char* name) {
  const unsigned long number = number_of(name);
  return __atomic_load_n(&met[number % kMetMax], __ATOMIC_RELAXED) == number && !is_gone(name);
}

bool is_of_first_rank(const char* name) {
  struct stat facts {};
  return !is_gone(name) && raw::facts_of(shown(name), facts) == 0 && is_younger(shown(name), facts);
}

bool is_changed_meanwhile(const Place& place) {
  return place.kind == Kind::kShared && S_ISREG(place.facts.st_mode) &&
         is_after_begin(place.facts.st_mtim);
}

int private_path(const char* name, char (&path)[PATH_MAX]) { return join(path, kFiles, name); }

int point_to_shared(const char* shared, const char* path) {
  char target[PATH_MAX + sizeof kMovedFrom];
  snprintf(target, sizeof target, "%s%s", kMovedFrom, shared);
  return raw::make_symlink(target, path);
}

void new_path(char (&path)[PATH_MAX]) {
  static unsigned long count = 0;
  char name[64];
  snprintf(name, sizeof name, "/%ld-%lu", raw::value(SYS_gettid),
           __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
  join(path, kNew, name);
}

const char* private_root() { return root; }

bool is_private_disk_full() {
  constexpr long kTooLittle = 1 << 20;
  struct statfs facts {};
  return raw::call(SYS_statfs, &root[0], &facts) != 0 ||
         static_cast<long>(facts.f_bavail) * facts.f_bsize < kTooLittle ||
         (facts.f_files != 0 && facts.f_ffree == 0);
}

int folder_of_new(char (&path)[PATH_MAX]) { return join(path, kNew, ""); }

bool may_hide_entries(const Place& folder) {
  char mark[PATH_MAX];
  struct stat facts {};
  return is_after_begin(folder.facts.st_mtim) ||
         (join(mark, kGone, folder.name) == 0 && raw::facts_of(mark, facts) == 0);
}

void use_private_files(const char* folder) {
  if (folder != nullptr) {
    copy_text(root, folder);
    root_length = strlen(root);
    const char* hidden = getenv(SPILLWAY_HIDDEN_LAUNCHER "PMIX_SERVER_TMPDIR");
    const char* shared = hidden != nullptr ? hidden : getenv("PMIX_SERVER_TMPDIR");
    const bool is_apart = shared != nullptr && shared[0] == '/' && !is_below(root, shared);
    copy_text(launcher_folder, is_apart ? shared : "");
    for (const char* part : {kFiles, kGone, kNew}) {
      char path[PATH_MAX];
      if (join(path, part, "") == 0) raw::make_folder(path, S_IRWXU);
    }
    struct stat owner {};
    char path[PATH_MAX];
    const bool is_known = join(path, kOwner, "") == 0 && raw::facts_of(path, owner) == 0;
    begin_of_rank = is_known ? owner.st_mtim : timespec{};
  }
  const ViewState state = folder == nullptr ? ViewState::kOff : ViewState::kOn;
  __atomic_store_n(&view_state, state, __ATOMIC_RELEASE);
}

bool look_for_private_files() {
  const char* folder = getenv(SPILLWAY_PRIVATE_FILES_VARIABLE);
  use_private_files(folder == nullptr || folder[0] != '/' ? nullptr : folder);
  return folder != nullptr && folder[0] == '/';
}

bool show_as_seen(char* path) {
  if (!is_below(path, root)) return false;
  char* behind = path + root_length;
  if (!is_below(behind, kFiles)) return false;
  behind += sizeof kFiles - 1;
  if (*behind == '\0')
    strcpy(path, "/");
  else
    memmove(path, behind, strlen(behind) + 1);
  return true;
}

int find_place(int folder, const char* path, Follow follow, Place& place) {
  place.kind = Kind::kOutside;
  place.folder = folder;
  if (path == nullptr) return EFAULT;
  Way way;
  const int length = snprintf(way.text, sizeof way.text, "%s", path);
  if (length >= static_cast<int>(sizeof way.text)) return ENAMETOOLONG;
  copy_text(place.file, path);
  if (length == 0 || is_outside(path)) return 0;
  place.name[0] = '\0';
  if (path[0] != '/' && !begin_at(folder, place)) return 0;
  const int error = look(place);
  return error != 0 ? error : walk(place, way, follow);
}

int find_entry(const Place& folder, const char* entry, Place& place) {
  memcpy(place.name, folder.name, sizeof place.name);
  const int error = add_entry(place, entry, strlen(entry));
  return error != 0 ? error : look(place);
}

int find_folder_of(const Place& entry, Place& place) {
  memcpy(place.name, entry.name, sizeof place.name);
  leave_entry(place);
  return look(place);
}

}  // namespace spillway::preload
