// A list of grammars, in the order of their last use.
#include "serve/grammar_store.h"
#include "base/fault.h"
#include "base/vec.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
  char *text; // NULL: it is kept for its users only
  Grammar *grammar;
  int users;
} Entry;

struct GrammarStore {
  pthread_mutex_t mutex;
  Vec(Entry) entries; // that which was used last is the last one
};

GrammarStore *grammar_store_create(void) {
  GrammarStore *s = xcalloc(1, sizeof *s);
  pthread_mutex_init(&s->mutex, NULL);
  return s;
}

void grammar_store_free(GrammarStore *s) {
  if (!s) return;
  for (int i = 0; i < s->entries.count; i++) {
    grammar_free(s->entries.data[i].grammar);
    free(s->entries.data[i].text);
  }
  vec_free(&s->entries);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

static void remove_at(GrammarStore *s, int i) {
  Entry *e = &s->entries.data[i];
  free(e->text);
  e->text = NULL;
  if (e->users) return;
  grammar_free(e->grammar);
  memmove(e, e + 1, sizeof *e * (size_t)(--s->entries.count - i));
}

static Entry *move_to_end(GrammarStore *s, int i) {
  Entry e = s->entries.data[i];
  memmove(&s->entries.data[i], &s->entries.data[i + 1], sizeof e * (size_t)(s->entries.count - 1 - i));
  s->entries.data[s->entries.count - 1] = e;
  return &s->entries.data[s->entries.count - 1];
}

static Grammar *find(GrammarStore *s, const char *text) {
  for (int i = s->entries.count - 1; i >= 0; i--) {
    const Entry *e = &s->entries.data[i];
    if (!e->text || strcmp(e->text, text) != 0) continue;
    Entry *found = move_to_end(s, i);
    found->users++;
    return found->grammar;
  }
  return NULL;
}

static void make_room(GrammarStore *s) {
  int kept = 0;
  int64_t cells = 0;
  for (int i = s->entries.count - 1; i >= 0; i--) {
    const Entry *e = &s->entries.data[i];
    if (!e->text) continue;
    kept++;
    cells += grammar_cells(e->grammar);
    if (kept > STORE_MOST || FAULT(grammars_pile_up, cells > STORE_CELLS, false)) remove_at(s, i);
  }
}

Grammar *grammar_store_find(GrammarStore *s, const char *text) {
  if (!s) return NULL;
  pthread_mutex_lock(&s->mutex);
  Grammar *g = find(s, text);
  pthread_mutex_unlock(&s->mutex);
  return g;
}

Grammar *grammar_store_add(GrammarStore *s, const char *text, Grammar *grammar) {
  if (!s) return grammar;
  pthread_mutex_lock(&s->mutex);
  Grammar *g = find(s, text);
  if (g) grammar_free(grammar);
  else {
    vec_push(&s->entries, (Entry){xstrdup(text), g = grammar, 1});
    make_room(s);
  }
  pthread_mutex_unlock(&s->mutex);
  return g;
}

void grammar_store_release(GrammarStore *s, Grammar *grammar) {
  if (!s) {
    grammar_free(grammar);
    return;
  }
  pthread_mutex_lock(&s->mutex);
  int i = 0;
  while (s->entries.data[i].grammar != grammar) i++;
  s->entries.data[i].users--;
  if (!s->entries.data[i].text) remove_at(s, i);
  pthread_mutex_unlock(&s->mutex);
}

int grammar_store_count(GrammarStore *s) {
  pthread_mutex_lock(&s->mutex);
  int count = s->entries.count;
  pthread_mutex_unlock(&s->mutex);
  return count;
}
