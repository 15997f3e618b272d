// The answer to a call, as JSON: at once, or as events of a stream.
#pragma once
#include "serve/call.h"
#include "serve/reply_chat.h"
#include "serve/ticket_queue.h"

typedef struct ReplyChoice {
  Output output;
  ReplyChat chat;
  int sent, told_sent; // of the text, and tokens with log-probabilities
  bool began, ended;  // its first and last events are made
  bool engine_ended;  // no more will come from the engine
  bool unwanted;      // the engine has been told so
  RequestEnd end;
  int64_t reused;
} ReplyChoice;

typedef struct Reply {
  Call *call;               // borrowed
  const ServedModel *model; // borrowed
  TicketQueue *queue;             // borrowed
  ReplyChoice *choice;      // (call->ticket->count)
  int left;                 // choices that the engine has not ended
  bool usage_sent;
  char id[40];
  int64_t created;
  Mail mail;
  double asked, first;      // when it was asked for, and when its first token came; 0: not yet
} Reply;

void reply_begin(Reply *reply, Call *call, const ServedModel *model, TicketQueue *queue);
void reply_free(Reply *reply);
// Takes what has come. -1 with a failure where the server cannot finish it.
int reply_update(Reply *reply, Refusal *refusal);
static inline bool reply_is_whole(const Reply *reply) { return !reply->left; }
json_t *reply_json(const Reply *reply, Refusal *refusal); // of a whole one; NULL with a failure: the model is broken
// Appends the events for what is new; last, of a whole reply, "[DONE]".
void reply_events(Reply *reply, ByteVector *out);
void reply_refusal_event(const Refusal *refusal, ByteVector *out);
int64_t reply_tokens(const Reply *reply, int64_t *prompt, int64_t *reused); // drawn
