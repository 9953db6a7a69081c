#pragma once

#include "spillway/base/clock.h"

namespace spillway {

/// Whether whoever reads a pipe has taken all that was written to it; of what is no pipe: yes.
/// Launchers whose ranks end with an error drop what they have not read of them yet.
bool is_read(int pipe);

/// Waits for that, about so long at most. Any thread.
void wait_until_read(int pipe, Duration most);

}  // namespace spillway
