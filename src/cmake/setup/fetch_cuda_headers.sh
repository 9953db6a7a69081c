#!/usr/bin/env bash
# fetch_cuda_headers.sh: puts the headers of CUDA into ${XDG_CACHE_HOME:-~/.cache}/spillway/cuda-headers, where each
# build finds them. They are all that the CUDA device is compiled with, whichever LibTorch it is for. Does nothing when
# they are there. The download is 3 MB, from the package index that pip is configured for.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=fetching.sh
source "$here/fetching.sh"

lock_cache cuda-headers
release=$(python3 "$here/libtorch.py" tested)
if python3 "$here/libtorch.py" check headers "$release" "$cache/cuda-headers" 2>/dev/null; then
  exit 0
fi
find_pip
require_free_mb 50 "CUDA's headers"
start_staging
echo "cuda-headers: downloading 3 MB"
names=$(python3 "$here/libtorch.py" wheels headers "$release")
mapfile -t wheels <<<"$names"
download "${wheels[@]}"
python3 "$here/libtorch.py" unpack headers "$release" "$staging/wheels" "$staging/unpacked"
put_in_place "$cache/cuda-headers"
echo "cuda-headers: they are in $cache/cuda-headers"
