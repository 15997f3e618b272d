// Measures the time of collectives and messages between ranks.
#pragma once
#include "machine/facts.h"
#include "runtime/session.h"

// Adds rows to cluster->measured for all ranks of the session and groups of fewer (powers of two), sorted, and fills in
// bandwidth and latency of level 0 from messages between ranks on one machine, and of level 1 from those on two
// (probe_pairs.h), and names the slow ones on stderr.
int probe_links(Session *session, bool quick, Cluster *cluster, Error *error);
