// Transfers that meet on links share them max-min: progressive filling (Bertsekas and Gallager, Data Networks, 1992,
// 6.5.2).
#pragma once

typedef struct Flow {
  double start, bytes;    // seconds, bytes
  double latency;         // seconds before its first byte moves
  const int *link;        // that it goes through
  int links;
  double end;             // written: when its last byte has arrived
} Flow;

// All flows to their ends. capacity: (links) bytes/s.
void flows_run(Flow *flow, int flows, const double *capacity, int links);
