#pragma once

#include <string>

#include "spillway/base/bytes.h"
#include "support/temporary_directory.h"

namespace spillway::swap {

enum class SmallKind { kTmpfs, kExt4 };

/// A file system of its own, small enough to be filled. Mounting needs privilege: `trouble` says
/// why there is none, as the reason for skipping a test.
class SmallFileSystem {
 public:
  SmallFileSystem(SmallKind kind, Bytes size);
  ~SmallFileSystem();
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;

  const std::string& trouble() const { return trouble_; }
  std::string path() const { return place_.path() + "/mounted"; }
  Bytes free() const;

 private:
  void mount_tmpfs(Bytes size);
  void mount_ext4(Bytes size);

  TemporaryDirectory place_;
  std::string trouble_;
  bool is_mounted_ = false;
};

}  // namespace spillway::swap
