#pragma once

#include <stdarg.h>
#include <unistd.h>

namespace spillway::preload {

/// Prints "[spillway] LEVEL: " and the text as one line on standard error, in one write, so that
/// lines of several ranks do not mix. Allocates nothing; any thread, a child of vfork too.
/// `output`: what stands for standard error.
void say(const char* level, const char* pattern, va_list arguments, int output = STDERR_FILENO);

/// The same with the level "warning".
__attribute__((format(printf, 1, 2))) void warn(const char* pattern, ...);
__attribute__((format(printf, 2, 3))) void warn_at(int output, const char* pattern, ...);

}  // namespace spillway::preload
