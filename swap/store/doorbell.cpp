#include "store/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "spillway/base/error.h"

namespace spillway::swap {

Doorbell::Doorbell() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.is_open()) throw IoError("cannot create an eventfd: {}", std::strerror(errno));
}

void Doorbell::ring() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the bell is ringing already.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

void Doorbell::ring_by(TimePoint moment) {
  if (!due_ || moment < *due_) due_ = moment;
}

void Doorbell::wait(Duration timeout) {
  const TimePoint now = SteadyClock().now();
  if (due_) timeout = std::min(timeout, std::max(*due_ - now, Duration::zero()));
  const timespec limit{.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000),
                       .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  pollfd entry{.fd = event_.get(), .events = POLLIN, .revents = 0};
  // A signal ends the sleep early, which the caller's loop forgives.
  if (::ppoll(&entry, 1, &limit, nullptr) > 0) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const auto got = ::read(event_.get(), &rings, sizeof rings);
  }
  if (due_ && SteadyClock().now() >= *due_) due_.reset();
}

}  // namespace spillway::swap
