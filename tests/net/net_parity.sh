#!/bin/bash
# tier 3; rooms comm train; numbers
# Parity over net (tests/process/parity.sh), with the processes of plait launch.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
comm=net
. "$SOURCE/tests/net/launched.sh"
. "$SOURCE/tests/process/parity.sh"
