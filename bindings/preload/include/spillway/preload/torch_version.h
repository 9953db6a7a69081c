#pragma once

// Finds the version of a libtorch_cpu from its bytes, in memory or in a file. Used by the preload
// library and by `spillway doctor`; needs the C library only.

#include <stddef.h>
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

/// Searches read-only data. LibTorch exports no version, but it signs the ONNX models that it
/// writes, so the constant lies among those of its GraphEncoder class.
inline TorchVersion find_torch_version(const char* data, size_t size) {
  static const char kLandmark[] = "GraphEncoder";
  const size_t kReach = 2048;  // In both directions: compilers order constants as they like.
  TorchVersion version;
  const char* const end = data + size;
  for (const char* from = data; from < end;) {
    const char* mark = static_cast<const char*>(
        memmem(from, static_cast<size_t>(end - from), kLandmark, sizeof kLandmark));
    if (mark == nullptr) break;
    const char* window = mark - data > static_cast<ptrdiff_t>(kReach) ? mark - kReach : data;
    const char* window_end = end - mark > static_cast<ptrdiff_t>(kReach) ? mark + kReach : end;
    for (const char* text = window; text < window_end;) {
      const size_t room = static_cast<size_t>(window_end - text);
      const size_t length = strnlen(text, room);
      if (length < room && parse_torch_version(text, length, version)) return version;
      text += length + 1;
    }
    from = mark + sizeof kLandmark;
  }
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

}  // namespace spillway::preload
