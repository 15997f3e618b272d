// The thread that computes: it alone uses the engine.
#pragma once
#include "serve/ticket_queue.h"

// Takes tickets from the queue, runs ticks and fills tickets, until a signal asks for an end: then the queue takes no
// more, what runs has `drain` seconds to finish, and the rest fails. An error is one of the engine's: all tickets have
// failed with it, and the engine can only be closed. Rank 0 calls it, in its main thread.
int compute_run(TicketQueue *queue, Engine *engine, double drain, Error *error);
