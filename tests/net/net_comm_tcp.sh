#!/bin/bash
# tier 3; rooms comm; numbers
# net_comm.sh through TCP. A test of its own, since with a sanitizer on two busy cores both together can take longer than ctest allows.
exec bash "$SOURCE/tests/net/net_comm.sh" tcp
