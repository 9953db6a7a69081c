#pragma once

#include <string>

#include "spillway/base/autograd_facts.h"

namespace spillway::runtime {

/// Names the operator that runs, for error messages. Asked only when something went wrong.
class OpText {
 public:
  virtual ~OpText() = default;
  virtual std::string describe() const = 0;  ///< "aten::conv3d(float[1, 16, 64, 64, 64], …)"
  virtual std::string name() const { return {}; }  ///< "aten::conv3d.padding", or empty.
};

/// What is known of an operator beside its storages.
struct OpTraits {
  bool fills = true;            ///< False: hands out memory without touching it.
  bool makes_blanks = false;    ///< What it makes may be filled by the trainer itself.
  bool is_replayable = false;   ///< It may run again, see profile::TapeOp.
  bool runs_elsewhere = false;  ///< On another device than the runtime's, which tells of it.
  bool is_beside = false;       ///< None of the trainer's, at any moment: no plan knows of it.
  AutogradFacts autograd{};
};

}  // namespace spillway::runtime
