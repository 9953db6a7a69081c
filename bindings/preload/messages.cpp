#include "messages.h"

#include <stdio.h>
#include <unistd.h>

namespace spillway::preload {

void say(const char* level, const char* pattern, va_list arguments, int output) {
  char text[4096];
  int length = snprintf(text, sizeof text, "[spillway] %s: ", level);
  length +=
      vsnprintf(text + length, sizeof text - static_cast<size_t>(length) - 1, pattern, arguments);
  if (length > static_cast<int>(sizeof text) - 2) length = sizeof text - 2;
  text[length] = '\n';
  const ssize_t written = write(output, text, static_cast<size_t>(length) + 1);
  (void)written;
}

void warn(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  say("warning", pattern, arguments);
  va_end(arguments);
}

void warn_at(int output, const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  say("warning", pattern, arguments, output);
  va_end(arguments);
}

}  // namespace spillway::preload
