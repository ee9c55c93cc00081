#!/usr/bin/env bash
# Formats the source in place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

python=$(find_python)
lanes=$(find_lanes "$python")
lane=${lanes%% *}
make_lane "$lane"
bin=".venvs/test-$lane/bin"
"$bin/isort" "${SOURCES[@]}"
"$bin/black" "${SOURCES[@]}"
