#!/bin/bash
# tier 2 3; rooms comm; numbers
# net_comm.sh through Unix sockets, as where there is no UCX.
exec bash "$SOURCE/tests/net/net_comm.sh" sockets
