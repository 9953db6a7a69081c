#pragma once

#include <c10/core/Storage.h>

#include <vector>

namespace spillway::split {

/// What goes on beside computing, piece by piece, on the executor's thread.
class Effort {
 public:
  Effort() = default;
  virtual ~Effort() = default;
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  /// All tasks before it are done. `storages`, in the order in which it was added, are its own
  /// until it has ended.
  virtual void begin(std::vector<c10::Storage> storages) = 0;
  /// Does what is possible now, and never waits. True: it has ended. Called whenever a message has
  /// ended.
  virtual bool advance() = 0;
};

}  // namespace spillway::split
