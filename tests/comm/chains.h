// all_reduce by chains of groups beside the direct one, bit by bit.
#pragma once
#include "plait/comm.h"

// By every rank: all dtypes and operations, lengths around the ends of chunks, lists of buffers, in place and not, by
// chains of groups of every size that divides the ranks. 0: the bits are the same; else `text` says where not.
int chains_check(PlaitWorld *world, PlaitComm *comm, char *text, size_t size);
