#pragma once

// Memory that leaves and comes when it is touched, as a tensor does where the kernel serves no
// faults of system calls, with hooks that tell of it.

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "absent_bytes.h"

namespace spillway::preload {

inline constexpr std::size_t kFakePage = 4096;

struct Hold {
  std::size_t begin = 0;  ///< From the beginning of the memory.
  std::size_t size = 0;
  bool is_filled = false;
  bool is_direct = false;
  bool operator==(const Hold&) const = default;
};

/// One at a time, and the hooks are those of the one that lives.
class FakeTensor {
 public:
  /// What becomes of the other pages when one comes.
  enum class Others { kStay, kLeaveOnce, kLeave };

  struct Options {
    std::size_t pages = 16;
    std::size_t bytes_at_once = 2 * kFakePage;
    bool kernel_serves_faults = false;
    bool can_hold = true;
  };

  explicit FakeTensor(const Options& options);
  ~FakeTensor();
  FakeTensor(const FakeTensor&) = delete;
  FakeTensor& operator=(const FakeTensor&) = delete;

  char* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// All of it leaves; the contents stay. Also while another thread waits in a system call.
  void leave();
  void when_one_comes(Others others) { others_ = others; }
  void fill_with_pattern(unsigned seed);
  std::string text(std::size_t begin, std::size_t size) { return {data_ + begin, size}; }

  const std::vector<Hold>& holds() const { return holds_; }
  std::size_t bytes_held() const;
  std::size_t holds_left() const { return holds_left_; }
  std::size_t pages_come() const { return pages_come_; }

  /// What stands for bytes of the first rank.
  split::AbsentBytes& absent() { return absent_; }

 private:
  friend struct FakeHooks;
  bool comes(const void* address);

  char* data_ = nullptr;
  std::size_t size_ = 0;
  Others others_ = Others::kStay;
  bool can_hold_ = true;
  std::vector<Hold> holds_;
  std::size_t holds_left_ = 0;
  std::atomic<std::size_t> pages_come_ = 0;
  split::AbsentBytes absent_;
};

}  // namespace spillway::preload
