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

// Flows of which more may come while others are under way, as they become known.
typedef struct Flows Flows;
// capacity: (links), as for flows_run; borrowed.
Flows *flows_create(const double *capacity, int links);
void flows_free(Flows *flows); // NULL is fine
// Its number, from 0. It may not start before the last moment that was passed. Its links are borrowed until it has
// ended, flow->end is not read.
int flows_add(Flows *flows, const Flow *flow);
double flows_end(const Flows *flows, int number); // NAN while more flows could still change it
// The next moment at which a flow begins to move or ends; infinity: none is under way. It stays the next one as long as
// no flow is added that begins before it.
double flows_next(Flows *flows);
void flows_pass(Flows *flows); // to that moment: who ends then is known

// bytes/s of flows that move at the same time: as much for the slowest as can be, then for the next. rate: (flows),
// written; infinite for a flow without links.
void flows_rates(const Flow *const *flow, int flows, const double *capacity, int links, double *rate);
