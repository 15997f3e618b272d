// How collectives and messages, which threads of the host carry out, come to the memory of a device, whose kernels may
// run late.
//
// They begin when the kernels that were put into the queue before them are done: a collective in flight waits for these
// on its stream, not in the rank's thread. Where the host cannot reach the device's memory, they read and write the
// State's mirror: what they read is copied there before, and what they have written is copied back, in queues of their
// own; kernels that are put into their queue once the collective has been waited for come after these copies. A device
// that does everything at once, in memory of the host's, has nothing to wait for and to copy.
#pragma once
#include "runtime/bind.h"

// When a Binding is made: the queues of copies; and, for a collective, memory for what is noted while it is under way.
int host_call_create(Binding *binding, Error *error);
void host_call_destroy(Binding *binding);
void host_call_bind(Binding *binding, Bound *b);

// A collective whose operands have their addresses and rows. Started on a stream; then waited for, and then its results
// are there for whatever is put into the kernels' queue. A device that fails makes the world fail.
int host_call_start(Binding *binding, Bound *b, Flight *flight, PlaitStream *stream);
int host_call_wait(Binding *binding, Bound *b, Flight *flight);
// In the caller's thread, between these two, it can be called (collective_call).
int host_call_open(Binding *binding, Bound *b);
void host_call_close(Binding *binding, const Bound *b);

// What such a call puts on its stream besides itself.
int host_call_tasks(const Binding *binding);

// The same of a message: `bytes` at an address of the device's, which are sent, or received. *data: for the call.
int host_call_open_message(Binding *binding, char *address, int64_t bytes, int sends, void **data, Error *error);
void host_call_close_message(Binding *binding, char *address, int64_t bytes);
