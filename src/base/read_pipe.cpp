#include "spillway/base/read_pipe.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

namespace spillway {

bool is_read(int pipe) {
  struct stat facts {};
  int left = 0;
  return ::fstat(pipe, &facts) != 0 || !S_ISFIFO(facts.st_mode) ||
         ::ioctl(pipe, FIONREAD, &left) != 0 || left == 0;
}

void wait_until_read(int pipe, Duration most) {
  constexpr std::chrono::milliseconds kPause(1);
  for (Duration waited{0}; waited < most && !is_read(pipe); waited += kPause)
    std::this_thread::sleep_for(kPause);
}

}  // namespace spillway
