#include "output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

fs::path real_path(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : real;
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat of_a {};
  struct stat of_b {};
  if (::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0)
    return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
  return real_path(a) == real_path(b);
}

void refuse_same(const NamedFile& output, const NamedFile& other) {
  if (other.path.empty() || !is_same_file(output.path, other.path)) return;
  throw ConfigError("{} {} is the same file as {} {} (name another file behind {})", output.word,
                    output.path, other.word, other.path, output.word);
}

/// Why no file can be made or replaced in that folder; empty when it can.
std::string why_not_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return message("folder {} does not exist", folder.string());
  if (!fs::is_directory(folder, error)) return message("{} is no folder", folder.string());
  // Tried, since /proc lets its own user write and takes no file, and a disk may be full.
  std::string trial = (folder / ".spillway-XXXXXX").string();
  const int file = ::mkstemp(trial.data());
  // ENOENT, of a folder that is there, is what kernels say of those that they fill themselves.
  if (file < 0)
    return message("no file can be made in folder {}{}", folder.string(),
                   errno == ENOENT ? "" : message(": {}", std::strerror(errno)));
  ::unlink(trial.c_str());  // Now: nothing stays where a signal ends the process at the write.
  const std::array<char, 4096> page{};
  errno = ENOSPC;  // Of a write that takes a part.
  const ssize_t written = ::write(file, page.data(), page.size());
  const int error_of_write = errno;
  const bool is_written = written == static_cast<ssize_t>(page.size());
  const bool is_closed = ::close(file) == 0;  // Here shared file systems tell of a full disk.
  if (is_written && is_closed) return {};
  return message("no bytes can be written in folder {}: {}", folder.string(),
                 std::strerror(is_written ? errno : error_of_write));
}

void refuse_unwritable(const NamedFile& output, MissingFolder folders) {
  std::error_code error;
  const fs::path path(output.path);
  if (fs::is_directory(path, error) || !path.has_filename())
    throw ConfigError("cannot write {} {}: it is a folder (name a file in it)", output.word,
                      output.path);
  // Replacing by a rename would put a plain file in the place of a device.
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    throw ConfigError("cannot write {} {}: it is no regular file (name another one)", output.word,
                      output.path);
  fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  while (folders == MissingFolder::kMade && !fs::exists(folder, error) && folder.has_parent_path())
    folder = folder.parent_path();
  if (const std::string reason = why_not_in(folder); !reason.empty())
    throw ConfigError("cannot write {} {}: {} ({}name a file elsewhere)", output.word, output.path,
                      reason, fs::exists(folder, error) ? "" : "make it, or ");
}

}  // namespace

std::string ending_of(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending;
}

void check_outputs(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs,
                   MissingFolder folders) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->path.empty()) continue;
    for (const NamedFile& input : inputs) refuse_same(*output, input);
    for (auto other = outputs.begin(); other != output; ++other) refuse_same(*output, *other);
    refuse_unwritable(*output, folders);
  }
}

}  // namespace spillway::cli
