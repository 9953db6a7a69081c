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

bool ForkedChildren::begin_fork() {
  ++forks_;
  FileDescriptor file = open_mark();
  if (!file.is_open()) return false;
  void* const mark = ::mmap(nullptr, kMarkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mark == MAP_FAILED) return false;
  mark_ = mark;
  children_.push_back({forks_, std::move(file)});
  return true;
}

void ForkedChildren::end_fork_in_parent() {
  // From here on only the child has it mapped. If there is no child, because fork failed, nobody.
  if (mark_ != nullptr) ::munmap(mark_, kMarkBytes);
  mark_ = nullptr;
}

void ForkedChildren::end_fork_in_child() {
  mark_ = nullptr;
  children_.clear();
  kept_.clear();
}

bool ForkedChildren::is_read(const Kept& kept) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
    return kept.since < child.number && child.number <= kept.until;
  });
}

void ForkedChildren::look_for_ends(std::vector<ExtentId>& free) {
  const std::size_t before = children_.size();
  std::erase_if(children_, [](const Child& child) {
    return ::fcntl(child.file.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0;
  });
  if (children_.size() == before) return;
  std::erase_if(kept_, [&](const Kept& kept) {
    if (is_read(kept)) return false;
    free.push_back(kept.extent);
    return true;
  });
}

}  // namespace spillway::swap
