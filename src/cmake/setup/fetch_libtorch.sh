#!/usr/bin/env bash
# fetch_libtorch.sh [--cuda] [VERSION]: puts LibTorch for the CPU, of that version (2.15 or 2.15.0; without one, of
# SPILLWAY_LIBTORCH, and else the newest that is served), into ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-VERSION,
# where the build finds it. Does nothing when it is complete there, or when SPILLWAY_LIBTORCH_DIR names
# another one. The download is about 550 MB, from the package index that pip is configured for.
# With --cuda also the rest of that download, libtorch-VERSION-cuda (470 MB), which the tests of CUDA need; there it is
# for 2.11 alone. Each call also fetches the headers of CUDA (3 MB, fetch_cuda_headers.sh), without which builds have no
# CUDA device.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=fetching.sh
source "$here/fetching.sh"

parts=(cpu)
if [[ "${1:-}" == --cuda ]]; then
  parts+=(cuda)
  shift
fi
"$here/fetch_cuda_headers.sh" || echo "libtorch: going on without CUDA's headers; builds then have no CUDA device" >&2
if [[ -n "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  echo "libtorch: using SPILLWAY_LIBTORCH_DIR=$SPILLWAY_LIBTORCH_DIR"
  exit 0
fi
version=$(python3 "$here/libtorch.py" version "${1:-${SPILLWAY_LIBTORCH:-}}")
if [[ "$(uname -sm)" != "Linux x86_64" ]]; then
  echo "No LibTorch to fetch for $(uname -sm). Set SPILLWAY_LIBTORCH_DIR to a LibTorch $version." >&2
  exit 1
fi

lock_cache libtorch

declare -A target=([cpu]="$cache/libtorch-$version" [cuda]="$cache/libtorch-$version-cuda")
missing=()
wheels=()
for part in "${parts[@]}"; do
  names=$(python3 "$here/libtorch.py" wheels "$part" "$version")
  if python3 "$here/libtorch.py" check "$part" "$version" "${target[$part]}" 2>/dev/null; then
    echo "libtorch: $version is in ${target[$part]}"
  else
    missing+=("$part")
    mapfile -t -O "${#wheels[@]}" wheels <<<"$names"
  fi
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

find_pip
require_free_mb $((1000 + 500 * ${#missing[@]})) LibTorch
start_staging
echo "libtorch: downloading about 550 MB"
start_reporting libtorch 550
mapfile -t wheels < <(printf '%s\n' "${wheels[@]}" | sort -u)
download "${wheels[@]}"
stop_reporting

for part in "${missing[@]}"; do
  mkdir -p "$staging/unpacked"
  python3 "$here/libtorch.py" unpack "$part" "$version" "$staging/wheels" "$staging/unpacked"
  put_in_place "${target[$part]}"
  echo "libtorch: $version is in ${target[$part]}"
done
