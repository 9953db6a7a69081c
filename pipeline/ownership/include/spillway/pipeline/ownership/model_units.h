#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/pipeline/ownership/directory.h"

namespace spillway::pipeline {

/// A parameter, by the order in which forward first uses them, with the operators behind it up to
/// the next one's: what cuts into stages move as a whole.
struct ModelUnit {
  Bytes parameter{};
  Bytes kept{};   ///< Parameter, gradient, optimizer states, buffers: what stays from step to step.
  Bytes stash{};  ///< What forward of one micro-batch leaves for backward.
  /// One operator was the first to use this parameter and the one before: no cut between.
  bool is_joined = false;
  bool has_ended = false;  ///< The program has not used its parameter for long.
};

/// A value that operators of later units read. Bytes of one micro-batch.
struct UnitBorder {
  std::uint32_t producer = 0;
  std::vector<std::uint32_t> consumers;  ///< In order.
  Bytes bytes;
};

/// The bytes of a model by units, from the first micro-batch of the program: all ranks see all of
/// its operators, so all find the same. One thread.
class ModelUnits {
 public:
  /// The next unit.
  void add(Bytes parameter, bool is_joined);
  /// An operator uses its parameter.
  void note_used(std::uint32_t unit);
  void begin_step() { ++step_; }
  /// Forward of unit `consumer` reads a storage that unit `producer` has made.
  void note_read(StorageOrdinal storage, std::uint32_t producer, std::uint32_t consumer,
                 Bytes size);
  void note_ended(StorageOrdinal storage);
  /// Backward begins: what forward has made and is still there is the stash. Nothing counts from
  /// then on but new units.
  void end_count(const Directory& directory);

  std::uint32_t count() const { return static_cast<std::uint32_t>(units_.size()); }
  bool is_counting() const { return is_counting_; }
  Bytes parameter_of(std::uint32_t unit) const { return units_[unit].parameter; }
  /// As it is between two steps.
  std::vector<ModelUnit> units(const Directory& directory) const;
  const std::vector<UnitBorder>& borders() const { return borders_; }

 private:
  bool has_ended(std::uint32_t unit) const;

  struct Steps {
    std::uint64_t latest = 0;         ///< In which a unit was used.
    std::uint64_t longest_pause = 0;  ///< Between two of those.
  };

  std::vector<ModelUnit> units_;
  std::vector<Steps> steps_;  ///< By unit.
  std::uint64_t step_ = 0;
  bool is_counting_ = true;
  /// While it counts: of storages that are there, by producer, which a write in place changes.
  std::map<std::pair<StorageOrdinal, std::uint32_t>, UnitBorder> read_;
  std::vector<UnitBorder> borders_;
};

}  // namespace spillway::pipeline
