#pragma once

#include <vector>

#include "spillway/device/event.h"

namespace spillway::device {

/// When all of them are done: the moments of several queues, for who has to see them all. It has no
/// time.
Event all_of(std::vector<Event> moments);

}  // namespace spillway::device
