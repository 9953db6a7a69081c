#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "mapping.h"
#include "workspace.h"

namespace spillway::emulated {

/// What the emulation has to know of an operator, worked out once.
struct OperatorFacts {
  std::string name;          ///< As in aten::add.Tensor.
  std::vector<bool> writes;  ///< By argument: the schema says that it is written.
  std::vector<int>
      statistics;     ///< Arguments that are written in training, which the schema keeps to itself.
  int training = -1;  ///< The argument that tells whether this is training; -1: always.
  int generator = -1;  ///< The argument that takes a generator; -1: none.
  bool draws = false;  ///< Random numbers.
  int chance = -1;     ///< The argument that is 0 in calls that draw nothing; -1: none.
  bool sizes_depend_on_data = false;  ///< Of the results, or these are no tensors.
  bool takes_host_tensors = false;    ///< Beside tensors of the device, and not of one value alone.
  bool is_indexing = false;  ///< By masks, too: then the sizes of its results depend on data.
  bool is_copy = false;      ///< aten::copy_
  WorkspaceKind workspace = WorkspaceKind::kNone;
  Mapping mapping = nullptr;  ///< Null: the CPU kernel does it.
};

OperatorFacts facts_of(const c10::OperatorHandle& op);

}  // namespace spillway::emulated
