#include "spillway/topology/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/own_descriptors.h"
#include "spillway/base/own_files.h"

namespace spillway::topology {
namespace {

// 0 or an errno value.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

[[noreturn]] void refuse_to_write(const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  throw IoError("cannot write {}: {} ({})", path, std::strerror(error),
                is_full ? "free some room there, or name a file elsewhere"
                        : "name a file where this user may write");
}

void write_and_rename(const std::string& path, std::string_view text) {
  std::random_device random;
  std::string temporary;
  int file = -1;
  // Not mkostemp, whose files are private whatever the mask says.
  do {
    temporary = message("{}.{}", path, random());
    file = moved_up(open_own_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (file < 0 && errno == EEXIST);
  if (file < 0) refuse_to_write(path, errno);
  int error = write_all(file, text);
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename_own_file(temporary, path) != 0) error = errno;
  if (error != 0) {
    remove_own_file(temporary);
    refuse_to_write(path, error);
  }
}

}  // namespace

void write_file_at_once(const std::string& path, std::string_view text) {
  std::optional<OwnDescriptors> own;
  try {
    // Other threads of a trainer may be closing all that is open, and use the number.
    own.emplace();
  } catch (const std::system_error&) {
    // Near the limit of threads the file matters more.
    write_and_rename(path, text);
    return;
  }
  own->run([&] { write_and_rename(path, text); });
}

std::string text_of_file(const std::string& path, std::string_view written_by) {
  const auto refuse = [&](const char* reason) {
    if (!written_by.empty())
      throw IoError("cannot read {}: {} ({} writes one)", path, reason, written_by);
    throw IoError("cannot read {}: {} (name a file that {})", path, reason,
                  errno == ENOENT ? "is there" : "this user may read");
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw IoError("cannot read {}: it is a folder (name a file in it)", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // An empty file sets the fail bit of the receiver, which is no error here.
  if (file) text << file.rdbuf();
  if (!file.is_open() || file.bad()) refuse(std::strerror(errno != 0 ? errno : EIO));
  return std::move(text).str();
}

}  // namespace spillway::topology
