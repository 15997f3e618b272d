#!/bin/bash
# tier 1; rooms serve
# docs/serving.md has the tables of src/serve/*.def.
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$SOURCE/scripts/serving-tables"
