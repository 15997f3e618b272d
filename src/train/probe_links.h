// What collectives and messages between ranks take.
#pragma once
#include "plan/facts.h"
#include "runtime/session.h"

// `local`: ranks on one machine. Adds rows to cluster->measured for all ranks of the session and groups of fewer
// (powers of two), sorted, and fills in the innermost level's bandwidth and latency from messages between rank 0 and
// each other one.
int probe_links(Session *session, int local, bool quick, Cluster *cluster, Error *error);
