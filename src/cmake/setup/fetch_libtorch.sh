#!/usr/bin/env bash
# fetch_libtorch.sh [VERSION]: puts LibTorch for the CPU, of that version (2.15 or 2.15.0; without one, of
# SPILLWAY_LIBTORCH, and else the newest that is served), into ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-VERSION,
# where the build finds it. Does nothing when it is complete there, or when SPILLWAY_LIBTORCH_DIR names
# another one. The download is about 550 MB, from the package index that pip is configured for.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=fetching.sh
source "$here/fetching.sh"

if [[ -n "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  echo "libtorch: using SPILLWAY_LIBTORCH_DIR=$SPILLWAY_LIBTORCH_DIR"
  exit 0
fi
version=$(python3 "$here/libtorch.py" version "${1:-${SPILLWAY_LIBTORCH:-}}")
if [[ "$(uname -sm)" != "Linux x86_64" ]]; then
  echo "No LibTorch to fetch for $(uname -sm). Set SPILLWAY_LIBTORCH_DIR to a LibTorch $version." >&2
  exit 1
fi

target="$cache/libtorch-$version"
lock_cache libtorch

if python3 "$here/libtorch.py" check "$version" "$target" 2>/dev/null; then
  echo "libtorch: $version is in $target"
  exit 0
fi

find_pip
require_free_mb 1500 LibTorch
start_staging
echo "libtorch: downloading about 550 MB"
start_reporting libtorch 550
names=$(python3 "$here/libtorch.py" wheels "$version")
mapfile -t wheels <<<"$names"
download "${wheels[@]}"
stop_reporting

python3 "$here/libtorch.py" unpack "$version" "$staging/wheels" "$staging/unpacked"
put_in_place "$target"
echo "libtorch: $version is in $target"
