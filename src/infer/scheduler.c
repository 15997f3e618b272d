// One plan a tick: requests that decode, prompts, requests that wait; and the pages that they need.
#include "infer/scheduler.h"
#include "base/error.h"
#include "base/fault.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *from, size_t bytes) {
  void *to = xcalloc(bytes ? bytes : 1, 1);
  if (bytes) memcpy(to, from, bytes);
  return to;
}

void scheduler_create(Scheduler *s, const SchedulerOptions *o) {
  CHECK(o->tokens >= o->requests && o->speculate <= REQUEST_MOST_DRAFTS);
  CHECK((int64_t)o->pages * o->page >= o->context, "the cache has no room for one request");
  *s = (Scheduler){.options = *o};
  s->pool = xcalloc((size_t)o->rows, sizeof *s->pool);
  for (int i = 0; i < o->rows; i++) page_pool_create(&s->pool[i], o->pages, o->page);
  s->slot = xcalloc((size_t)o->rows * (size_t)o->requests, sizeof(Request *));
  s->tokens = xcalloc((size_t)o->rows, sizeof *s->tokens);
  s->logits = xcalloc((size_t)o->rows, sizeof *s->logits);
  s->parts = xcalloc((size_t)o->rows, sizeof *s->parts);
  if (!o->in_flight) s->options.in_flight = 1;
  if (!o->logits) s->options.logits = INT_MAX;
}

static void request_free(Request *r) {
  free((void *)(uintptr_t)r->options.ends);
  free((void *)(uintptr_t)r->options.sample.bias);
  vec_free(&r->ids);
  vec_free(&r->pages);
  free(r);
}

void scheduler_destroy(Scheduler *s) {
  for (int i = 0; s->slot && i < s->options.rows * s->options.requests; i++)
    if (s->slot[i]) request_free(s->slot[i]);
  for (int i = 0; i < s->waiting.count; i++) request_free(s->waiting.data[i]);
  for (int i = 0; s->pool && i < s->options.rows; i++) page_pool_destroy(&s->pool[i]);
  vec_free(&s->waiting);
  vec_free(&s->tick.parts);
  free(s->pool);
  free(s->slot);
  free(s->tokens);
  free(s->logits);
  free(s->parts);
  *s = (Scheduler){0};
}

// ---- requests come and go

static void wait_again(Scheduler *s, Request *r) {
  int at = s->waiting.count;
  vec_push(&s->waiting, r);
  for (; at > 0 && s->waiting.data[at - 1]->number > r->number; at--) s->waiting.data[at] = s->waiting.data[at - 1];
  s->waiting.data[at] = r;
}

Request *scheduler_submit(Scheduler *s, const RequestOptions *o) {
  CHECK(o->count > 0 && o->most > 0);
  Request *r = xcalloc(1, sizeof *r);
  *r = (Request){.number = s->next_number++, .options = *o, .row = -1, .slot = -1, .reused = -1};
  r->options.prompt = NULL;
  r->options.ends = copy_of(o->ends, sizeof *o->ends * (size_t)o->end_count);
  r->options.sample.bias = copy_of(o->sample.bias, sizeof *o->sample.bias * (size_t)o->sample.biases);
  for (int64_t i = 0; i < o->count; i++) vec_push(&r->ids, o->prompt[i]);
  // A prompt that is longer than the context: its newest part.
  if (o->count > s->options.context) r->begin = r->done = o->count - s->options.context;
  wait_again(s, r);
  return r;
}

// The last pages first: without those before them they cannot be found.
static void release_pages(Scheduler *s, Request *r) {
  while (r->pages.count) page_release(&s->pool[r->row], r->pages.data[--r->pages.count]);
}

static void leave(Scheduler *s, Request *r) {
  release_pages(s, r);
  s->slot[r->row * s->options.requests + r->slot] = NULL;
  r->row = r->slot = -1;
  s->running--;
}

static void end_request(Scheduler *s, Request *r, RequestEnd end) {
  if (r->row >= 0) leave(s, r);
  r->end = end;
}

void scheduler_cancel(Scheduler *s, Request *r) {
  if (r->end) return;
  if (r->drawing) {
    r->end = REQUEST_CANCELLED;
    return;
  }
  for (int i = 0, kept = 0; r->row < 0 && i < s->waiting.count; i++) {
    if (s->waiting.data[i] != r) s->waiting.data[kept++] = s->waiting.data[i];
    if (i + 1 == s->waiting.count) {
      s->waiting.count = kept;
      break;
    }
  }
  end_request(s, r, REQUEST_CANCELLED);
}

void scheduler_free(Scheduler *s, Request *r) {
  CHECK(r->end && r->row < 0);
  request_free(r);
}

// ---- pages

static int64_t pages_for(const Scheduler *s, int64_t tokens) {
  return (tokens + s->options.page - 1) / s->options.page;
}

// The youngest of a row; NULL: none runs.
static Request *youngest(const Scheduler *s, int row) {
  Request *best = NULL;
  for (int i = 0; i < s->options.requests; i++) {
    Request *r = s->slot[row * s->options.requests + i];
    if (r && (!best || r->number > best->number)) best = r;
  }
  return best;
}

// Where the context is full, the newer half is computed again as the beginning of a new one.
static void renew_window(const Scheduler *s, Request *r) {
  if (r->ids.count - r->begin <= FAULT(windows_are_too_long, s->options.context, s->options.context + 1)) return;
  r->begin = r->done = r->ids.count - (s->options.context + 1) / 2;
}

static void preempt(Scheduler *s, Request *r) {
  leave(s, r);
  renew_window(s, r);
  wait_again(s, r);
  s->preempted++;
}

// Pages for the tokens up to `to`; returns up to which there are some.
static int64_t take_pages(Scheduler *s, Request *r, int64_t to) {
  int64_t all = pages_for(s, to - r->begin), has;
  while (r->pages.count < all) {
    int32_t page = page_take(&s->pool[r->row]);
    if (page < 0) break;
    vec_push(&r->pages, page);
  }
  has = r->begin + (int64_t)r->pages.count * s->options.page;
  return has < to ? has : to;
}

// The same for a request that decodes, at others' expense. false: at its own, or a tick draws for the youngest, which
// is waited for.
static bool take_decode_pages(Scheduler *s, Request *r) {
  while (take_pages(s, r, r->done + 1) <= r->done) {
    Request *last = youngest(s, r->row);
    if (FAULT(preempted_while_drawn, last->drawing, false)) return false;
    preempt(s, last);
    if (last == r) return false;
  }
  return true;
}

// Full pages of tokens that are done can be found from now on.
static void keep_pages(Scheduler *s, Request *r, int64_t from) {
  int n = s->options.page;
  if (!s->options.prefix) return;
  for (int64_t i = (from - r->begin) / n; i < (r->done - r->begin) / n; i++)
    r->pages.data[i] = page_keep(&s->pool[r->row], r->pages.data[i], i ? r->pages.data[i - 1] : -1,
                                 r->ids.data + r->begin + i * n);
}

// Its prompt is not all scored yet.
static bool scores(const Request *r) { return r->options.score && r->scored < r->options.count - 1; }

// The kept pages of a row that a request's text begins with: at most (limit), so that one token is left to compute.
static int match(const Scheduler *s, int row, const Request *r, int32_t *pages) {
  int64_t limit = (r->ids.count - r->begin - 1) / s->options.page;
  if (scores(r) && limit > r->scored / s->options.page) limit = r->scored / s->options.page;
  int n = 0;
  for (int32_t parent = -1; s->options.prefix && n < limit; n++, parent = pages[n - 1]) {
    int32_t page = page_match(&s->pool[row], parent, r->ids.data + r->begin + (int64_t)n * s->options.page);
    if (page < 0) break;
    pages[n] = page;
  }
  return n;
}

// ---- a tick

static TickPart *add_part(Scheduler *s, Request *r, int tokens) {
  vec_push(&s->tick.parts, (TickPart){.request = r, .from = r->done, .tokens = tokens});
  s->tokens[r->row] += tokens;
  s->parts[r->row]++;
  TickPart *part = &s->tick.parts.data[s->tick.parts.count - 1];
  part->drawn = r->done + tokens == r->ids.count;
  if (scores(r) && r->done >= r->scored) {
    part->scores = tokens - part->drawn;
    part->drawn = tokens;
  }
  s->logits[r->row] += part->drawn;
  return part;
}

static int room(const Scheduler *s, int row) { return s->limit - s->tokens[row]; }

static bool decodes(const Request *r) { return r->ids.count - r->done == 1; }

int scheduler_decoding(const Scheduler *s) {
  int n = 0;
  for (int i = 0; i < s->options.rows * s->options.requests; i++)
    n += s->slot[i] && s->slot[i]->ids.count - s->slot[i]->done <= FAULT(prompts_count_as_decoding, 1, INT64_MAX);
  return n;
}

// Whether the tick has its share of the requests that a row has and gets: so each tick in flight has as many.
static bool has_share(const Scheduler *s, int row) {
  int n = s->options.in_flight, all = (s->waiting.count + s->options.rows - 1) / s->options.rows;
  if (n == 1) return false;
  for (int i = 0; i < s->options.requests; i++) all += s->slot[row * s->options.requests + i] != NULL;
  if (all > s->options.requests) all = s->options.requests;
  return s->parts[row] >= (all + n - 1) / n;
}

// The tokens that followed the last three, or two, when they were met before (Saxena, "Prompt lookup decoding", 2023).
static void guess(Scheduler *s, TickPart *part, int most) {
  const Request *r = part->request;
  int64_t left = r->options.most - (r->ids.count - r->options.count) - 1,
          window = r->begin + s->options.context - r->ids.count;
  if (most > left) most = (int)left;
  if (most > window) most = (int)window;
  int64_t count = r->ids.count;
  for (int n = 3; n >= 2 && most > 0 && !part->drafts; n--)
    for (int64_t at = count - n - 1; at >= r->begin; at--) {
      if (memcmp(r->ids.data + at, r->ids.data + count - n, sizeof(int32_t) * (size_t)n) != 0) continue;
      for (int64_t i = at + n; i < count && part->drafts < most; i++) part->draft[part->drafts++] = r->ids.data[i];
      break;
    }
}

static void add_drafts(Scheduler *s, TickPart *part, int most) {
  Request *r = part->request;
  guess(s, part, most);
  if (!part->drafts) return;
  int64_t has = take_pages(s, r, r->done + 1 + part->drafts) - r->done - 1;
  if (part->drafts > has) part->drafts = (int)has;
  part->tokens += part->drafts;
  part->drawn += part->drafts;
  s->tokens[r->row] += part->drafts;
  s->logits[r->row] += part->drafts;
}

// The running requests of a row that no tick draws for, in the order of their arrival. out (requests)
static int free_of(const Scheduler *s, int row, Request **out) {
  int n = 0;
  for (int i = 0; i < s->options.requests; i++) {
    Request *r = s->slot[row * s->options.requests + i];
    if (!r || FAULT(requests_are_in_two_ticks, r->drawing, false)) continue;
    int at = n++;
    for (; at > 0 && out[at - 1]->number > r->number; at--) out[at] = out[at - 1];
    out[at] = r;
  }
  return n;
}

static void plan_decodes(Scheduler *s, int row, Request **all) {
  int n = free_of(s, row, all), first = s->tick.parts.count, count = 0;
  for (int i = 0; i < n; i++) {
    if (all[i]->row != row || !decodes(all[i])) continue; // one that was preempted meanwhile
    if (has_share(s, row)) break;
    if (all[i]->ids.count - all[i]->begin > s->options.context) {
      release_pages(s, all[i]);
      renew_window(s, all[i]);
    }
    if (decodes(all[i]) && take_decode_pages(s, all[i])) add_part(s, all[i], 1);
  }
  count = s->tick.parts.count - first;
  int most = count ? room(s, row) / count : 0;
  for (int i = 0; i < count && s->options.speculate; i++)
    add_drafts(s, &s->tick.parts.data[first + i], most < s->options.speculate ? most : s->options.speculate);
  if (count) s->tick.decodes = true;
}

// Logits that a request may have for its prompt, so that there is one for each other request of the row.
static int64_t logits_to_score(const Scheduler *s, const Request *r) {
  int others = -1;
  for (int i = 0; i < s->options.requests; i++) others += s->slot[r->row * s->options.requests + i] != NULL;
  for (int i = 0; i < s->tick.parts.count; i++) others -= s->tick.parts.data[i].request->row == r->row;
  return s->options.logits - s->logits[r->row] - others;
}

// A part of a prompt, as far as the tick's tokens and pages go.
static void add_prompt(Scheduler *s, Request *r) {
  int64_t left = r->ids.count - r->done;
  if (left > room(s, r->row)) left = room(s, r->row);
  if (scores(r)) {
    int64_t most = r->done < r->scored ? r->scored - r->done : logits_to_score(s, r);
    if (left > most) left = most;
  }
  if (left > 0) left = take_pages(s, r, r->done + left) - r->done;
  if (left > 0) add_part(s, r, (int)left);
}

// Pages that nobody uses and that no running request needs for the tokens that it has. (One with wrong guesses may hold
// a page more.)
static int64_t free_pages(const Scheduler *s, int row) {
  int64_t n = s->pool[row].unused;
  for (int i = 0; i < s->options.requests; i++) {
    const Request *r = s->slot[row * s->options.requests + i];
    int64_t needed = r ? pages_for(s, r->ids.count - r->begin) - r->pages.count : 0;
    if (needed > 0) n -= needed;
  }
  return n;
}

// The row with the longest part of a request's text in its cache, then with the fewest requests, that has room for it;
// -1: none. pages (pages of a context): those found there.
static int choose_row(const Scheduler *s, const Request *r, int32_t *pages, int *found) {
  int best = -1, fewest = 0;
  *found = -1;
  for (int row = 0; row < s->options.rows; row++) {
    int used = 0, reused = 0;
    for (int i = 0; i < s->options.requests; i++) used += s->slot[row * s->options.requests + i] != NULL;
    if (used == s->options.requests || room(s, row) <= 0 || s->logits[row] >= s->options.logits) continue;
    int n = match(s, row, r, pages);
    for (int i = 0; i < n; i++) reused += s->pool[row].page[pages[i]].users == 0;
    if (pages_for(s, r->ids.count - r->begin) - n > free_pages(s, row) - reused) continue;
    if (n < *found || (n == *found && used >= fewest)) continue;
    best = row;
    *found = n;
    fewest = used;
  }
  if (best >= 0) match(s, best, r, pages);
  return best;
}

static void admit(Scheduler *s, Request *r, int row, const int32_t *pages, int found) {
  r->row = row;
  r->slot = 0;
  while (s->slot[row * s->options.requests + r->slot]) r->slot++;
  s->slot[row * s->options.requests + r->slot] = r;
  s->running++;
  for (int i = 0; i < found; i++) {
    page_use(&s->pool[row], pages[i]);
    vec_push(&r->pages, pages[i]);
  }
  r->done = r->begin + (int64_t)found * s->options.page;
  s->reused += (int64_t)found * s->options.page;
  if (r->reused < 0) r->reused = (int64_t)found * s->options.page;
}

// First come, first served: who does not fit holds up those after it.
static void plan_waiting(Scheduler *s) {
  int32_t *pages = xcalloc((size_t)pages_for(s, s->options.context) + 1, sizeof *pages);
  while (s->waiting.count) {
    Request *r = s->waiting.data[0];
    int found, row = choose_row(s, r, pages, &found);
    if (row < 0 || has_share(s, row)) break;
    memmove(s->waiting.data, s->waiting.data + 1, sizeof *s->waiting.data * (size_t)--s->waiting.count);
    admit(s, r, row, pages, found);
    add_prompt(s, r);
  }
  free(pages);
}

static void count_tokens(Scheduler *s) {
  s->tick.tokens = 0;
  for (int row = 0; row < s->options.rows; row++)
    if (s->tokens[row] > s->tick.tokens) s->tick.tokens = s->tokens[row];
}

static void plan_once(Scheduler *s, int prompt_tokens) {
  Request **all = xcalloc((size_t)s->options.requests, sizeof(Request *));
  s->tick.parts.count = 0;
  s->tick.decodes = false;
  memset(s->tokens, 0, sizeof *s->tokens * (size_t)s->options.rows);
  memset(s->logits, 0, sizeof *s->logits * (size_t)s->options.rows);
  memset(s->parts, 0, sizeof *s->parts * (size_t)s->options.rows);
  s->limit = s->options.tokens;
  for (int row = 0; row < s->options.rows; row++) plan_decodes(s, row, all);
  count_tokens(s);
  if (s->tick.decodes && s->tick.tokens + prompt_tokens < s->limit) s->limit = s->tick.tokens + prompt_tokens;
  for (int row = 0; row < s->options.rows; row++) {
    int n = free_of(s, row, all);
    for (int i = 0; i < n; i++)
      if (!decodes(all[i]) && !has_share(s, row)) add_prompt(s, all[i]);
  }
  plan_waiting(s);
  count_tokens(s);
  free(all);
}

static void begin_parts(Scheduler *s) {
  for (int i = 0; i < s->tick.parts.count; i++) {
    const TickPart *part = &s->tick.parts.data[i];
    part->request->drawing = part->drawn > 0;
    s->drawing += part->drawn > 0;
  }
}

// Prompts that hold all pages together and lack one each: the youngest leaves.
bool scheduler_plan(Scheduler *s, int prompt_tokens) {
  for (plan_once(s, prompt_tokens); !s->tick.tokens && s->running && !s->drawing; plan_once(s, prompt_tokens)) {
    int running = s->running;
    for (int row = 0; row < s->options.rows; row++) {
      Request *r = youngest(s, row);
      if (r) preempt(s, r);
    }
    CHECK(running > s->running);
  }
  CHECK(s->tick.tokens || s->drawing || (!s->running && !s->waiting.count), "requests wait for each other");
  begin_parts(s);
  return s->tick.tokens > 0;
}

// ---- after a tick

bool request_ends_with(const Request *r, int32_t id) {
  for (int i = 0; i < r->options.end_count; i++)
    if (r->options.ends[i] == id) return true;
  return false;
}

bool scheduler_accepts(const TickPart *part, int k, int32_t id) {
  const Request *r = part->request;
  int64_t drawn = r->ids.count - r->options.count + k;
  if (id < 0 || request_ends_with(r, id) || drawn >= r->options.most) return false;
  return k < part->drawn - part->scores && FAULT(guesses_are_right, part->draft[k - 1] == id, true);
}

void scheduler_took(Scheduler *s, TickPart *part, const int32_t *ids, int count) {
  Request *r = part->request;
  int64_t from = r->done;
  s->drawing -= r->drawing;
  r->drawing = false;
  if (r->end) { // cancelled meanwhile
    leave(s, r);
    return;
  }
  int right = FAULT(rejected_guesses_are_done, count > 1 ? count - 1 : 0, part->drafts);
  r->done += part->tokens - part->drafts + right;
  if (part->scores) r->scored = from + part->scores;
  for (int i = 0; i < count; i++) {
    if (ids[i] < 0 || request_ends_with(r, ids[i])) {
      if (r->done > r->ids.count) r->done = r->ids.count;
      keep_pages(s, r, from);
      end_request(s, r, ids[i] < 0 ? REQUEST_BROKEN : REQUEST_STOPPED);
      return;
    }
    vec_push(&r->ids, ids[i]);
  }
  keep_pages(s, r, from);
  if (r->ids.count - r->options.count >= r->options.most) end_request(s, r, REQUEST_IS_FULL);
}
