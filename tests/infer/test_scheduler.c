// tier 1
// The scheduler with a model that is a hash of what it finds in the cache: a request draws the same tokens alone and
// beside others, whatever the pages, chunks, guesses and prefixes are. And the pages, against a list of texts.
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/philox.h"
#include "infer/scheduler.h"
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 5, END = 4, MOST_PROMPT = 40, MOST_TOKENS = 60 };

// ---- a model

// The rows of the cache, (rows, pages · page); a poisoned place matches no token.
typedef struct Model { Scheduler *s; int32_t *cache; } Model;

static int32_t *place(const Model *m, const Request *r, int64_t token) {
  const SchedulerOptions *o = &m->s->options;
  int64_t position = token - r->begin;
  assert_true(position / o->page < r->pages.count);
  return m->cache + (int64_t)r->row * o->pages * o->page + r->pages.data[position / o->page] * o->page +
         position % o->page;
}

static int32_t next_of(uint64_t hash, uint64_t seed, int64_t position) {
  uint32_t out[4];
  philox4x32(philox_key(seed, 0, hash), (uint32_t)position, 0, 0, 0, out);
  return (int32_t)(out[0] % 100 < 3 ? END : out[0] / 100 % END); // few other ids, so that texts repeat themselves
}

static uint64_t step(uint64_t hash, int32_t token) { return (hash ^ (uint64_t)(uint32_t)token) * 0x100000001b3u; }

// As attention does, from the keys that the page table leads to; only the last 3 are different from text to text.
static int32_t draw(const Model *m, const Request *r, int64_t last, int64_t position) {
  uint64_t hash = 0, recent = 0;
  for (int64_t t = r->begin; t <= last; t++) {
    int32_t token = *place(m, r, t);
    assert_true(token >= 0 && token <= VOCAB);
    hash = step(hash, token);
    if (last - t < 3) recent = step(recent, token);
  }
  return next_of(hash % 3 ? recent : hash, r->options.sample.seed, position / 4);
}

static void write_tokens(Model *m) {
  Scheduler *s = m->s;
  int32_t token[MOST_PROMPT + MOST_TOKENS + REQUEST_MOST_DRAFTS];
  int tokens[8] = {0};
  for (int i = 0; i < s->tick.parts.count; i++) {
    const TickPart *p = &s->tick.parts.data[i];
    int known = p->tokens - p->drafts;
    for (int k = 0; k < p->tokens; k++) {
      token[k] = k < known ? p->request->ids.data[p->from + k] : p->draft[k - known];
      *place(m, p->request, p->from + k) = token[k];
    }
    tokens[p->request->row] += p->tokens;
  }
  for (int row = 0; row < s->options.rows; row++) assert_true(tokens[row] <= s->options.tokens);
}

// A part of a tick that has run, and what was drawn for it.
typedef struct Ran { TickPart part; int count; int32_t ids[REQUEST_MOST_DRAFTS + 1]; } Ran;

static Ran run_part(Model *m, const TickPart *p) {
  Ran ran = {.part = *p};
  for (bool more = p->drawn > 0; more; more = scheduler_accepts(p, ran.count, ran.ids[ran.count - 1])) {
    ran.ids[ran.count] =
        draw(m, p->request, p->from + p->tokens - p->drawn + ran.count, p->request->ids.count + ran.count);
    ran.count++;
  }
  return ran;
}

static void take(Model *m, Ran *ran) { scheduler_took(m->s, &ran->part, ran->ids, ran->count); }

static void run_tick(Model *m) {
  write_tokens(m);
  for (int i = 0; i < m->s->tick.parts.count; i++) {
    Ran ran = run_part(m, &m->s->tick.parts.data[i]);
    take(m, &ran);
  }
}

// Ticks that have run, as all do in the order of their plans, and of which the scheduler has not heard.
enum { MOST_UNDER_WAY = 4 };
typedef struct UnderWay { int ticks; Vec(Ran) ran[MOST_UNDER_WAY]; } UnderWay;

static void begin_tick(Model *m, UnderWay *u) {
  int at = u->ticks++;
  write_tokens(m);
  u->ran[at].count = 0;
  for (int i = 0; i < m->s->tick.parts.count; i++) {
    Ran ran = run_part(m, &m->s->tick.parts.data[i]);
    if (ran.part.drawn) vec_push(&u->ran[at], ran);
    else take(m, &ran);
  }
}

static void end_tick(Model *m, UnderWay *u) {
  for (int i = 0; i < u->ran[0].count; i++) take(m, &u->ran[0].data[i]);
  u->ticks--;
  for (int at = 0; at < u->ticks; at++) {
    u->ran[at].count = 0;
    for (int i = 0; i < u->ran[at + 1].count; i++) vec_push(&u->ran[at], u->ran[at + 1].data[i]);
  }
}

static void poison(const Model *m) {
  const SchedulerOptions *o = &m->s->options;
  for (int row = 0; row < o->rows; row++)
    for (int page = 0; page < o->pages; page++)
      for (int i = 0; i < o->page && !m->s->pool[row].page[page].users && !m->s->pool[row].page[page].kept; i++)
        m->cache[((int64_t)row * o->pages + page) * o->page + i] = -1;
}

static void model_begin(Model *m, Scheduler *s, const SchedulerOptions *o) {
  scheduler_create(s, o);
  *m = (Model){s, xcalloc((size_t)(o->rows * o->pages * o->page), sizeof(int32_t))};
  poison(m);
}

static void model_end(Model *m) {
  scheduler_destroy(m->s);
  free(m->cache);
}

// ---- requests alone and together

typedef struct Text { RequestOptions options; int32_t prompt[MOST_PROMPT]; Vec(int32_t) ids; RequestEnd end; } Text;

static int pick(uint64_t seed, int *at, int from, int to) {
  uint32_t r[4];
  philox4x32(philox_key(seed, 0, 7), (uint32_t)(*at)++, 0, 0, 0, r);
  return from + (int)(r[0] % (uint32_t)(to - from + 1));
}

// Prompts of a few stems, so that they share prefixes.
static void make_text(Text *t, int number) {
  int at = 0, stem = pick((uint64_t)number, &at, 0, 3), n = pick((uint64_t)number, &at, 1, MOST_PROMPT), same = 0;
  for (int i = 0; i < n; i++)
    t->prompt[i] = next_of((uint64_t)(i < 25 + stem ? stem : 1000 + number), 9, i) % END, same++;
  static const int32_t ends[] = {END};
  t->options = (RequestOptions){.prompt = t->prompt,
                                .count = n,
                                .most = pick((uint64_t)number, &at, 1, MOST_TOKENS),
                                .ends = ends,
                                .end_count = 1,
                                .logprobs = -1,
                                .sample.seed = (uint64_t)number % 3};
}

static void keep(Text *t, const Request *r) {
  for (int i = 0; i < r->ids.count; i++) vec_push(&t->ids, r->ids.data[i]);
  t->end = r->end;
}

static void run_alone(Text *t, const SchedulerOptions *like) {
  SchedulerOptions o = {.rows = 1, .requests = 1, .tokens = 1000, .page = like->context, .pages = 1,
                        .context = like->context};
  Scheduler s;
  Model m;
  model_begin(&m, &s, &o);
  Request *r = scheduler_submit(&s, &t->options);
  while (!r->end) {
    assert_true(scheduler_plan(&s, 1000));
    run_tick(&m);
    poison(&m);
  }
  keep(t, r);
  scheduler_free(&s, r);
  model_end(&m);
}

enum { TEXTS = 120 };
static int full; // times that a pipeline was

static void check_together(const SchedulerOptions *o, uint64_t seed, Scheduler *counted) {
  static Text alone[TEXTS];
  Scheduler s;
  Model m;
  Request *open[TEXTS] = {NULL};
  UnderWay under_way = {0};
  int at = 0, next = 0, ended = 0, most = o->in_flight ? o->in_flight : 1;
  memset(alone, 0, sizeof alone);
  model_begin(&m, &s, o);
  for (int i = 0; i < TEXTS; i++) {
    make_text(&alone[i], i);
    run_alone(&alone[i], o);
  }
  while (ended < TEXTS) {
    for (int n = pick(seed, &at, -3, 3); n > 0 && next < TEXTS; n--, next++)
      open[next] = scheduler_submit(&s, &alone[next].options);
    if (pick(seed, &at, 0, 20) == 0 && next) { // one that nobody wants any more
      Request *r = open[pick(seed, &at, 0, next - 1)];
      if (r) scheduler_cancel(&s, r);
    }
    while (under_way.ticks < most && scheduler_plan(&s, pick(seed, &at, 1, o->tokens))) {
      begin_tick(&m, &under_way);
      poison(&m);
    }
    full += most > 1 && under_way.ticks == most;
    if (under_way.ticks) end_tick(&m, &under_way);
    poison(&m);
    for (int i = 0; i < next; i++) {
      if (!open[i] || !open[i]->end || open[i]->drawing) continue;
      const Text *t = &alone[i];
      assert_true(open[i]->ids.count <= t->ids.count);
      assert_memory_equal(open[i]->ids.data, t->ids.data, sizeof(int32_t) * (size_t)open[i]->ids.count);
      if (open[i]->end != REQUEST_CANCELLED) {
        assert_int_equal(open[i]->ids.count, t->ids.count);
        assert_int_equal(open[i]->end, t->end);
      }
      scheduler_free(&s, open[i]);
      open[i] = NULL;
      ended++;
    }
  }
  assert_true(!scheduler_plan(&s, 1) && !s.running && !s.waiting.count);
  for (int row = 0; row < o->rows; row++) assert_int_equal(s.pool[row].unused, o->pages);
  counted->preempted += s.preempted;
  counted->reused += s.reused;
  for (int i = 0; i < TEXTS; i++) vec_free(&alone[i].ids);
  for (int i = 0; i < MOST_UNDER_WAY; i++) vec_free(&under_way.ran[i]);
  model_end(&m);
}

static void same_text_alone_and_beside_others(void **state) {
  const SchedulerOptions table[] = {
      {.rows = 1, .requests = 8, .tokens = 16, .page = 4, .pages = 400, .context = 100},
      {.rows = 1, .requests = 8, .tokens = 16, .page = 4, .pages = 400, .context = 100, .prefix = true},
      {.rows = 1, .requests = 8, .tokens = 64, .page = 4, .pages = 30, .context = 100, .prefix = true},
      {.rows = 1, .requests = 8, .tokens = 40, .page = 4, .pages = 400, .context = 100, .speculate = 4},
      {.rows = 3, .requests = 3, .tokens = 7, .page = 8, .pages = 14, .context = 100, .prefix = true, .speculate = 3},
      {.rows = 2, .requests = 4, .tokens = 9, .page = 3, .pages = 12, .context = 30, .prefix = true, .speculate = 16},
      {.rows = 1, .requests = 2, .tokens = 2, .page = 1, .pages = 2, .context = 1, .prefix = true, .speculate = 2},
      {.rows = 1, .requests = 5, .tokens = 11, .page = 2, .pages = 6, .context = 11, .prefix = true, .speculate = 1},
      {.rows = 1, .requests = 8, .tokens = 16, .page = 4, .pages = 30, .context = 100, .prefix = true, .in_flight = 2},
      {.rows = 3, .requests = 3, .tokens = 7, .page = 8, .pages = 14, .context = 100, .prefix = true, .speculate = 3,
       .in_flight = 3},
      {.rows = 1, .requests = 5, .tokens = 11, .page = 2, .pages = 6, .context = 11, .prefix = true, .in_flight = 4},
      {.rows = 1, .requests = 1, .tokens = 9, .page = 4, .pages = 25, .context = 100, .in_flight = 2}};
  Scheduler counted = {0};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    for (uint64_t seed = 0; seed < 3; seed++) check_together(&table[i], seed, &counted);
  print_message("%d preempted, %d tokens reused\n", (int)counted.preempted, (int)counted.reused);
  assert_true(counted.preempted > 100 && counted.reused > 1000);
  assert_true(full > 1000);
}

// A stream that decodes has its token in each tick, whatever prompts come; these have the rest.
static void decodes_come_first(void **state) {
  const SchedulerOptions o = {.rows = 1, .requests = 4, .tokens = 32, .page = 4, .pages = 400, .context = 200};
  Scheduler s;
  int32_t prompt[150] = {0};
  scheduler_create(&s, &o);
  Request *first = scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = 1, .most = 100});
  assert_true(scheduler_plan(&s, 8));
  scheduler_took(&s, &s.tick.parts.data[0], (int32_t[]){1}, 1);
  Request *second = scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = 150, .most = 2});
  for (int done = 0; done < 150; done += 8) {
    assert_true(scheduler_plan(&s, 8));
    assert_int_equal(s.tick.parts.count, 2);
    assert_ptr_equal(s.tick.parts.data[0].request, first);
    assert_int_equal(s.tick.tokens, done + 8 < 150 ? 9 : 150 - done + 1);
    if (done) assert_int_equal(scheduler_decoding(&s), 1);
    int last = second->ids.count == second->done + s.tick.parts.data[1].tokens;
    scheduler_took(&s, &s.tick.parts.data[0], (int32_t[]){1}, 1);
    scheduler_took(&s, &s.tick.parts.data[1], (int32_t[]){2}, last);
  }
  assert_int_equal(second->ids.count, 151);
  assert_int_equal(scheduler_decoding(&s), 2);
  scheduler_destroy(&s);
}

// Each tick in flight has its share of the requests; a prompt's parts follow each other in ticks that are under way.
static void ticks_in_flight_share_requests(void **state) {
  const SchedulerOptions o = {.rows = 1, .requests = 6, .tokens = 64, .page = 4, .pages = 400, .context = 200,
                              .in_flight = 2};
  Scheduler s;
  int32_t prompt[150] = {0};
  scheduler_create(&s, &o);
  for (int i = 0; i < 6; i++) scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = 2, .most = 100});
  for (int tick = 0; tick < 2; tick++) {
    assert_true(scheduler_plan(&s, 64));
    assert_int_equal(s.tick.parts.count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(s.tick.parts.data[i].request->number, 3 * tick + i);
  }
  assert_false(scheduler_plan(&s, 64)); // all are under way
  scheduler_destroy(&s);
  scheduler_create(&s, &o);
  Request *r = scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = 150, .most = 1});
  for (int done = 0; done < 128; done += 64) {
    assert_true(scheduler_plan(&s, 64));
    assert_false(r->drawing);
    scheduler_took(&s, &s.tick.parts.data[0], NULL, 0);
  }
  assert_true(scheduler_plan(&s, 64));
  assert_true(r->drawing);
  assert_false(scheduler_plan(&s, 64));
  scheduler_cancel(&s, r);
  assert_true(r->end == REQUEST_CANCELLED && r->row == 0 && s.pool[0].unused < o.pages);
  scheduler_took(&s, &s.tick.parts.data[0], NULL, 0);
  assert_true(r->row < 0 && !s.running && s.pool[0].unused == o.pages);
  scheduler_free(&s, r);
  scheduler_destroy(&s);
}

// Who comes later does not overtake, though there would be room.
static void first_come_first_served(void **state) {
  const SchedulerOptions o = {.rows = 1, .requests = 4, .tokens = 64, .page = 4, .pages = 10, .context = 40};
  Scheduler s;
  int32_t prompt[40] = {0};
  scheduler_create(&s, &o);
  Request *r[3];
  for (int i = 0; i < 3; i++)
    r[i] = scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = i == 1 ? 24 : 20, .most = 5});
  assert_true(scheduler_plan(&s, 64));
  assert_true(r[0]->row == 0 && r[1]->row < 0 && r[2]->row < 0); // 5 pages, then 6, then 5
  scheduler_cancel(&s, r[1]);
  scheduler_took(&s, &s.tick.parts.data[0], (int32_t[]){1}, 1);
  assert_true(scheduler_plan(&s, 64));
  assert_true(r[2]->row < 0); // the first has a sixth page now
  scheduler_free(&s, r[1]);
  scheduler_destroy(&s);
}

static void many_requests_leave_nothing(void **state) {
  const SchedulerOptions o = {.rows = 1, .requests = 8, .tokens = 64, .page = 4, .pages = 20, .context = 40,
                              .prefix = true, .speculate = 2};
  Scheduler s;
  Model m;
  size_t after_hundred = 0;
  model_begin(&m, &s, &o);
  Request *open[8] = {NULL};
  for (int number = 0; number < 100000;) {
    for (int i = 0; i < 8; i++) {
      if (open[i] && !open[i]->end) continue;
      if (open[i]) scheduler_free(&s, open[i]);
      int32_t prompt[6] = {number % 3, number % 5 % 4, number % 4, 1, 2, 3};
      open[i] =
          scheduler_submit(&s, &(RequestOptions){.prompt = prompt, .count = 1 + number % 6, .most = 1 + number % 4});
      if (++number == 100) after_hundred = mallinfo2().arena;
    }
    assert_true(scheduler_plan(&s, 64));
    run_tick(&m);
  }
  size_t now = mallinfo2().arena; // pieces that are freed and kept for reuse come and go
  if (now > after_hundred + 150000) fail_msg("%zu bytes after 100,000 requests, %zu after 100", now, after_hundred);
  for (int i = 0; i < 8; i++)
    if (open[i]->end) scheduler_free(&s, open[i]);
  model_end(&m);
}

// ---- pages

static void pages_are_found_by_their_tokens(void **state) {
  PagePool p;
  page_pool_create(&p, 4, 2); // four chains for all: most texts collide
  for (int32_t text = 0; text < 40; text++) {
    int32_t first[] = {text, 1}, second[] = {2, text};
    assert_int_equal(page_match(&p, -1, first), -1);
    int32_t a = page_take(&p), b = page_take(&p);
    assert_int_equal(page_keep(&p, a, -1, first), a);
    assert_int_equal(page_keep(&p, b, a, second), b);
    assert_int_equal(page_match(&p, -1, first), a);
    assert_int_equal(page_match(&p, a, second), b);
    assert_int_equal(page_match(&p, b, second), -1);
    page_release(&p, b);
    page_release(&p, a);
    assert_int_equal(page_match(&p, -1, first), a); // until somebody takes it
    int32_t same = page_take(&p);
    assert_int_equal(page_keep(&p, same, -1, first), a); // which has the same content
    page_release(&p, a);
    assert_int_equal(p.unused, 4);
  }
  page_pool_destroy(&p);
}

// A page whose parent has other content now belongs to another text.
static void pages_of_a_parent_that_changed_are_lost(void **state) {
  PagePool p;
  page_pool_create(&p, 2, 1);
  int32_t one = 1, two = 2, three = 3;
  int32_t a = page_take(&p), b = page_take(&p);
  page_keep(&p, a, -1, &one);
  page_keep(&p, b, a, &two);
  page_release(&p, a); // before its child: it is taken first
  assert_int_equal(page_take(&p), a);
  page_keep(&p, a, -1, &three);
  assert_int_equal(page_match(&p, -1, &one), -1);
  assert_int_equal(page_match(&p, a, &two), -1); // it followed 1, not 3
  page_pool_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_text_alone_and_beside_others),
                                     cmocka_unit_test(decodes_come_first),
                                     cmocka_unit_test(ticks_in_flight_share_requests),
                                     cmocka_unit_test(first_come_first_served),
                                     cmocka_unit_test(many_requests_leave_nothing),
                                     cmocka_unit_test(pages_are_found_by_their_tokens),
                                     cmocka_unit_test(pages_of_a_parent_that_changed_are_lost)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
