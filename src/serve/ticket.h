// A client's request on its way through the engine: one or several choices, each a request of the engine, and what
// comes of them. Threads of HTTP make tickets and read them; the thread that computes fills them.
#pragma once
#include "infer/engine.h"
#include "tokenizer/tokenizer.h"
#include <pthread.h>

typedef enum TicketState {
  TICKET_WAITS,   // for the thread that computes
  TICKET_RUNS,
  TICKET_REFUSED, // the engine does not take it: `error` is for the client
  TICKET_FAILED   // the server cannot finish it: `error` says why
} TicketState;

// Events in their order. `request` is the number of a choice, and what is most likely is here.
typedef struct Mail {
  Vec(EngineEvent) events;
  Vec(int32_t) ids;      // of all events, one after the other
  Vec(double) logprobs;
  double since;          // when the first of the events came
  double first;          // when the first token of the ticket was drawn; 0: not yet
} Mail;

typedef struct Ticket {
  int count;
  RequestOptions *choice; // (count); what they borrow is here
  IdVector *prompt;       // (prompts)
  int prompts;
  Vec(SampleBias) bias;
  void *rules;            // of the choices, or NULL; free_rules frees it
  void (*free_rules)(void *rules);
  int wake;               // an eventfd, written when there is something new; -1: the system has none to give
  bool quiet;             // only the end of a choice is new: its reader has nothing to do before
  pthread_mutex_t mutex;  // guards what follows
  int users;
  TicketState state;
  Error error;
  Mail mail;
  double first;    // as in Mail
  bool *cancel;    // (count) the client does not want it any more
  int64_t *number; // (count) of the engine's request, -1: none is open; the thread that computes has them alone
  int open;        // of them
} Ticket;

// For one user. The caller fills in prompts and choices before others know of it.
Ticket *ticket_create(int choices, int prompts);
void ticket_share(Ticket *ticket);   // one more user
void ticket_release(Ticket *ticket); // NULL is fine

void ticket_push(Ticket *ticket, int choice, const EngineEvent *event);
void ticket_end(Ticket *ticket, TicketState state, const Error *error);
// All that has come since the last call, and the state: *error is set where it is refused or has failed. Pointers into
// `mail` are valid until the next call.
TicketState ticket_take(Ticket *ticket, Mail *mail, Error *error);
void mail_free(Mail *mail);
