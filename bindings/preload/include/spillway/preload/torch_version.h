#pragma once

// Finds the version of a libtorch_cpu from its bytes, in memory or in a file. Used by the preload
// library and by `spillway doctor`; needs the C library only.

#include <stddef.h>
#include <stdio.h>
#include <string.h>

namespace spillway::preload {

struct TorchVersion {
  char text[24] = "";  ///< "2.11.0"; empty when it was not found.
  unsigned major = 0;
  unsigned minor = 0;

  bool is_known() const { return text[0] != '\0'; }
};

/// "2.11.0", "2.14.0a0", …: major, minor and patch, then anything short. False for other texts.
inline bool parse_torch_version(const char* text, size_t size, TorchVersion& version) {
  if (size == 0 || size >= sizeof version.text) return false;
  unsigned numbers[3] = {0, 0, 0};
  size_t at = 0;
  for (int part = 0; part < 3; ++part) {
    const size_t start = at;
    while (at < size && text[at] >= '0' && text[at] <= '9')
      numbers[part] = numbers[part] * 10 + static_cast<unsigned>(text[at++] - '0');
    if (at == start || at - start > 3) return false;
    if (part < 2 && (at >= size || text[at++] != '.')) return false;
  }
  if (at < size && text[at] == '.') return false;  // Four numbers: an address.
  memcpy(version.text, text, size);
  version.text[size] = '\0';
  version.major = numbers[0];
  version.minor = numbers[1];
  return true;
}

/// A constant that stands near the version in LibTorch's read-only data.
struct TorchLandmark {
  const char* text;
  size_t before;  ///< How far the version may lie before it, in bytes.
  size_t after;
};

/// Searches `data` for a whole constant that reads as a version near the landmark.
inline TorchVersion find_torch_version_near(const TorchLandmark& landmark, const char* data,
                                            size_t size) {
  TorchVersion version;
  const char* const end = data + size;
  const size_t mark_size = strlen(landmark.text) + 1;
  for (const char* from = data; from < end;) {
    const char* mark = static_cast<const char*>(
        memmem(from, static_cast<size_t>(end - from), landmark.text, mark_size));
    if (mark == nullptr) break;
    const size_t ahead = static_cast<size_t>(mark - data);
    const size_t behind = static_cast<size_t>(end - mark);
    const char* const stop = behind > landmark.after ? mark + landmark.after : end;
    for (const char* text = ahead > landmark.before ? mark - landmark.before : data; text < stop;) {
      const size_t room = static_cast<size_t>(stop - text);
      const size_t length = strnlen(text, room);
      if (length < room && parse_torch_version(text, length, version)) return version;
      text += length + 1;
    }
    from = mark + mark_size;
  }
  return version;
}

/// Searches read-only data. LibTorch exports no version, but keeps it as a constant for its build
/// report, and to sign the ONNX models that it writes. Linkers merge equal constants, so which of
/// the two has it beside itself depends on the build.
inline TorchVersion find_torch_version(const char* data, size_t size) {
  TorchVersion version = find_torch_version_near({"TORCH_VERSION", 0, 64}, data, size);
  if (!version.is_known())
    version = find_torch_version_near({"GraphEncoder", 2048, 2048}, data, size);
  return version;
}

/// Reads the version that packagers put into file names: "libtorch_cpu.so.2.6" gives 2.6.0.
inline TorchVersion torch_version_of_name(const char* path) {
  TorchVersion version;
  const char* suffix = strstr(path, ".so.");
  if (suffix == nullptr) return version;
  char text[24];
  const size_t length = strlen(suffix + 4);
  if (length + 3 > sizeof text) return version;
  memcpy(text, suffix + 4, length + 1);
  if (!parse_torch_version(text, length, version)) {
    memcpy(text + length, ".0", 3);
    parse_torch_version(text, length + 2, version);
  }
  return version;
}

/// Reads what official packages put beside the folder of the library: version.py (wheels) or
/// build-version (archives).
inline TorchVersion torch_version_beside(const char* path) {
  struct Beside {
    const char* file;
    const char* mark;  ///< What stands right before the version.
  };
  static const Beside kPlaces[] = {{"version.py", "__version__ = '"}, {"build-version", ""}};
  TorchVersion version;
  const char* slash = strrchr(path, '/');
  for (const Beside& place : kPlaces) {
    char name[4096];
    const int folder = slash == nullptr ? 0 : static_cast<int>(slash + 1 - path);
    if (snprintf(name, sizeof name, "%.*s../%s", folder, path, place.file) >=
        static_cast<int>(sizeof name))
      return version;
    FILE* file = fopen(name, "re");
    if (file == nullptr) continue;
    char text[4096];
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char* mark = strstr(text, place.mark);
    if (mark == nullptr) continue;
    mark += strlen(place.mark);
    // "2.11.0+cu130": what is behind the plus names the build.
    if (parse_torch_version(mark, strcspn(mark, "+'\n"), version)) return version;
  }
  return version;
}

}  // namespace spillway::preload
