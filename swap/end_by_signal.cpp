#include "end_by_signal.h"

#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace spillway::swap {
namespace {

iovec piece(const char* text) { return {const_cast<char*>(text), std::strlen(text)}; }

}  // namespace

void end_by_signal(int signal_number, const char* what, int error) {
  const bool explains = error != 0;
  const iovec line[] = {piece("[spillway] error: "), piece(what), piece(explains ? ": " : ""),
                        piece(explains ? ::strerrordesc_np(error) : ""), piece("\n")};
  [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, line, 5);
  ::signal(signal_number, SIG_DFL);
  // On this thread: every other one may have the signal blocked, as this one may have until now.
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal_number);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal_number);
  ::_exit(128 + signal_number);
}

}  // namespace spillway::swap
