#pragma once

#include "private_files.h"
#include "rank_notices.h"
#include "raw_files.h"

namespace spillway::preload {

/// Sets errno for an error that is not 0. Returns what the C library would: 0 or -1.
inline int told_result(int error) {
  if (error != 0) {
    note_error(error);
    errno = error;
  }
  return error == 0 ? 0 : -1;
}

/// Calls `call` with a descriptor of a folder and a path, which lead to what the process sees under
/// the path that it gave; `kFailed` with errno set where they lead nowhere.
template <class Call>
auto at_place(int folder, const char* path, Follow follow, const Call& call)
    -> decltype(call(folder, path)) {
  if (!has_private_files() || path == nullptr) return call(folder, path);
  Place place;
  const int error = find_place(folder, path, follow, place);
  if (error == 0) return call(place.folder, static_cast<const char*>(place.file));
  errno = error;
  return static_cast<decltype(call(folder, path))>(-1);
}

/// The same for a call that changes what is there: `change` gets the place, in the process's own
/// files, and returns an error; `call` is what is called without such files.
template <class Change, class Call>
int change_place(int folder, const char* path, Follow follow, const Change& change,
                 const Call& call) {
  if (!has_private_files() || path == nullptr) return call(folder, path);
  Place place;
  const int error = find_place(folder, path, follow, place);
  if (error != 0) return told_result(error);
  if (place.kind == Kind::kOutside) return call(place.folder, static_cast<const char*>(place.file));
  return told_result(change(place));
}

/// For calls that change facts of a file: `call` is made on the process's own copy.
template <class Call>
int change_facts(int folder, const char* path, Follow follow, const Call& call) {
  const auto change = [&](Place& place) {
    const uid_t user = geteuid();
    if (!place.exists()) return ENOENT;
    if (user != 0 && user != place.facts.st_uid) return EPERM;
    const int error = make_private(place);
    return error != 0 || call(AT_FDCWD, static_cast<const char*>(place.file)) == 0 ? error : errno;
  };
  return change_place(folder, path, follow, change, call);
}

inline Follow follow_unless(bool is_link_meant) {
  return is_link_meant ? Follow::kNo : Follow::kYes;
}

}  // namespace spillway::preload
