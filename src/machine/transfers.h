// Transfers of a simulated step on the links of its ranks: who was on a link when, and max-min shares of transfers that
// meet there (machine/flows.h).
//
// Every rank has two links of each level of the cluster, one to send and one to receive. A collective is on both of all
// its ranks, a message on one rank's to send and the other's to receive, and on the ports of these where they share one
// with ranks of other pipeline stages. By itself a transfer takes its latency, and
// then moves its bytes as fast as its formula says; beside others it gets its share of that.
#pragma once

// seconds: by itself; latency: those of them in which it moves nothing. member: (members) the simulated ranks of a
// collective, or those that send and receive a message.
typedef struct Transfer {
  double start, seconds, latency;
  int level; // of the links; -1: of none, so that nobody is met
  int message;
  const int *member;
  int members;
} Transfer;

typedef struct Transfers Transfers;
Transfers *transfers_create(int ranks);
void transfers_free(Transfers *transfers); // NULL is fine
// Messages of `rank` and `other` go through one port of a level, which they share when they meet; first of all.
void transfers_share_port(Transfers *transfers, int level, int rank, int other);

// Moving them together: each call as machine/flows.h says it of flows. transfers_begin returns the transfer's number.
int transfers_begin(Transfers *transfers, const Transfer *transfer);
double transfers_end(const Transfers *transfers, int number);
double transfers_next(Transfers *transfers);
void transfers_pass(Transfers *transfers);

// A transfer was on its links until `end`: what the two below add up. `rank`: of several members, whose it is.
void transfers_note(Transfers *transfers, int rank, const Transfer *transfer, double end);
// Seconds in which what a rank sends was on a link together: of each level, those of all transfers less those in which
// there was one.
double transfers_met(Transfers *transfers, int rank);
// The same of the link of any rank on which transfers met for the longest, to send or to receive.
double transfers_met_most(Transfers *transfers);
