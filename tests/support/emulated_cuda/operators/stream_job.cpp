#include "stream_job.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "ending.h"
#include "support/emulated_cuda/runtime/emulation.h"
#include "workspace.h"

namespace spillway::emulated {
namespace {

[[noreturn]] void end_for(const OperatorFacts& facts, const char* reason) {
  end_process(facts.name +
              " failed on its stream, where a GPU would report a device-side assertion: " + reason);
}

void run(StreamJob& job) {
  const OperatorFacts& facts = job.call.facts();
  const at::AutoGradMode mode(job.has_gradients);
  at::init_num_threads();
  job.call.check_memory();
  scribble(job.workspace, job.workspace_bytes, facts.name.c_str());
  try {
    job.call.run();
  } catch (const c10::Error& error) {
    end_for(facts, error.what_without_backtrace());
  } catch (const std::exception& error) {
    end_for(facts, error.what());
  }
  fill_targets(job.call, *job.plan, job.targets);
}

void run_on_worker(void* argument) {
  const std::unique_ptr<StreamJob> job(static_cast<StreamJob*>(argument));
  run(*job);
}

/// A run leaves results in a call, where the next one wants arguments.
void run_in_graph(void* argument) {
  StreamJob job(*static_cast<const StreamJob*>(argument));
  run(job);
}

void drop(void* argument) { delete static_cast<StreamJob*>(argument); }

}  // namespace

void enqueue(cudaStream_t stream, StreamJob job) {
  // The facts of an operator live as long as the process, and so does its name.
  const char* name = job.call.facts().name.c_str();
  auto* const kept = new StreamJob(std::move(job));
  if (emu_cuda_captures(stream) != 0)
    emu_cuda_capture(stream, name, &run_in_graph, kept, &drop);
  else
    emu_cuda_enqueue(stream, name, &run_on_worker, kept);
}

}  // namespace spillway::emulated
