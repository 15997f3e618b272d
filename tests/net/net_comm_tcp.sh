#!/bin/bash
# tier 3; rooms comm; numbers
# net_comm.sh through plait's own connections over TCP, as between machines.
exec bash "$SOURCE/tests/net/net_comm.sh" tcp
