#!/bin/bash
# The binary seeds of fuzz targets are what scripts/fuzz_seeds.py makes.
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
exec python3 "$SOURCE/scripts/fuzz_seeds.py" --check
