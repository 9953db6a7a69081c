#include "torch_in_process.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

namespace spillway::preload {
namespace {

struct Search {
  TorchInProcess* found;
  bool with_version;
};

const char* file_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

bool starts_with(const char* text, const char* start) {
  return strncmp(text, start, strlen(start)) == 0;
}

bool is_same_file(const char* a, const char* b) {
  struct stat first {};
  struct stat second {};
  if (stat(a, &first) != 0 || stat(b, &second) != 0) return strcmp(a, b) == 0;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Constants have a segment of their own, or share one with the code in old layouts.
TorchVersion version_in_segments(const dl_phdr_info& library, bool executable) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0 ||
        (segment.p_flags & PF_R) == 0 || ((segment.p_flags & PF_X) != 0) != executable)
      continue;
    const auto* data = reinterpret_cast<const char*>(library.dlpi_addr + segment.p_vaddr);
    const TorchVersion version = find_torch_version(data, segment.p_filesz);
    if (version.is_known()) return version;
  }
  return {};
}

TorchVersion version_of(const dl_phdr_info& library) {
  TorchVersion version = version_in_segments(library, /*executable=*/false);
  if (!version.is_known()) version = version_in_segments(library, /*executable=*/true);
  if (!version.is_known()) version = torch_version_of_name(library.dlpi_name);
  return version.is_known() ? version : torch_version_beside(library.dlpi_name);
}

int look_at(dl_phdr_info* library, size_t /*size*/, void* opaque) {
  auto& search = *static_cast<Search*>(opaque);
  TorchInProcess& found = *search.found;
  if (library->dlpi_name == nullptr) return 0;
  const char* name = file_name(library->dlpi_name);
  if (starts_with(name, "libspillway_core")) found.has_core = true;
  if (!starts_with(name, "libtorch_cpu.so")) return 0;
  if (found.copies == 0) {
    snprintf(found.path, sizeof found.path, "%s", library->dlpi_name);
    if (search.with_version) found.version = version_of(*library);
    found.copies = 1;
  } else if (found.copies == 1 && !is_same_file(found.path, library->dlpi_name)) {
    snprintf(found.second, sizeof found.second, "%s", library->dlpi_name);
    found.copies = 2;
  }
  return 0;
}

}  // namespace

void find_torch(TorchInProcess& found, bool with_version) {
  found = TorchInProcess();
  Search search{&found, with_version};
  dl_iterate_phdr(&look_at, &search);
}

}  // namespace spillway::preload
