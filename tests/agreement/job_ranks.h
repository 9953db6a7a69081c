#pragma once

#include <functional>
#include <string>
#include <utility>

#include "spillway/pipeline/agreement/job.h"
#include "spillway/transport/in_process.h"

namespace spillway::pipeline {

/// Jobs of ranks that are threads of this process.
class JobRanks {
 public:
  explicit JobRanks(const transport::InProcessOptions& options) : ranks_(options) {}

  transport::InProcessRanks& ranks() { return ranks_; }

  JobOptions options() {
    return {.clock = &ranks_.clock(),
            .start_thread = [this](std::function<void()> work) { ranks_.start(std::move(work)); }};
  }

  using Body = std::function<void(transport::Transport&, Job&)>;
  /// Runs the programs of all ranks, and says why the job has ended; empty: as it should.
  std::string run(const Body& body) {
    return failure_of([&](transport::Transport& transport) {
      Job job(transport, {}, options());
      body(transport, job);
    });
  }

  std::string failure_of(const transport::InProcessRanks::Body& body) {
    try {
      ranks_.run(body);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

 private:
  transport::InProcessRanks ranks_;
};

inline void call(Job& job, std::string_view name, std::uint64_t argument) {
  job.control().begin_call(name);
  job.control().add(argument);
  job.control().end_call();
}

}  // namespace spillway::pipeline
