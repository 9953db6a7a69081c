#include "forked_children.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace spillway::swap {
namespace {

constexpr std::size_t kMarkBytes = 4096;  // Never touched: it takes no memory.

FileDescriptor open_mark() {
  constexpr const char* kName = "spillway-fork";
  // The flag is asked for by recent kernels, and unknown to those before 6.3.
  int file = ::memfd_create(kName, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (file < 0) file = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return FileDescriptor(file);
}

}  // namespace

ForkedChildren::~ForkedChildren() { forget_children(); }

void ForkedChildren::forget_children() {
  if (descriptors_->is_reachable()) {
    descriptors_->run([this] { children_.clear(); });
    return;
  }
  for (Child& child : children_) static_cast<void>(child.file.release());
  children_.clear();
}

bool ForkedChildren::begin_fork() {
  ++forks_;
  bool is_known = false;
  descriptors_->run([&] { is_known = make_mark(); });
  return descriptors_->begin_fork() && is_known;
}

bool ForkedChildren::make_mark() {
  FileDescriptor file = open_mark();
  if (!file.is_open()) return false;
  void* const mark = ::mmap(nullptr, kMarkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mark == MAP_FAILED) return false;
  mark_ = mark;
  const FileIdentity identity = identity_of(file.get());
  children_.push_back({forks_, std::move(file), identity});
  return true;
}

void ForkedChildren::end_fork_in_parent() {
  // From here on only the child has it mapped. If there is no child, because fork failed, nobody.
  if (mark_ != nullptr) ::munmap(mark_, kMarkBytes);
  mark_ = nullptr;
  descriptors_->end_fork_in_parent();
}

void ForkedChildren::end_fork_in_child() {
  mark_ = nullptr;
  forget_children();
  kept_.clear();
}

bool ForkedChildren::is_read(const Kept& kept) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
    return kept.since < child.number && child.number <= kept.until;
  });
}

void ForkedChildren::look_for_ends(std::vector<ExtentId>& free) {
  const std::size_t before = children_.size();
  if (children_.empty()) return;
  descriptors_->run([this] {
    std::erase_if(children_, [](const Child& child) {
      // Another file behind the number must not be sealed.
      return identity_of(child.file.get()) == child.mark &&
             ::fcntl(child.file.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0;
    });
  });
  if (children_.size() == before) return;
  std::erase_if(kept_, [&](const Kept& kept) {
    if (is_read(kept)) return false;
    free.push_back(kept.extent);
    return true;
  });
}

}  // namespace spillway::swap
