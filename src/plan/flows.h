// Transfers that meet on links share them max-min: progressive filling (Bertsekas and Gallager, Data Networks, 1992,
// 6.5.2).
#pragma once

typedef struct Flow {
  double start, bytes;    // seconds, bytes
  double latency;         // seconds before its first byte moves
  const int *link;        // that it goes through, each once; borrowed
  int links;              // 0: nothing bounds it, so its bytes take no time
  double end;             // written: when its last byte has arrived
} Flow;

// All flows to their ends. capacity: (links) bytes/s, each more than 0. A flow uses its links from start + latency
// until its end.
void flows_run(Flow *flow, int flows, const double *capacity, int links);

// bytes/s of flows that move at the same time: as much for the slowest as can be, then for the next. rate: (flows),
// written; infinite for a flow without links.
void flows_rates(const Flow *const *flow, int flows, const double *capacity, int links, double *rate);
