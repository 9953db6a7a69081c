#pragma once

#include <cstdint>
#include <string>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::scaling {

/// What brings a job into the memory of its devices; each has all of the one before.
enum class MemoryReduction : std::uint8_t {
  kNone,
  kRecompute,  ///< Backwards recompute runs of blocks, each from its input.
  /// These inputs leave for the host while a rank does something else, or are recomputed
  /// themselves, from the input of the stage.
  kFitted,
};

/// A ResNet v2 of depth 9n + 2 at 1024², on pipelines of the four devices of a node.
struct ResnetSetting {
  const char* model;
  std::uint32_t n;
  const char* schedule;
  std::uint32_t micro_batches;  ///< Of a pipeline, one image each.
  std::uint32_t replicas;       ///< Of GEMS; others have none.
};

struct ResnetJob {
  cluster::Job job;
  MemoryReduction memory_reduction = MemoryReduction::kNone;
  Bytes peak;  ///< Of the fullest rank: what the lists hold, and the working space of a backward.
};

/// "as it is", "recomputing", "recomputing twice on 2 ranks, and swapping"
std::string memory_reduction_text(const ResnetJob& made);

/// With the first memory reduction under which every rank fits into a device of the cluster, for so
/// many pipelines. Throws PlanError where none does.
ResnetJob resnet_job(const ResnetSetting& setting, const cluster::Cluster& cluster,
                     std::uint32_t pipelines, bool reduces_at_end);

/// Of all pipelines.
double images_per_second(const cluster::Job& job, const cluster::JobTiming& timing);

}  // namespace spillway::scaling
