#include "kept_environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spillway/preload/active.h"

namespace spillway::preload {
namespace {

constexpr char kPreload[] = "LD_PRELOAD=";
constexpr char kActive[] = SPILLWAY_ACTIVE_VARIABLE "=";
constexpr char kJoined[] = SPILLWAY_JOINED_VARIABLE "=";
constexpr char kPrefix[] = "SPILLWAY_";
char active_without_name[] = SPILLWAY_ACTIVE_VARIABLE "=" SPILLWAY_ACTIVE_VALUE;

// Written before main; what they point to stays.
char** kept = nullptr;  // Variables of ours, without LD_PRELOAD.
size_t kept_count = 0;
char* kept_preload = nullptr;  // "LD_PRELOAD=…"

template <size_t size>
bool starts_with(const char* text, const char (&start)[size]) {
  return strncmp(text, start, size - 1) == 0;
}

const char* entry_in(char* const* list, const char* variable) {
  const size_t length = strcspn(variable, "=") + 1;
  for (; list != nullptr && *list != nullptr; ++list)
    if (strncmp(*list, variable, length) == 0) return *list;
  return nullptr;
}

size_t count_of(char* const* list) {
  size_t count = 0;
  while (list != nullptr && list[count] != nullptr) ++count;
  return count;
}

bool is_cleared(char* const* given) {
  return kept_preload != nullptr && entry_in(given, kActive) == nullptr;
}

/// What a program is to know of the rank that it comes from, where its environment was made before
/// that had joined the others, or anew; else null.
const char* joined_for(char* const* given) {
  const bool is_ours = is_cleared(given) || entry_in(given, kActive) != nullptr;
  return is_ours && entry_in(given, kJoined) == nullptr ? entry_in(environ, kJoined) : nullptr;
}

}  // namespace

void keep_environment() {
  if (spillway_is_active() == 0) return;
  kept = static_cast<char**>(calloc(count_of(environ) + 1, sizeof(char*)));
  if (kept == nullptr) return;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (starts_with(*entry, kPrefix) && !starts_with(*entry, kJoined))
      kept[kept_count++] = strdup(*entry);
  const char* preload = entry_in(environ, kPreload);
  kept_preload = preload == nullptr ? nullptr : strdup(preload);
}

void forget_environment() { kept_preload = nullptr; }

EnvironmentRoom room_to_mend(char* const* given, bool takes_name) {
  EnvironmentRoom room;
  const bool cleared = is_cleared(given);
  const char* active = entry_in(given, kActive);
  const bool has_name = active != nullptr && strchr(active, ':') != nullptr;
  if (!cleared && !(takes_name && has_name) && joined_for(given) == nullptr) return room;
  room.entries = count_of(given) + kept_count + 3;
  const char* preload = entry_in(given, kPreload);
  if (cleared) room.preload = strlen(kept_preload) + (preload == nullptr ? 0 : strlen(preload)) + 1;
  return room;
}

void mend_environment(char* const* given, bool takes_name, char** list, char* preload) {
  const bool cleared = is_cleared(given);
  size_t count = 0;
  for (char* const* entry = given; entry != nullptr && *entry != nullptr; ++entry)
    if (!cleared || !starts_with(*entry, kPreload)) list[count++] = *entry;
  if (cleared) {
    const char* theirs = entry_in(given, kPreload);
    strcpy(preload, kept_preload);
    if (theirs != nullptr && theirs[sizeof kPreload - 1] != '\0') {
      strcat(preload, ":");
      strcat(preload, theirs + sizeof kPreload - 1);
    }
    list[count++] = preload;
    for (size_t i = 0; i < kept_count; ++i)
      if (entry_in(given, kept[i]) == nullptr) list[count++] = kept[i];
  }
  if (const char* joined = joined_for(given)) list[count++] = const_cast<char*>(joined);
  list[count] = nullptr;
  for (size_t i = 0; takes_name && i < count; ++i)
    if (starts_with(list[i], kActive)) list[i] = active_without_name;
}

}  // namespace spillway::preload
