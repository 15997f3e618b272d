#!/bin/bash
# Parity over net (tests/process/parity.sh).
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
comm=net
. "$SOURCE/tests/process/parity.sh"
