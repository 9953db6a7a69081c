#pragma once

#include <array>
#include <string_view>

namespace spillway {

/// A kind of JSON file that Spillway reads, by what stands behind "format" in it. Whoever gives a
/// command a file of another kind is told which commands read that one.
struct FileFormat {
  std::string_view name;
  std::string_view meaning;  ///< "a profile"
  std::string_view read_by;  ///< Commands, with FILE where its name stands.
  std::string_view made_by;
};

inline constexpr FileFormat kProfileFormat{
    "spillway-profile", "a profile",
    "spillway plan FILE --budget SIZE, or spillway plan-job FILE --ranks COUNT",
    "spillway profile --out FILE -- PROGRAM"};
inline constexpr FileFormat kPlanFormat{
    "spillway-plan", "a plan for one device",
    "spillway simulate PROFILE --plan FILE, or spillway run --plan FILE -- PROGRAM",
    "spillway plan PROFILE --budget SIZE --out FILE"};
inline constexpr FileFormat kJobPlanFormat{
    "spillway-job-plan", "a plan for many ranks",
    "spillway check FILE, spillway simulate FILE --cluster NAME, or spillway run --split --plan "
    "FILE -- PROGRAM",
    "spillway plan-job PROFILE --ranks COUNT --out FILE"};
inline constexpr FileFormat kDiskRatesFormat{"spillway disk rates", "a file of disk rates",
                                             "spillway plan PROFILE --budget SIZE --rates FILE",
                                             "spillway bench-io --rates FILE DIR"};
inline constexpr FileFormat kClusterFormat{
    "spillway cluster 1", "the description of a machine",
    "spillway plan-job PROFILE --ranks COUNT --cluster FILE",
    "share/spillway/clusters, where the command is installed"};

inline constexpr std::array kFileFormats{kProfileFormat, kPlanFormat, kJobPlanFormat,
                                         kDiskRatesFormat, kClusterFormat};

}  // namespace spillway
