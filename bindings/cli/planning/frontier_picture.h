#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::cli {

struct PicturePoint {
  Bytes budget;
  std::optional<double> seconds;  ///< None: impossible there.
};

struct PictureCurve {
  std::string name;
  std::vector<PicturePoint> points;  ///< By budget.
};

/// Step time against budget.
struct FrontierPicture {
  std::string title;
  std::string subtitle;
  Bytes needed;
  double incore_seconds = 0.0;
  PictureCurve bound;
  std::vector<PictureCurve> curves;  ///< The first one is drawn boldest.
};

/// A self-contained SVG: axes with units, the bound as a filled line, a legend; times far above the
/// first curve leave the picture at the top.
std::string to_svg(const FrontierPicture& picture);

}  // namespace spillway::cli
