// Collectives for which simulated ranks wait: whoever comes early waits for the last of them.
#pragma once
#include "base/arena.h"

typedef struct Meeting {
  int node, number;     // the collective; through microbatches or steps
  int of, arrived, left;
  double latest;        // when the last of those that have arrived did
  int last;             // that rank
  int *member;          // (of) ranks that have arrived
  int room;             // number of ranks that `member` has room for
  int transfer;         // 1 + its number among transfers under way, once it has begun; 0: not yet
  int waiting;          // 1 + the first of the streams that wait for it, as their owner numbers them; 0: none
  struct Meeting *next; // of the same group
} Meeting;

// By group: the number of its first rank.
typedef struct Meetings { Meeting **of_group, *unused; Arena arena; } Meetings;
void meetings_make(Meetings *m, int groups);
void meetings_free(Meetings *m);

// The meeting of `of` ranks of a group; made where none of them has come yet.
Meeting *meeting_find(Meetings *m, int group, int node, int number, int of);
// A rank has come to it: 1 when all have.
int meeting_arrive(Meeting *meeting, int rank, double time);
// A rank knows when it began: with the last one it is forgotten.
void meeting_leave(Meetings *m, int group, Meeting *meeting);
