#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/transport/transport.h"

namespace spillway::transport {

struct MpiOptions {
  /// The site's MPI, as a path or a name of its library. Empty: the one that is in the process
  /// already; else what belongs to the launcher; else what is installed.
  std::string library;
  /// Folder of `libspillway_mpi_*.so`. Empty: beside the library with this code, or in `../lib`.
  std::string shims;
  Duration time_limit = std::chrono::seconds(5);  ///< Of the end: how late a rank may come to it.
  /// Sends end when the message has left for good, as those of MPI may: for tests.
  bool is_synchronous = false;
  /// Where nothing moves, MPI is asked again and again for so long,
  Duration spin = std::chrono::microseconds(50);
  /// and then after sleeps of an eighth of the time that nothing has moved for, up to this one.
  Duration longest_sleep = std::chrono::milliseconds(2);
};

/// What MPI knows of the job.
struct MpiJob {
  std::string library;             ///< Path.
  std::string version;             ///< First line of what it says of itself.
  std::string abi;                 ///< "MPICH", "Open MPI": whose module serves it.
  std::vector<std::string> hosts;  ///< Name of the host of each rank.
  std::vector<Rank> ranks_here;    ///< Those that share memory with this one, which is one of them.
};

/// The ranks of a job that the site's MPI has started. A thread of its own makes all calls of MPI.
/// Bytes lie in memory of the host; others are refused with UnsupportedError.
class MpiTransport : public Transport {
 public:
  using Transport::Transport;
  virtual const MpiJob& job() const = 0;
};

/// Initialises MPI, or joins a program that has (with MPI_THREAD_MULTIPLE), and waits for all
/// ranks. Its destructor waits for all ranks to come to theirs; where one does not within the time
/// limit, it names that one and ends the job. One at a time in a process, and one in all where MPI
/// was initialised here. Throws UnsupportedError where there is no MPI, an unknown one or one
/// without what is needed, ConfigError for a library that cannot be opened or is not the
/// launcher's, and TransportError where MPI fails.
std::unique_ptr<MpiTransport> make_mpi_transport(const MpiOptions& options = {});

/// For where MPI does not start, so that ranks cannot tell one another, and most often all have the
/// same to say: the first rank of this host that comes here calls `tell`, and then waits for the
/// others for two seconds; these wait until it has ended. Then all are to end with an error. Where
/// some rank of the job does not come, and may wait in MPI for ever, and the launcher ends ranks
/// for a signal alone, this ends the process by SIGTERM.
void tell_once_on_host(const std::function<void()>& tell);

}  // namespace spillway::transport
