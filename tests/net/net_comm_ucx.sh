#!/bin/bash
# tier 3; rooms comm; numbers
# net_comm.sh through UCX's TCP (run.wire: ucx). A test of its own, since with a sanitizer on two busy cores all together can take longer
# than ctest allows.
[ -n "$(sed -n 's/^ucx=yes$/yes/p' "$FOLDER/plait.pc")" ] || { echo "skipped: a build without UCX"; exit 77; }
exec bash "$SOURCE/tests/net/net_comm.sh" ucx
