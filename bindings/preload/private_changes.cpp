// What a rank changes in its view of the file system: the half of private_files.h that writes.

#include <sys/sendfile.h>

#include "private_files.h"
#include "private_folder.h"
#include "rank_notices.h"
#include "raw_files.h"

namespace spillway::preload {
namespace {

constexpr mode_t kModeBits = 07777;
constexpr size_t kCopiedAtOnce = size_t{1} << 30;

/// What the rank may do in the folder of an entry is what it might do there for real.
int may_change_folder(const Place& entry, Place& folder) {
  const int error = find_folder_of(entry, folder);
  if (error != 0) return error;
  if (!folder.exists()) return ENOENT;
  if (!folder.is_folder()) return ENOTDIR;
  return raw::access_to(folder.file, W_OK | X_OK);
}

/// In folders like /tmp entries of other users stay.
int may_take_away(const Place& entry) {
  Place folder;
  const int error = may_change_folder(entry, folder);
  const uid_t user = geteuid();
  if (error != 0 || (folder.facts.st_mode & S_ISVTX) == 0 || user == 0) return error;
  return user == folder.facts.st_uid || user == entry.facts.st_uid ? 0 : EPERM;
}

/// Makes the folders that hold the rank's own file of that name.
int make_folders_of(const char* name) {
  char path[PATH_MAX];
  int error = private_path("", path);
  const size_t begin = strlen(path);
  if (error == 0) error = private_path(name, path);
  if (error != 0) return error;
  for (char* at = path + begin + 1; *at != '\0'; ++at) {
    if (*at != '/') continue;
    *at = '\0';
    error = raw::make_folder(path, S_IRWXU);
    *at = '/';
    if (error != 0 && error != EEXIST) return error;
  }
  return 0;
}

int copy_bytes(int from, int to) {
  while (true) {
    long moved = raw::value(SYS_copy_file_range, from, nullptr, to, nullptr, kCopiedAtOnce, 0);
    if (moved == -EXDEV || moved == -EINVAL || moved == -ENOSYS || moved == -EOPNOTSUPP)
      moved = raw::value(SYS_sendfile, to, from, nullptr, kCopiedAtOnce);
    if (moved < 0 && moved != -EINTR) return static_cast<int>(-moved);
    if (moved == 0) return 0;
  }
}

enum class Bytes { kCopied, kNone };

int fill_copy(const Place& place, int to, Bytes bytes) {
  int error = raw::call(SYS_fchmod, to, place.facts.st_mode & kModeBits);
  if (error != 0 || bytes == Bytes::kNone) return error;
  const int from = raw::open_file(place.file, O_RDONLY);
  if (from < 0) return -from;
  error = copy_bytes(from, to);
  raw::close_file(from);
  const timespec times[] = {place.facts.st_atim, place.facts.st_mtim};
  return error != 0 ? error : raw::call(SYS_utimensat, to, nullptr, times, 0);
}

/// Of a regular file; nobody sees it before it is whole.
int copy_file(const Place& place, const char* path, Bytes bytes) {
  const int to = raw::open_file(path, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (to < 0) return -to;
  const int error = fill_copy(place, to, bytes);
  raw::close_file(to);
  return error;
}

/// Puts what `make` makes under the place's name.
template <class Make>
int put_in_place(Place& place, const Make& make) {
  char made[PATH_MAX];
  char path[PATH_MAX];
  new_path(made);
  int error = private_path(place.name, path);
  if (error == 0) error = make_folders_of(place.name);
  if (error == 0) error = make(made);
  if (error == 0) error = raw::rename_file(made, path);
  if (error != 0) {
    raw::remove_file(made);
    return error;
  }
  memcpy(place.file, path, sizeof path);
  place.kind = Kind::kPrivate;
  return 0;
}

int copy_in_place(Place& place, Bytes bytes) {
  if (bytes == Bytes::kCopied) tell_of_copy(place.name, place.facts.st_size);
  return put_in_place(place, [&](const char* made) { return copy_file(place, made, bytes); });
}

int copy_link(Place& place) {
  char target[PATH_MAX];
  const int error = raw::read_link(place.file, target);
  if (error != 0) return error;
  return put_in_place(place, [&](const char* made) { return raw::make_symlink(target, made); });
}

int make_folder_private(Place& place) {
  char path[PATH_MAX];
  int error = private_path(place.name, path);
  if (error == 0) error = make_folders_of(place.name);
  if (error == 0) error = raw::make_folder(path, S_IRWXU);
  // The mask of the process is not for a copy.
  return error != 0 && error != EEXIST ? error
                                       : raw::change_mode(path, place.facts.st_mode & kModeBits);
}

int take_over(Place& place);

/// Calls `told` with the entries of a folder in the view that all ranks see.
template <class Told>
int each_shared(const Place& folder, const Told& told) {
  if (folder.kind != Kind::kShared && folder.kind != Kind::kMerged) return 0;
  return raw::each_entry(folder.file, [&](const char* name) {
    Place entry;
    const int error = find_entry(folder, name, entry);
    return error == 0 && (entry.kind == Kind::kShared || entry.kind == Kind::kMerged) ? told(entry)
                                                                                      : error;
  });
}

/// Makes everything in a folder the rank's own; what is large stays where it is, under a new name.
int take_over_folder(Place& place) {
  int error = make_folder_private(place);
  if (error == 0) error = each_shared(place, [](Place& entry) { return take_over(entry); });
  if (error == 0) error = mark_gone(place.name);
  return error;
}

/// Makes an entry the rank's own as far as its name goes.
int take_over(Place& place) {
  if (place.kind == Kind::kPrivate || place.kind == Kind::kMoved) return 0;
  if (place.is_folder()) return take_over_folder(place);
  if (S_ISLNK(place.facts.st_mode)) return copy_link(place);
  return put_in_place(place, [&](const char* made) { return point_to_shared(place.file, made); });
}

int is_empty(const Place& folder) {
  const int error = each_shared(folder, [](Place&) { return ENOTEMPTY; });
  char path[PATH_MAX];
  if (error != 0 || private_path(folder.name, path) != 0) return error;
  const int own = raw::each_entry(path, [](const char*) { return ENOTEMPTY; });
  return own == ENOENT ? 0 : own;
}

/// Whether something may take the place of what is there.
int may_replace(const Place& from, const Place& to, unsigned flags) {
  if ((flags & RENAME_NOREPLACE) != 0) return EEXIST;
  if ((flags & RENAME_EXCHANGE) != 0) return 0;
  if (from.is_folder() && !to.is_folder()) return ENOTDIR;
  if (!from.is_folder() && to.is_folder()) return EISDIR;
  return to.is_folder() ? is_empty(to) : 0;
}

int may_rename(const Place& from, const Place& to, unsigned flags) {
  if (!from.exists()) return ENOENT;
  if (from.kind == Kind::kOutside || to.kind == Kind::kOutside) return EXDEV;
  const size_t length = strlen(from.name);
  if (strncmp(from.name, to.name, length) == 0 && to.name[length] == '/') return EINVAL;
  int error = may_take_away(from);
  if (error != 0) return error;
  if (to.exists()) {
    error = may_take_away(to);
    return error != 0 ? error : may_replace(from, to, flags);
  }
  Place folder;
  return (flags & RENAME_EXCHANGE) != 0 ? ENOENT : may_change_folder(to, folder);
}

/// Whether the first rank has just removed or renamed what this one is about to, and may have made
/// something else under that name.
bool is_taken_before(const Place& place) {
  return place.kind == Kind::kNothing && (has_met(place.name) || is_of_first_rank(place.name));
}

}  // namespace

int ready_for_new(Place& place) { return place.exists() ? EEXIST : ready_to_make(place); }

int ready_to_make(Place& place) {
  Place folder;
  int error = may_change_folder(place, folder);
  if (error == 0) error = make_folders_of(place.name);
  return error != 0 ? error : private_path(place.name, place.file);
}

int make_private(Place& place) {
  if (place.kind == Kind::kNothing) return ENOENT;
  if (place.is_folder()) {
    const int error = make_folder_private(place);
    return error != 0 ? error : private_path(place.name, place.file);
  }
  if (place.kind != Kind::kShared && place.kind != Kind::kMoved) return 0;
  if (S_ISLNK(place.facts.st_mode)) return copy_link(place);
  // Pipes, sockets and devices are where they are.
  return S_ISREG(place.facts.st_mode) ? copy_in_place(place, Bytes::kCopied) : EPERM;
}

int ready_to_open(Place& place, int flags) {
  const bool is_made = (flags & O_CREAT) != 0;
  if (!place.exists()) return is_made ? ready_to_make(place) : ENOENT;
  if (is_made && (flags & O_EXCL) != 0) return ready_for_new(place);
  const bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  const bool is_shared = place.kind == Kind::kShared || place.kind == Kind::kMoved;
  if (!changes || !is_shared || !S_ISREG(place.facts.st_mode)) return 0;
  const int wanted = W_OK | ((flags & O_ACCMODE) == O_WRONLY ? 0 : R_OK);
  const int error = raw::access_to(place.file, wanted);
  if (error != 0) return error;
  return copy_in_place(place, (flags & O_TRUNC) != 0 ? Bytes::kNone : Bytes::kCopied);
}

int make_private_folder(Place& place, mode_t mode) {
  int error = ready_for_new(place);
  // What others put into a folder of that name is not in this one.
  if (error == 0) error = mark_gone(place.name);
  return error != 0 ? error : raw::make_folder(place.file, mode);
}

int remove_private(Place& place) {
  if (is_taken_before(place)) return mark_gone(place.name);
  if (!place.exists()) return ENOENT;
  if (place.is_folder()) return EISDIR;
  int error = may_take_away(place);
  if (error == 0) error = mark_gone(place.name);
  char path[PATH_MAX];
  if (error == 0) error = private_path(place.name, path);
  if (error != 0) return error;
  const bool is_own = place.kind == Kind::kPrivate || place.kind == Kind::kMoved;
  return is_own ? raw::remove_file(path) : 0;
}

int remove_private_folder(Place& place) {
  if (is_taken_before(place)) return mark_gone(place.name);
  if (!place.exists()) return ENOENT;
  if (!place.is_folder()) return ENOTDIR;
  int error = may_take_away(place);
  if (error == 0) error = is_empty(place);
  if (error == 0) error = mark_gone(place.name);
  char path[PATH_MAX];
  if (error == 0) error = private_path(place.name, path);
  if (error != 0 || place.kind == Kind::kShared) return error;
  return raw::remove_folder(path);
}

int rename_private(Place& from, Place& to, unsigned flags) {
  if (is_taken_before(from) && to.kind == Kind::kShared) return mark_gone(from.name);
  int error = may_rename(from, to, flags);
  if (error != 0 || strcmp(from.name, to.name) == 0) return error;
  error = take_over(from);
  if (error == 0 && (flags & RENAME_EXCHANGE) != 0) error = take_over(to);
  char source[PATH_MAX];
  char target[PATH_MAX];
  if (error == 0) error = private_path(from.name, source);
  if (error == 0) error = private_path(to.name, target);
  if (error == 0) error = make_folders_of(to.name);
  if (error == 0 && from.is_folder()) error = mark_gone(to.name);
  if (error == 0) error = mark_gone(from.name);
  return error != 0 ? error : raw::rename_file(source, target, flags);
}

}  // namespace spillway::preload
