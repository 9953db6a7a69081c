#pragma once

namespace spillway::cli {

// `spillway run` ends with the program's own code; these are for when the program never started.
inline constexpr int kDone = 0;
inline constexpr int kFoundProblem = 1;  ///< `doctor` only.
inline constexpr int kNoProfile = 1;     ///< `profile` only: the program ended well without one.
inline constexpr int kWrongUsage =
    2;  ///< Options, configuration, or a program that cannot be served.
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

}  // namespace spillway::cli
