#include "communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/transport/transport.h"

namespace spillway::transport::nccl {

Communicator::Communicator(const Library& library, int ranks, const UniqueId& id, int rank)
    : library_(library) {
  Config config;
  check(library_.call.ncclCommInitRankConfig(&comm_, ranks, id, rank, &config), "its start");
}

std::unique_ptr<Communicator> Communicator::split(Communicator& parent, int color, int key,
                                                  Duration limit) {
  constexpr const char* kWhat = "the start of its groups";
  auto comm = std::make_unique<Comm>(nullptr);
  try {
    parent.check(parent.library_.call.ncclCommSplit(parent.comm_, color, key, comm.get(), nullptr),
                 kWhat);
    parent.wait_until_ready(limit, kWhat);
  } catch (const TransportError&) {
    // NCCL writes there when the split ends, however late.
    static_cast<void>(comm.release());
    throw;
  }
  if (*comm == nullptr) return nullptr;
  std::unique_ptr<Communicator> part(new Communicator(parent.library_, *comm));
  part->wait_until_ready(limit, kWhat);
  return part;
}

Communicator::~Communicator() {
  if (comm_ != nullptr) library_.call.ncclCommAbort(comm_);
}

void Communicator::check(Result result, const char* what) const {
  if (result == Result::kSuccess || result == Result::kInProgress) return;
  const char* const more = library_.call.ncclGetLastError(comm_);
  const bool says_more = more != nullptr && *more != '\0';
  throw TransportError("NCCL {} has failed in {}: {}{}{}", release_of(library_.version), what,
                       library_.call.ncclGetErrorString(result), says_more ? ": " : "",
                       says_more ? more : "");
}

bool Communicator::is_ready() const {
  Result result = Result::kSuccess;
  check(library_.call.ncclCommGetAsyncError(comm_, &result), "asking for its state");
  check(result, "work of the device");
  return result == Result::kSuccess;
}

void Communicator::wait_until_ready(Duration limit, const char* what) const {
  const SteadyClock clock;
  const TimePoint latest = clock.now() + limit;
  Duration rest = std::chrono::microseconds(20);
  while (!is_ready()) {
    if (clock.now() > latest)
      throw TransportError("NCCL has not come to the end of {} within {} s", what, seconds(limit));
    std::this_thread::sleep_for(rest);
    rest = std::min<Duration>(2 * rest, std::chrono::milliseconds(2));
  }
}

void Communicator::end(Duration limit) {
  check(library_.call.ncclCommFinalize(comm_), "its end");
  wait_until_ready(limit, "its end");
  const Comm comm = std::exchange(comm_, nullptr);
  check(library_.call.ncclCommDestroy(comm), "its end");
}

}  // namespace spillway::transport::nccl
