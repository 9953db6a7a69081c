// One rank of a job that ends in one way or another, for mpi_test.py: mpi_jobs NAME [WORDS…].
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/agreement/process_facts.h"
#include "spillway/transport/mpi.h"

namespace spillway::pipeline {
namespace {

void say(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}

/// A rank of the job, for as long as the process lives.
struct Program {
  explicit Program(Duration patience = std::chrono::seconds(1))
      : transport(transport::make_mpi_transport()),
        job(std::make_unique<Job>(
            *transport, facts_of_process(),
            JobOptions{.patience = patience, .hosts = transport->job().hosts})) {
    say(message("pid {} rank {};", ::getpid(), transport->rank()));
  }

  void end() {
    job->end();
    job.reset();
    transport.reset();
  }

  /// One step: a value goes around, and hashes are compared.
  void run_step(std::uint64_t argument) {
    job->control().begin_call("aten::mm");
    job->control().add(argument);
    job->control().end_call();
    const std::uint32_t me = transport->rank().value();
    const std::uint32_t ranks = transport->ranks();
    const Rank next((me + 1) % ranks), before((me + ranks - 1) % ranks);
    const transport::Tag tag{transport::Stream::kValues, number++};
    const auto what = [tag] { return to_string(tag); };
    const auto span_of = [](std::vector<std::byte>& bytes) {
      return device::host_span(bytes.data(), Bytes(bytes.size()));
    };
    const device::Event received = transport->receive(before, tag, span_of(in));
    const device::Event sent = transport->send(next, tag, span_of(out));
    job->wait(received, before, what);
    job->wait(sent, next, what);
    job->compare();
  }

  std::unique_ptr<transport::MpiTransport> transport;
  std::unique_ptr<Job> job;
  std::uint64_t number = 0;
  std::vector<std::byte> out = std::vector<std::byte>(3u << 20);
  std::vector<std::byte> in = std::vector<std::byte>(3u << 20);
};

Program* program = nullptr;

/// All waits ask, however short.
void run_agree() {
  Program all(Duration(0));
  for (std::uint64_t step = 0; step < 100; ++step) all.run_step(step);
  all.end();
  say(message("rank {} has ended;", all.number == 100 ? "with all steps" : "early"));
}

void run_for_ever() {
  Program all;
  for (std::uint64_t step = 0;; ++step) all.run_step(step);
}

void run_apart() {
  Program all;
  const bool is_apart = all.transport->rank() == Rank(1);
  for (std::uint64_t step = 0; step < 100; ++step) all.run_step(step == 50 && is_apart ? 7 : step);
  all.end();
}

/// Rank 1 leaves in mid-run, as a program does by itself, and tells others at its exit.
void run_exit() {
  program = new Program;
  std::atexit([] { program->end(); });
  for (std::uint64_t step = 0; step < 100; ++step) {
    if (step == 50 && program->transport->rank() == Rank(1)) std::exit(3);
    program->run_step(step);
  }
}

/// The same with no word to anybody.
void run_vanish() {
  Program all;
  for (std::uint64_t step = 0; step < 100; ++step) {
    if (step == 50 && all.transport->rank() == Rank(1)) ::_exit(3);
    all.run_step(step);
  }
}

const std::map<std::string, void (*)()> kScenarios{{"agree", run_agree},
                                                   {"for_ever", run_for_ever},
                                                   {"apart", run_apart},
                                                   {"exit", run_exit},
                                                   {"vanish", run_vanish}};

}  // namespace
}  // namespace spillway::pipeline

int main(int count, char** words) {
  using namespace spillway;
  if (count < 2 || !pipeline::kScenarios.contains(words[1])) return 2;
  try {
    pipeline::kScenarios.at(words[1])();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s;\n", error.what());
    return 9;
  }
  return 0;
}
