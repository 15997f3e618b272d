// Two tables of lists, in order of arrival.
#include "comm/net_match.h"
#include "base/fault.h"
#include "base/hash.h"
#include <stdbool.h>
#include <stddef.h>

static MatchList *list_of(MatchList *table, uint64_t tag) { return &table[hash_mix(tag, 0) % MATCH_LISTS]; }

static void append(MatchList *list, MatchEntry *entry) {
  entry->list = list;
  entry->next = NULL;
  entry->before = list->last;
  if (list->last) list->last->next = entry;
  else list->first = entry;
  list->last = entry;
}

void match_forget(MatchEntry *entry) {
  MatchList *list = entry->list;
  if (!list) return;
  if (entry->before) entry->before->next = entry->next;
  else list->first = entry->next;
  if (entry->next) entry->next->before = entry->before;
  else list->last = entry->before;
  entry->list = NULL;
}

// The first of the tag whose sender is this one. A receive from any rank is everybody's.
static MatchEntry *take(MatchList *list, uint64_t tag, int sender) {
  for (MatchEntry *e = list->first; e; e = e->next)
    if (e->tag == tag && (sender == MATCH_ANY || e->sender == MATCH_ANY ||
                          FAULT(any_sender_matches, e->sender == sender, true)))
      return match_forget(e), e;
  return NULL;
}

MatchEntry *match_receive(Match *m, MatchEntry *receive) {
  MatchEntry *message = take(list_of(m->messages, receive->tag), receive->tag, receive->sender);
  receive->list = NULL;
  if (!message) append(list_of(m->receives, receive->tag), receive);
  return message;
}

MatchEntry *match_message(Match *m, uint64_t tag, int sender) {
  return take(list_of(m->receives, tag), tag, sender);
}

void match_keep(Match *m, MatchEntry *message) { append(list_of(m->messages, message->tag), message); }
