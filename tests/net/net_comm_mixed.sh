#!/bin/bash
# tier 2; rooms comm; numbers
# net_comm.sh with two carriers: shared memory between some ranks, TCP between the others. Receives from any rank are brought by both.
"$PLAIT" doctor | grep -q "^--  UCX " && { echo "skipped: no UCX"; exit 77; }
exec bash "$SOURCE/tests/net/net_comm.sh" mixed
