#pragma once

#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>

namespace spillway::preload {

// A view of the file system that belongs to one rank of a job: what exists is seen, and what the
// rank writes, makes, renames or removes lies in a folder of its own, `files` below it for what is
// there and `gone` for what is not. All state is in that folder, so that the processes of a rank
// share it. What was made after the rank began exists for who has made it: the first rank may be
// writing it still, and this one will make its own. Nothing here allocates; any thread. Errors are
// those of errno.h, 0 for none.

enum class Kind {
  kOutside,  ///< Goes by the view: devices, /proc, what has no name.
  kNothing,
  kShared,   ///< All ranks see it.
  kPrivate,  ///< Of this rank.
  kMerged,   ///< A folder with entries of both.
  kMoved,    ///< A shared file under a name of this rank.
};

enum class Follow { kNo, kYes };  // A link at the end of a path.

/// Where a path leads.
struct Place {
  Kind kind = Kind::kOutside;
  struct stat facts {};      ///< Of what is there, no link followed.
  int folder = -1;           ///< What `file` begins at: a descriptor, or AT_FDCWD.
  char file[PATH_MAX] = {};  ///< What the kernel is to be given to read it.
  char name[PATH_MAX] = {};  ///< As the program sees it: absolute, no links; the root is "".

  bool exists() const { return kind != Kind::kNothing; }
  bool is_folder() const { return S_ISDIR(facts.st_mode); }
};

/// Whether this process has such a view. Cheap.
inline bool has_private_files();

/// Makes the view of this process that of a folder, which must exist; null: it has none.
void use_private_files(const char* folder);

/// Where a path leads that the program gives together with a descriptor of a folder.
int find_place(int folder, const char* path, Follow follow, Place& place);

/// The same for an entry of a folder that was found.
int find_entry(const Place& folder, const char* entry, Place& place);

/// Takes our folder off the beginning of a path that the kernel told. Returns whether it was there.
bool show_as_seen(char* path);

/// Readies a file to be opened with these flags of open(2); afterwards `file` of the place is what
/// to open. Copies a shared file that is to be changed and not truncated.
int ready_to_open(Place& place, int flags);

/// Whether a file that all see has been changed since the rank began: another one may have read
/// other bytes.
bool is_changed_meanwhile(const Place& place);

/// Gives the rank its own copy of a shared file, link or folder, for a change of its bytes or
/// facts.
int make_private(Place& place);

/// Readies a name for something new, which is to be made as `file`. It must be free.
int ready_for_new(Place& place);

int make_private_folder(Place& place, mode_t mode);
int remove_private(Place& place);         ///< A file.
int remove_private_folder(Place& place);  ///< An empty one.

/// `flags`: of renameat2(2).
int rename_private(Place& from, Place& to, unsigned flags);

/// Internal state of has_private_files.
enum class ViewState : int { kUnknown, kOff, kOn };
extern ViewState view_state;
bool look_for_private_files();

inline bool has_private_files() {
  const ViewState state = __atomic_load_n(&view_state, __ATOMIC_ACQUIRE);
  return __builtin_expect(state != ViewState::kOff, 0) &&
         (state == ViewState::kOn || look_for_private_files());
}

}  // namespace spillway::preload
