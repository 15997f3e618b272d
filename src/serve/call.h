// A request for text, read from its JSON: what the engine is asked for, and what the client wants to see of it.
#pragma once
#include "serve/fields.h"
#include "serve/model.h"
#include "serve/output.h"
#include "serve/ticket.h"

enum { MOST_CHOICES = 256, MOST_TOP = 20 };

typedef struct Call {
  json_t *json;  // the request; stops are its texts
  bool chat, stream, include_usage, echo, thinks; // thinks: the prompt has opened <think>
  bool told;     // log-probabilities
  const json_t *tools; // that the model may call: the request's own; NULL: none
  int64_t n, most; // choices of a prompt; tokens, of which 0 are 0 though the engine draws one
  Stops stops;
  Ticket *ticket;
  int64_t ignored; // fields
} Call;

// Reads it; fills *refusal and returns -1 where it cannot be answered. The caller frees the call in any case.
int call_read(Call *call, const ServedModel *model, const char *body, size_t bytes, bool chat, Refusal *refusal);
void call_free(Call *call);
// The text of the call's prompt, where it was given as one; NULL: as ids.
const char *call_prompt_text(const Call *call, int prompt, size_t *bytes);

// Messages as templates expect them, with texts for contents: a new list, or NULL with a failure. *prefill: the last
// one is the assistant's, and the answer continues it.
json_t *call_messages(const json_t *messages, bool *prefill, int64_t *ignored, Refusal *refusal);
// *tools: those of a request that the model may call; NULL: none.
int call_tools(const json_t *request, const ServedModel *model, const json_t **tools, Refusal *refusal);
// The ids of a chat's prompt.
int call_encode_chat(const ServedModel *model, const ChatPrompt *prompt, IdVector *ids, Refusal *refusal);
// The ids of a text's.
int call_encode_text(const ServedModel *model, const json_t *text, IdVector *ids, Refusal *refusal);
