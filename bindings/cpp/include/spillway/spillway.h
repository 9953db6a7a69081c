#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Spillway, linked in: what `spillway run` does for a program from outside, said by the program
/// itself.
///
///     #include <spillway/spillway.h>
///     int main() {
///       spillway::start({.budget = "4GiB"});
///       // … the trainer as it was …
///     }
namespace spillway {

struct StartOptions {
  /// A size with a unit, a percentage ("50%"), or "auto". Empty: what the variables and the config
  /// file say, else "auto".
  std::string budget{};
  /// Where tensors go: "DIR" or "DIR:SIZE"; several are used in parallel. "ram:SIZE" puts so much
  /// memory before them. Empty: what the variables and the config file say, else the roomiest of
  /// the usual temporary folders.
  std::vector<std::string> nvme{};
  /// One training on all ranks of the job that mpiexec or srun has started, as by `spillway run
  /// --split`. What the ranks but the first write is kept apart, which has to begin with the
  /// process: so `start` runs the program anew, under the command, which is installed with the
  /// library. Without a launcher the program trains alone. Same for all ranks.
  bool split = false;
  /// With `split`: so many programs with data of their own, each on an equal part of the ranks,
  /// which train on the mean of their gradients. `shard()` says which one this is. Same for all
  /// ranks.
  std::uint32_t shards = 1;
  /// Any other setting by its name on the command line, for example {"stats", "run.json"}.
  std::vector<std::pair<std::string, std::string>> settings{};
};

/// Starts paging the CPU tensors of this process. Call it first in `main`: tensors that exist stay
/// where they are, beside the budget (the first large one that an operator uses is warned of), and
/// threads that exist are seen from their first allocation on. Options win over SPILLWAY_ variables
/// and the config file. Does nothing but say so when the program already runs under `spillway run`
/// or was started before: those options count, the budget of the command too. Throws
/// std::runtime_error that names what is wrong and what to do.
void start(const StartOptions& options = {});

/// Tells that a new step begins here. Needed only by trainers whose steps end in no optimizer; all
/// others are recognised. From the first call on, only these calls count as steps. Does nothing in
/// a forked child.
void begin_step();

/// The rank of this process in a split program, from 0, and how many there are: 0 and 1 elsewhere.
/// Operators must not depend on them: all ranks call the same ones. Any thread; both throw
/// std::runtime_error before `start`.
std::uint32_t rank();
std::uint32_t ranks();

/// Which of the programs with data of their own this process runs, from 0, and how many there are:
/// 0 and 1 elsewhere. What the program reads may depend on them, and the same on all ranks of a
/// shard; which parameters it updates may not. Any thread; both throw std::runtime_error before
/// `start`.
std::uint32_t shard();
std::uint32_t shards();

/// Tells that the next micro-batch begins here. Needed only by trainers that run forward of several
/// micro-batches before backward of the first; all others are recognised. From the first call on,
/// only these calls count, so it is made in each micro-batch, on the thread that trains. Ranks then
/// keep the activations of all micro-batches of a step, as one process does. Does nothing in a
/// program that is not split. Throws std::runtime_error before `start`.
void micro_batch();

/// Numbers of the run so far; the full list is what the `stats` setting writes at exit.
struct Statistics {
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;    ///< Largest resident tensor bytes.
  std::uint64_t needed_bytes = 0;  ///< Largest live tensor bytes, wherever they were.
  std::uint64_t spilled_bytes = 0;
  std::uint64_t fetched_bytes = 0;
  std::uint64_t steps = 0;
  std::uint64_t ops = 0;  ///< Operators that Spillway saw, on all threads.
};

/// Costs microseconds, at each step too; any thread. Throws std::runtime_error before `start`, and
/// in a forked child.
Statistics statistics();

}  // namespace spillway
