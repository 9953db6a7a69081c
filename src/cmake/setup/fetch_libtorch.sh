#!/usr/bin/env bash
# Puts LibTorch 2.11.0 for the CPU into ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-2.11.0, where
# the build finds it. Does nothing when it is complete there, or when SPILLWAY_LIBTORCH_DIR names
# another one. The download is about 545 MB, from the package index that pip is configured for.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=fetching.sh
source "$here/fetching.sh"

if [[ -n "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  echo "libtorch: using SPILLWAY_LIBTORCH_DIR=$SPILLWAY_LIBTORCH_DIR"
  exit 0
fi
if [[ "$(uname -sm)" != "Linux x86_64" ]]; then
  echo "No LibTorch to fetch for $(uname -sm). Set SPILLWAY_LIBTORCH_DIR to a LibTorch 2.11." >&2
  exit 1
fi

target="$cache/libtorch-2.11.0"
lock_cache libtorch

if python3 "$here/libtorch.py" check "$target" 2>/dev/null; then
  echo "libtorch: 2.11.0 is in $target"
  exit 0
fi

find_pip
require_free_mb 1500 LibTorch
start_staging
echo "libtorch: downloading about 545 MB"
start_reporting libtorch 545
download torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
stop_reporting

python3 "$here/libtorch.py" unpack "$staging/wheels" "$staging/unpacked"
put_in_place "$target"
echo "libtorch: 2.11.0 is in $target"
