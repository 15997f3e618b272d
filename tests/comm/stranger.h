// A process outside a world of net that knows the format of plait's messages and the address of one of the ranks.
#pragma once
#include "comm/net.h"

// In memory that it shares with the rank.
typedef struct Meeting { char address[4096]; volatile int there, over; } Meeting;

void stranger_invite(Meeting *meeting, PlaitWorld *world); // tells it the address of this rank
// Waits for that, and sends until the meeting is over what ranks may send to each other: small and long messages with
// all tags that a world of so many ranks begins with, and any tags. Then it is gone without a word. 0: all went well.
int stranger_sends(Meeting *meeting, int ranks);
