#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicator.h"

namespace spillway::emulated {

/// Bytes that go to, or come from, another rank.
struct Move {
  int peer;
  bool sends;
  char* data;
  std::size_t left;
};

/// One call of NCCL: what is done before and behind its moves, and what it uses of the device's
/// memory.
struct Operation {
  struct Use {
    const void* address;
    std::size_t bytes;
    bool writes;
  };

  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream = nullptr;
  const char* name = "";
  std::vector<Use> uses;
  std::vector<Move> moves;
  std::function<void()> before;
  std::function<void()> behind;
  std::vector<std::vector<char>> parts;  // What others sent, where it is not the result yet.
};

/// Submits the operation, or keeps it until the thread's group ends. The operations of a group on
/// one communicator and stream are one piece of work whose moves make progress together, so that no
/// order of them can block.
ncclResult_t submit(std::unique_ptr<Operation> operation);

/// The same for communicators: those that are made in a group wait for each other at its end.
/// `blocks`: waits for the other ranks.
ncclResult_t join(ncclComm_t* comm, const std::string& name, int ranks, int rank,
                  bool blocks = true);

}  // namespace spillway::emulated
