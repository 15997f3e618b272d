// Which tokens of which requests go through the model in a tick, and which pages of the cache they have. It knows no
// model: it is told what was drawn. (Continuous batching: Yu et al., "Orca: A distributed serving system for
// transformer-based generative models", 2022. Prompts in chunks beside decoding: Agrawal et al., "Taming
// throughput-latency tradeoff in LLM inference with Sarathi-Serve", 2024.)
#pragma once
#include "base/vec.h"
#include "infer/pages.h"
#include "infer/sample.h"
#include <stdbool.h>
#include <stdint.h>

enum { REQUEST_MOST_DRAFTS = 16 };

// Which tokens may follow, where this depends on those before. One thread at a time calls them, not
// always the same one: `allowed` also while the model computes.
typedef struct RequestRules {
  void *context;
  const uint8_t *(*allowed)(void *context); // (vocab) as RequestOptions.allowed, for the next token
  void (*took)(void *context, int32_t id);  // it was drawn; also one that ends the request
} RequestRules;

typedef struct RequestOptions {
  const int32_t *prompt; // (count), at least one token; copied
  int64_t count;
  int64_t most;          // tokens to draw
  const int32_t *ends;   // (end_count) drawing one of these ends the request; copied
  int end_count;
  SampleOptions sample;  // its biases are copied
  const uint8_t *allowed; // (vocab) see sample_token; borrowed until the request has ended; NULL: all
  const RequestRules *rules; // in the place of `allowed`; borrowed until the request has ended; NULL: none
  int logprobs; // -1: none are told; else that of each token drawn, and those of this number of the most likely tokens
  bool score;   // those of the prompt's tokens are told, too, from the second one on
} RequestOptions;

typedef enum RequestEnd {
  REQUEST_IS_OPEN,
  REQUEST_STOPPED,  // it drew one of its ends, which is not among its tokens
  REQUEST_IS_FULL,  // it drew as many tokens as it was asked for
  REQUEST_CANCELLED,
  REQUEST_BROKEN    // the model's logits are not finite
} RequestEnd;

typedef struct Request {
  int64_t number; // of arrival
  RequestOptions options;
  Vec(int32_t) ids;    // the prompt, then what was drawn
  int64_t begin, done; // the first token that is looked back on; those from there to before `done` are in the cache
  int64_t scored;      // of its prompt's tokens: those after which the next one's log-probability has been told
  int64_t reused;      // tokens of its prompt that the cache had when it began; -1: it has not
  SampleRange may_draw; // these ids, and no others; empty: it is not as simple
  int row, slot;       // where it runs; -1: it waits
  bool drawing;        // a tick under way draws for it: it is in no other one until scheduler_took
  Vec(int32_t) pages;  // of the row's pool, for the tokens from `begin` on
  RequestEnd end;
} Request;

typedef struct SchedulerOptions {
  int rows;     // of the batch; each has pages of its own
  int requests; // of a row at a time
  int tokens;   // of a row in a tick at most, at least `requests`
  int logits;   // that are wanted of a row's tick at most, at least `requests`; 0: any number
  int page, pages; // tokens of a page, and pages of a row: enough for one request of `context` tokens
  int context;  // tokens that a request looks back on at most. A longer one begins anew with the newer half
  int in_flight; // ticks that may be under way at a time; 0: 1
  int speculate; // tokens that are guessed for a request in a tick, 0 … REQUEST_MOST_DRAFTS
  bool prefix;  // full pages are kept for other requests
} SchedulerOptions;

// Tokens of one request in a tick: ids[from … from + tokens), then guesses. The logits after the last `drawn` of them
// are wanted: the first `scores` of these to score the prompt, the others to draw.
typedef struct TickPart {
  Request *request;
  int64_t from;
  int tokens, drafts, drawn, scores;
  int32_t draft[REQUEST_MOST_DRAFTS];
} TickPart;

typedef struct Tick {
  Vec(TickPart) parts; // in the order of their row's tokens
  int tokens;          // of the fullest row
  bool decodes;        // there is a request that waits for its next token alone
} Tick;

typedef struct Scheduler {
  SchedulerOptions options;
  PagePool *pool;     // (rows)
  Request **slot;     // (rows, requests); NULL: it is free
  int *tokens, limit; // (rows) of the tick, and how many of a row there may be
  int *parts;         // (rows) of the tick
  int *logits;        // (rows) that are wanted of the tick
  Vec(Request *) waiting; // in the order of arrival
  int running;
  int drawing;        // requests for which a tick under way draws
  int64_t next_number;
  int64_t preempted, reused; // requests, and tokens that were found in the cache
  Tick tick;
} Scheduler;

void scheduler_create(Scheduler *s, const SchedulerOptions *options);
void scheduler_destroy(Scheduler *s); // with all requests
// The scheduler owns the request until scheduler_free.
Request *scheduler_submit(Scheduler *s, const RequestOptions *options);
// One that a tick draws for keeps its pages until scheduler_took.
void scheduler_cancel(Scheduler *s, Request *request);
void scheduler_free(Scheduler *s, Request *request); // one that has ended, and that no tick draws for

// Fills s->tick: of each row first the requests that wait for their next token, then prompts, then requests that have
// waited, in the order of their arrival; at most `prompt_tokens` of prompts in a row where a request decodes. Out of
// pages, the youngest request of the row loses its pages and waits, to be computed again. false: there is nothing to
// do, but for ticks under way. With several in flight each has its share of the requests. Ticks run in the order of
// their plans: so a page may go to another request while an earlier tick still reads it, and a part of a prompt may be
// taken (scheduler_took) when it is planned, so that the next tick continues it.
bool scheduler_plan(Scheduler *s, int prompt_tokens);
// Requests that wait for their next token alone; of the others a part of the prompt is left.
int scheduler_decoding(const Scheduler *s);
// The tick has run, and these ids (count) were drawn for a part, one after the other: as many as scheduler_accepts
// allowed. Ids that end the request, or are too many, are in none of its tokens.
void scheduler_took(Scheduler *s, TickPart *part, const int32_t *ids, int count);
// Whether the `k`-th logits of a part may be drawn from, after `id` was drawn from those before: the guess was right
// and the request is not at its end.
bool scheduler_accepts(const TickPart *part, int k, int32_t id);
bool request_ends_with(const Request *request, int32_t id);
