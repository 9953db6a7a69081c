#pragma once

#include "private_files.h"

namespace spillway::preload {

// The layout of the folder that private_files.h tells of, for the sources that implement it. Names
// are those of a Place.

/// Whether what all ranks see under this name is hidden from this one.
bool is_gone(const char* name);
/// Hides it.
int mark_gone(const char* name);

/// Whether this process has lately seen something shared of that name, which it has not removed. If
/// nothing is there now, the first rank was faster.
bool has_met(const char* name);

/// Whether something shared that this rank does not see is there, since the first one was faster to
/// make it.
bool is_of_first_rank(const char* name);

/// Where this rank's own file of that name lies.
int private_path(const char* name, char (&path)[PATH_MAX]);
/// Readies a name of which is known that nothing is there.
int ready_to_make(Place& place);
/// A path that nobody else uses, in the same file system.
void new_path(char (&path)[PATH_MAX]);

/// Makes `path`, one of this rank, stand for a shared file of another name.
int point_to_shared(const char* shared, const char* path);

/// The folder itself.
const char* private_root();
/// Whether the file system that it is in has no room for a program's files.
bool is_private_disk_full();

/// Whether something shared in a folder may be hidden.
bool may_hide_entries(const Place& folder);

/// The folder in which nameless files are made.
int folder_of_new(char (&path)[PATH_MAX]);

/// The folder that an entry is in.
int find_folder_of(const Place& entry, Place& place);

}  // namespace spillway::preload
