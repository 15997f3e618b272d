// Seconds of collectives that somebody measured.
#pragma once
#include "machine/facts.h"

// By the rows of this kind, exactly these ranks and nodes: linear between the logarithms of bytes and seconds. Fewer
// bytes than the least row has take as long as it; more than the greatest take time at its rate. More bytes are never
// faster: a row that says so counts as the slowest before it. 0: there is no such row.
int measured_seconds(const Cluster *cluster, const char *kind, int ranks, int nodes, double bytes, double *seconds);
