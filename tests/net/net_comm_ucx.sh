#!/bin/bash
# tier 3; rooms comm; numbers
# net_comm.sh through UCX's TCP (run.wire: ucx). A test of its own, since with a sanitizer on two busy cores all together can take longer
# than ctest allows.
! "$PLAIT" doctor | grep -q "^--  UCX " || { echo "skipped: no UCX"; exit 77; }
exec bash "$SOURCE/tests/net/net_comm.sh" ucx
