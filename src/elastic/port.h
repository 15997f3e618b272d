// Free ports of a machine: for rank 0 of a round, and where copies of memory are taken.
#pragma once

// A port of this machine's address at which nobody listens now; `seed`: hexadecimal digits, so that jobs do not all
// look at the same ones. Rank 0 takes one of those after it if somebody listens there by then.
int port_free(const char *address, const char *seed);
// Another one, for a machine that has that one: not among those after it.
int port_after(const char *address, int port);
