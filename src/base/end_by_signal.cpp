#include "spillway/base/end_by_signal.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "spillway/base/default_signal.h"
#include "spillway/base/own_descriptors.h"

namespace spillway {
namespace {

iovec piece(const char* text) { return {const_cast<char*>(text), std::strlen(text)}; }

}  // namespace

void end_by_signal(int signal_number, const char* what, int error) {
  const bool explains = error != 0;
  const iovec line[] = {piece("[spillway] error: "), piece(what), piece(explains ? ": " : ""),
                        piece(explains ? ::strerrordesc_np(error) : ""), piece("\n")};
  regain_standard_error();
  [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, line, 5);
  raise_default(signal_number);
  ::_exit(128 + signal_number);
}

}  // namespace spillway
