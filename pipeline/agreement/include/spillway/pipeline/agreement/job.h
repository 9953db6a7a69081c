#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/base/rank.h"
#include "spillway/device/event.h"
#include "spillway/pipeline/ownership/control_hash.h"
#include "spillway/transport/transport.h"

namespace spillway::pipeline {

/// Names and values of what must be equal on all ranks: versions, the program, its arguments,
/// settings, the environment.
using JobFacts = std::vector<std::pair<std::string, std::string>>;

struct JobOptions {
  /// Whether the calls of the ranks are compared. Without that, programs that went apart wait for
  /// ever or go on with wrong bytes; ranks that are stopped or have left are found all the same.
  bool check_control = true;
  Duration patience = std::chrono::seconds(1);  ///< Of a wait, before its peer is asked.
  Duration silence = std::chrono::seconds(5);   ///< Of a peer that is asked, at most.
  Duration report = std::chrono::seconds(30);  ///< Of a wait, before a line of the log tells of it.
  std::vector<std::string> hosts{};            ///< Of each rank, for texts; or none.
  const Clock* clock = nullptr;                ///< Null: the monotonic clock of the system.
  /// Starts the service thread where the transport's threads are not those of the system
  /// (InProcessRanks::start); it may then end after the job. Empty: one of its own.
  std::function<void(std::function<void()>)> start_thread{};
};

/// What a `Job` begins with, alone: for groups of ranks that begin their jobs only when all agree.
/// Throws as its constructor.
void compare_facts(transport::Transport& transport, const JobFacts& facts,
                   const JobOptions& options);

/// What the ranks of a split program agree on, and how they end together. All methods from the one
/// thread of the program, apart from those that say so. A thread of its own (spillway-job)
/// answers the questions of other ranks, whatever the program does meanwhile.
///
/// A reason to end the job names the ranks, their hosts and the next step, and reaches all ranks as
/// Transport::abort has it. A rank that is only slow is never ended.
class Job {
 public:
  /// Waits for all ranks and compares their facts. The transport outlives it. Throws ConfigError
  /// with the same sentence on all of them (which fact, both values, which ranks), and
  /// TransportError where a rank is lost.
  Job(transport::Transport& transport, const JobFacts& facts, JobOptions options = {});
  /// Other ranks take a job that did not come to `end` for lost.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The calls of this rank's program: each of them before the messages that it waits for.
  ControlHash& control();

  /// Waits for the end of a message from or to `peer`; `what` says which one, on any thread, while
  /// this waits: "the value of aten::mm, 4 MiB". Throws TransportError where the message failed.
  /// Ends the job where the programs of both ranks went apart, where the other one has ended before
  /// it could take part, and where it does not answer for `silence`.
  void wait(const device::Event& event, Rank peer, const std::function<std::string()>& what);

  /// Waits for what other threads of this rank bring about, which `notify` then. While they wait
  /// for a message themselves, `peer` is where from; else none. Asks as `wait` does. False: it is
  /// not over, and the program of `peer` has made more than `calls` calls, behind which it does
  /// nothing for that.
  bool wait_until(const std::function<bool()>& is_over, const std::function<Rank()>& peer,
                  const std::function<std::string()>& what,
                  std::uint64_t calls = std::numeric_limits<std::uint64_t>::max());
  void notify();  ///< Any thread.

  /// Once a step, at the same call on all ranks: compares hashes in a ring. Looks at the answer of
  /// the step before, so that nobody waits for who is less than a step behind. Ends the job where
  /// they differ.
  void compare();

  /// The program has ended: waits until all have, however long that takes. Ends the job where
  /// another one has ended after other calls. Once; no wait or comparison follows.
  void end();

  /// Ends the job with `reason`, this rank and its host. Any thread.
  [[noreturn]] void abort(const std::string& reason);

  /// For people, a sentence each: the latest calls of this rank and what it waits for since when;
  /// and what `describe_by` adds. Where a rank does not answer and so ends the job, the log has
  /// these of all others. Any thread.
  std::vector<std::string> describe() const;
  /// `more` tells what the other threads of this rank do, and `progress` a number that is another
  /// one as long as they get on: then ranks may wait for one another. On any thread, until others
  /// tell. Empty: nothing. Any thread.
  void describe_by(std::function<std::vector<std::string>()> more,
                   std::function<std::uint64_t()> progress);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::pipeline
