#pragma once

#include <stdexcept>

namespace trainer {

/// What the user gave cannot be used: a wrong flag, a missing or damaged file. Ends the program
/// with exit code 2, any other exception with 1.
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace trainer
