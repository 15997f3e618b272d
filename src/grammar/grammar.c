// Grammars: the state of one answer, the tokens that may follow it, and taking one of them.
#include "grammar/grammar.h"
#include "base/fault.h"
#include "grammar/mask_cache.h"
#include "grammar/threads.h"
#include "grammar/token_trie.h"
#include <string.h>

struct GrammarState {
  Frames frames;
  Thread now[MOST_THREADS], next[2 * MOST_THREADS];
  int count;
  Vec(Thread) pool; // of a walk along the trie: the places at each depth, one after another
  int *starts;      // (TOKEN_BYTES + 2) where those of each depth begin in it
  Vec(uint8_t) mask, rests, ranks;
  Vec(int) open;
};

GrammarState *grammar_begin(const Grammar *g) {
  GrammarState *s = xcalloc(1, sizeof *s);
  frames_begin(&s->frames, g);
  s->starts = xcalloc(TOKEN_BYTES + 2, sizeof *s->starts);
  ThreadSet first = {s->now, 0};
  threads_first(&s->frames, &first);
  s->count = first.count;
  return s;
}

GrammarState *grammar_copy(const GrammarState *state) {
  GrammarState *s = xcalloc(1, sizeof *s);
  frames_copy(&s->frames, &state->frames);
  s->starts = xcalloc(TOKEN_BYTES + 2, sizeof *s->starts);
  memcpy(s->now, state->now, (size_t)state->count * sizeof *s->now);
  s->count = state->count;
  return s;
}

void grammar_end(GrammarState *s) {
  if (!s) return;
  frames_free(&s->frames);
  vec_free(&s->pool);
  vec_free(&s->mask);
  vec_free(&s->rests);
  vec_free(&s->ranks);
  vec_free(&s->open);
  free(s->starts);
  free(s);
}

bool grammar_may_end(const GrammarState *s) {
  for (int i = 0; i < s->count; i++)
    if (thread_may_end(&s->frames, &s->now[i])) return true;
  return false;
}

bool grammar_take_bytes(GrammarState *s, const char *text, size_t bytes) {
  Thread *from = s->now, *to = s->next, first[MOST_THREADS];
  FramesMark mark = frames_mark(&s->frames);
  int count = s->count;
  memcpy(first, s->now, (size_t)count * sizeof *first);
  for (size_t i = 0; i < bytes; i++) {
    ThreadSet set = {to, 0};
    threads_step(&s->frames, from, count, (uint8_t)text[i], &set);
    count = set.count;
    Thread *other = from;
    from = to;
    to = other;
    if (count) continue;
    frames_return(&s->frames, mark);
    memcpy(s->now, first, (size_t)s->count * sizeof *first);
    return false;
  }
  if (from != s->now) memcpy(s->now, from, (size_t)count * sizeof *from);
  s->count = count;
  return true;
}

// Leaves only the places in text around JSON, where special tokens may stand.
static void keep_text(GrammarState *s) {
  int count = 0;
  for (int i = 0; i < s->count; i++)
    if (thread_is_text(&s->frames, &s->now[i])) s->now[count++] = s->now[i];
  s->count = count;
}

bool grammar_take(GrammarState *s, const TokenTrie *trie, int32_t id) {
  if (id < 0 || id >= trie->size) return false;
  TokenText token = token_text(trie, id);
  if (!token.bytes || token.bytes > TOKEN_BYTES) return false;
  if (!trie->special[id]) return grammar_take_bytes(s, token.text, token.bytes);
  Thread all[MOST_THREADS];
  int count = s->count;
  memcpy(all, s->now, (size_t)count * sizeof *all);
  keep_text(s);
  if (s->count && grammar_take_bytes(s, token.text, token.bytes)) return true;
  memcpy(s->now, all, (size_t)count * sizeof *all);
  s->count = count;
  return false;
}

// ---- masks: of tokens by their ranks, up to grammar_mask ------------------------------------------------------------

static void allow(const ByteTrie *trie, int node, uint8_t *allowed) {
  for (int r = trie->rank[node]; r < trie->rank[node + 1]; r++) allowed[r] = 1;
}

// Allows the texts that places lead along.
static void walk(GrammarState *s, const Thread *from, int count, const ByteTrie *trie, uint8_t *allowed) {
  s->pool.count = 0;
  for (int i = 0; i < count; i++) vec_push(&s->pool, from[i]);
  s->starts[0] = 0;
  s->starts[1] = count;
  for (int i = 0; i < trie->nodes;) {
    int d = trie->depth[i], begin = s->starts[d], end = s->starts[d + 1];
    vec_reserve(&s->pool, end + MOST_THREADS);
    ThreadSet to = {s->pool.data + end, 0};
    threads_step(&s->frames, s->pool.data + begin, end - begin, trie->byte[i], &to);
    s->starts[d + 2] = end + to.count;
    if (to.count) allow(trie, i++, allowed);
    else i = trie->skip[i];
  }
}

// Whether places lead along a text.
static bool leads_along(GrammarState *s, const Thread *first, TokenText token) {
  Thread *from = s->next, *to = s->next + MOST_THREADS;
  int count = 1;
  from[0] = *first;
  for (size_t k = 0; k < token.bytes && count; k++) {
    ThreadSet set = {to, 0};
    threads_step(&s->frames, from, count, (uint8_t)token.text[k], &set);
    count = set.count;
    to = from;
    from = set.data;
  }
  return count > 0;
}

// Which rests of tokens may follow.
static void look_at_rests(GrammarState *s, const Thread *closed, const TokenTrie *trie) {
  vec_reserve(&s->rests, trie->rest_count + 1);
  memset(s->rests.data, 0, (size_t)trie->rest_count);
  walk(s, closed, 1, &trie->rests, s->rests.data);
}

// Allows the tokens that end a key, which may be any but those that were there. Of most, only what follows the quote
// matters.
static void allow_key_closers(GrammarState *s, const Thread *key, const TokenTrie *trie, int place, uint8_t *allowed) {
  const StringAutomaton *a = thread_string(&s->frames, key);
  bool used = s->frames.frames.data[key->stack].used >= 0;
  bool is_other = !used && a->word_start[key->state] == a->word_start[key->state + 1]; // whatever comes
  int word = STRING_OTHER;
  Thread other = thread_after_other_key(&s->frames, key);
  look_at_rests(s, &other, trie);
  for (int i = 0; i < trie->closer_count[place]; i++) {
    const Closer *c = &trie->closers[place][i];
    if (!is_other && !c->again) {
      Thread at = *key;
      for (int k = 0; k < c->bytes; k++) thread_step_key(a, &at, (uint8_t)c->text[k]);
      word = thread_key_word(&s->frames, &at);
    }
    if (word == STRING_OTHER && (c->rest < 0 || !trie->rest_has_key[c->rest])) {
      if (c->rest < 0 || s->rests.data[c->rest]) allowed[c->token] = 1;
    } else if (word != STRING_REFUSED && leads_along(s, key, token_text(trie, trie->id[c->token])))
      allowed[c->token] = 1;
  }
}

enum { MASK_STAYS = 1, MASK_CLOSES = 2 }; // a token stays within the string; it ends the string where it may end

// The tokens with which a string continues that is not of any characters; and, where `open` is NULL, with which it
// ends. open: (count + 1) how many tokens of lower ranks are to be looked at.
static void walk_content(const StringAutomaton *a, const Thread *t, const TokenTrie *trie, const int *open,
                         uint8_t *mask) {
  const Closer *closers = trie->closers[a->chars.shape[t->place]];
  const ByteTrie *all = &trie->all;
  int closer = 0, end = trie->closer_count[a->chars.shape[t->place]];
  int states[TOKEN_BYTES + 1] = {t->state}, places[TOKEN_BYTES + 1] = {t->place};
  for (int i = 0; i < all->nodes;) {
    int d = all->depth[i], state = states[d], next = a->chars.next[places[d] * 256 + all->byte[i]];
    bool fits = next >= 0 && (!open || open[all->rank[all->skip[i]]] > open[all->rank[i]]);
    if (fits && next >= CHAR_DONE) {
      state = a->next[state * a->kinds + next - CHAR_DONE];
      next = 0;
      fits = state >= 0;
    } else if (fits) fits = string_is_live(a, state, next);
    else if (!open && all->byte[i] == '"' && !places[d] && a->out[state] != STRING_REFUSED) {
      while (closer < end && closers[closer].node < i) closer++;
      for (; closer < end && closers[closer].node < all->skip[i]; closer++) mask[closers[closer].token] = MASK_CLOSES;
    }
    if (!fits) {
      i = all->skip[i];
      continue;
    }
    states[d + 1] = state;
    places[d + 1] = next;
    allow(all, i++, mask);
  }
}

// The tokens of which all characters are of kinds that may follow a state.
static void look_at_class(GrammarState *s, const StringAutomaton *a, int state, const TokenTrie *trie, uint8_t *mask) {
  MaskKey key = {trie, (int)(a - s->frames.g->strings.data), -1 - a->class[state], 0};
  if (mask_cache_get(s->frames.g->cache, &key, mask, (size_t)trie->count)) return;
  int places[TOKEN_BYTES + 1] = {0};
  memset(mask, 0, (size_t)trie->count);
  for (int i = 0; i < trie->all.nodes;) {
    int d = trie->all.depth[i], next = a->chars.next[places[d] * 256 + trie->all.byte[i]];
    bool fits = next >= CHAR_DONE ? a->next[state * a->kinds + next - CHAR_DONE] >= 0
                                  : next >= 0 && string_is_live(a, state, next);
    places[d + 1] = next >= CHAR_DONE ? 0 : next;
    if (fits) allow(&trie->all, i++, mask);
    else i = trie->all.skip[i];
  }
  mask_cache_put(s->frames.g->cache, &key, mask, (size_t)trie->count);
}

// As walk_content, from between two characters: a token that needs no more characters than the run of the state has may
// follow if its class says so. Others are looked at, but for those that need more than may follow at all.
static void look_at_run(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *mask) {
  const StringAutomaton *a = thread_string(&s->frames, t);
  int run = a->run[t->state] < NEEDS_REFUSED ? a->run[t->state] : NEEDS_REFUSED - 1;
  int most = a->most[t->state] < NEEDS_REFUSED ? a->most[t->state] : NEEDS_REFUSED - 1;
  vec_reserve(&s->open, trie->count + 1);
  int *open = s->open.data;
  look_at_class(s, a, t->state, trie, mask);
  open[0] = 0;
  for (int r = 0; r < trie->count; r++) {
    mask[r] &= trie->needs[r] <= run;
    open[r + 1] = open[r] + (!mask[r] & (trie->needs[r] <= most));
  }
  if (open[trie->count]) walk_content(a, t, trie, open, mask);
  bool ends = false;
  for (int i = 0; i < trie->closer_count[0]; i++) {
    const Closer *c = &trie->closers[0][i];
    if (!c->again) {
      Thread at = *t;
      int k = 0;
      while (k < c->bytes && thread_step_content(a, &at, (uint8_t)c->text[k])) k++;
      ends = k == c->bytes && a->out[at.state] != STRING_REFUSED;
    }
    if (ends) mask[c->token] = MASK_CLOSES;
  }
}

static void look_at_content(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *mask) {
  memset(mask, 0, (size_t)trie->count);
  if (!t->place) look_at_run(s, t, trie, mask);
  else walk_content(thread_string(&s->frames, t), t, trie, NULL, mask);
}

// Allows the tokens that end a string, by what follows the quote. mask: NULL where the string has any characters.
static void allow_closers(GrammarState *s, const Thread *t, const TokenTrie *trie, const uint8_t *mask,
                          uint8_t *allowed) {
  const StringAutomaton *a = thread_string(&s->frames, t);
  int place = a->chars.shape[t->place];
  Thread closed = thread_closed(&s->frames, t);
  look_at_rests(s, &closed, trie);
  for (int i = 0; i < trie->closer_count[place]; i++) {
    const Closer *c = &trie->closers[place][i];
    int64_t all = (int64_t)t->count + c->characters;
    bool ends = mask ? mask[c->token] == MASK_CLOSES : all >= a->min && (a->max < 0 || all <= a->max);
    if (ends && (c->rest < 0 || s->rests.data[c->rest])) allowed[c->token] = 1;
  }
}

static void allow_content(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *allowed) {
  const StringAutomaton *a = thread_string(&s->frames, t);
  int place = a->chars.shape[t->place];
  if (a->any || a->others) {
    const uint8_t *needs = trie->needs + (size_t)place * (size_t)trie->count;
    int64_t room = a->any && a->max >= 0 ? a->max - t->count : NEEDS_REFUSED - 1;
    uint8_t most = (uint8_t)(room < NEEDS_REFUSED - 1 ? room : NEEDS_REFUSED - 1);
    for (int i = 0; i < trie->count; i++) allowed[i] |= needs[i] <= most;
    if (t->mode == IN_KEY) allow_key_closers(s, t, trie, place, allowed);
    else allow_closers(s, t, trie, NULL, allowed);
    return;
  }
  MaskKey key = {trie, (int)(a - s->frames.g->strings.data), FAULT(masks_are_of_any_state, t->state, 0), t->place};
  vec_reserve(&s->mask, trie->count + 1);
  if (!mask_cache_get(s->frames.g->cache, &key, s->mask.data, (size_t)trie->count)) {
    look_at_content(s, t, trie, s->mask.data);
    mask_cache_put(s->frames.g->cache, &key, s->mask.data, (size_t)trie->count);
  }
  for (int i = 0; i < trie->count; i++) allowed[i] |= s->mask.data[i] & MASK_STAYS;
  allow_closers(s, t, trie, s->mask.data, allowed);
}

// The tokens that may follow in free text: all but those in which the trigger comes and something else than its part.
static void look_at_text(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *mask) {
  const Node *n = &s->frames.g->nodes.data[t->node];
  int states[TOKEN_BYTES + 1] = {t->state}, counts[TOKEN_BYTES + 1] = {t->count};
  for (int i = 0; i < trie->all.nodes;) {
    int d = trie->all.depth[i], end = trie->all.skip[i];
    Thread at = {.state = states[d], .count = counts[d]};
    if (text_step(n, &at, trie->all.byte[i]) == 0) {
      states[d + 1] = at.state;
      counts[d + 1] = at.count;
      allow(&trie->all, i++, mask);
      continue;
    }
    for (int r = trie->all.rank[i]; r < trie->all.rank[end]; r++)
      mask[r] = leads_along(s, t, token_text(trie, trie->id[r]));
    i = end;
  }
}

static void allow_text(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *allowed) {
  MaskKey key = {trie, -1 - t->node, t->state, t->count};
  vec_reserve(&s->mask, trie->count + 1);
  if (!mask_cache_get(s->frames.g->cache, &key, s->mask.data, (size_t)trie->count)) {
    memset(s->mask.data, 0, (size_t)trie->count);
    look_at_text(s, t, trie, s->mask.data);
    mask_cache_put(s->frames.g->cache, &key, s->mask.data, (size_t)trie->count);
  }
  for (int i = 0; i < trie->count; i++) allowed[i] |= s->mask.data[i];
}

// Allows special tokens, in text around JSON.
static void allow_special(GrammarState *s, const Thread *t, const TokenTrie *trie, uint8_t *allowed) {
  for (int i = 0; i < trie->special_count; i++) {
    int id = trie->specials[i];
    TokenText token = token_text(trie, id);
    if (token.bytes && token.bytes <= TOKEN_BYTES && leads_along(s, t, token)) allowed[id] = 1;
  }
}

void grammar_mask(GrammarState *s, const TokenTrie *trie, uint8_t *allowed, bool *may_end) {
  FramesMark mark = frames_mark(&s->frames);
  Thread others[MOST_THREADS];
  int count = 0;
  vec_reserve(&s->ranks, trie->count + 1);
  uint8_t *ranks = s->ranks.data;
  memset(ranks, 0, (size_t)trie->count);
  for (int i = 0; i < s->count; i++) {
    const Thread *t = &s->now[i];
    if (thread_is_wide(&s->frames, t)) allow_content(s, t, trie, ranks);
    else if (t->mode == IN_TEXT && s->frames.g->nodes.data[t->node].free) allow_text(s, t, trie, ranks);
    else others[count++] = *t;
  }
  if (count) walk(s, others, count, &trie->all, ranks);
  ranks[trie->count] = 0;
  for (int i = 0; i < trie->size; i++) allowed[i] = ranks[trie->rank[i]];
  for (int i = 0; i < s->count; i++)
    if (thread_is_text(&s->frames, &s->now[i])) allow_special(s, &s->now[i], trie, allowed);
  frames_return(&s->frames, mark);
  *may_end = grammar_may_end(s);
}
