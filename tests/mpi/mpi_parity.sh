#!/bin/bash
# tier 3; rooms comm train; numbers
# Parity over MPI (tests/process/parity.sh).
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/mpi/environment.sh" || exit 1
comm=mpi
. "$SOURCE/tests/process/parity.sh"
