#!/usr/bin/env bash
# Prints how many compilers may run at once: one per core, but each may need 1.5 GB for LibTorch.
set -euo pipefail
cores=$(nproc)
available_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
jobs=$((available_mb / 1500))
((jobs > cores)) && jobs=$cores
((jobs < 1)) && jobs=1
echo "$jobs"
