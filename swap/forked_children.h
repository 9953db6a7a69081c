#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "spillway/base/own_descriptors.h"
#include "spillway/swap/spill_store.h"
#include "store/file_descriptor.h"

namespace spillway::swap {

/// Knows which forked children still see the memory of this process, and keeps the extents that
/// they may read until they are gone. Under the owner's mutex.
///
/// A child counts as gone when it and all its descendants have exited or run another program. That
/// is told by a mark in their address space, a shared mapping of an empty file in memory: the
/// kernel refuses to seal such a file while it is mapped. A pipe would be closed by children that
/// close all descriptors, as daemons do, while they still read tensors.
class ForkedChildren {
 public:
  /// The marks, too, are open where the program cannot reach them.
  explicit ForkedChildren(std::shared_ptr<OwnDescriptors> descriptors)
      : descriptors_(std::move(descriptors)) {}
  ~ForkedChildren();
  ForkedChildren(const ForkedChildren&) = delete;
  ForkedChildren& operator=(const ForkedChildren&) = delete;

  /// Before fork(2): makes the mark of the coming child, and lends it the files of the store.
  /// Returns whether the kernel gave both; without them nothing is kept for this child.
  bool begin_fork();
  void end_fork_in_parent();
  /// The mark stays in the child; what belongs to its siblings is forgotten.
  void end_fork_in_child();

  /// The moment in the order of forks, to be noted for an extent when it is reserved.
  std::uint32_t now() const { return forks_; }

  /// Whether a child may read an extent that was reserved at `since`.
  bool may_read(std::uint32_t since) const {
    return !children_.empty() && children_.back().number > since;
  }
  void keep(ExtentId extent, std::uint32_t since) { kept_.push_back({extent, since, forks_}); }

  /// Looks for children that are gone, one system call each; moves what no child may read any more
  /// to `free`.
  void look_for_ends(std::vector<ExtentId>& free);

  std::size_t children() const { return children_.size(); }
  std::size_t kept_extents() const { return kept_.size(); }

 private:
  struct Child {
    std::uint32_t number;
    FileDescriptor file;
    FileIdentity mark;
  };
  struct Kept {
    ExtentId extent;
    std::uint32_t since;  ///< Children up to this number came before the extent,
    std::uint32_t until;  ///< and those above this one after its release.
  };

  bool make_mark();
  void forget_children();
  bool is_read(const Kept& kept) const;

  std::shared_ptr<OwnDescriptors> descriptors_;
  std::vector<Child> children_;  ///< By rising number.
  std::vector<Kept> kept_;
  std::uint32_t forks_ = 0;
  void* mark_ = nullptr;  ///< Between the begin of a fork and its end.
};

}  // namespace spillway::swap
