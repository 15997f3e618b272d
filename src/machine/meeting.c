// Who waits for whom in collectives.
#include "machine/meeting.h"

void meetings_make(Meetings *m, int groups) {
  *m = (Meetings){.unused = NULL};
  m->of_group = arena_array(&m->arena, Meeting *, groups);
}

void meetings_free(Meetings *m) { arena_free(&m->arena); }

Meeting *meeting_find(Meetings *m, int group, int node, int number, int of) {
  for (Meeting *at = m->of_group[group]; at; at = at->next)
    if (at->node == node && at->number == number) return at;
  Meeting *made = m->unused ? m->unused : arena_array(&m->arena, Meeting, 1);
  if (m->unused) m->unused = m->unused->next;
  int room = made->room, *member = made->member;
  if (room < of) member = arena_array(&m->arena, int, room = of);
  *made = (Meeting){
      .node = node, .number = number, .of = of, .member = member, .room = room, .next = m->of_group[group]};
  return m->of_group[group] = made;
}

int meeting_arrive(Meeting *meeting, int rank, double time) {
  meeting->member[meeting->arrived] = rank;
  if (!meeting->arrived++ || time >= meeting->latest) meeting->latest = time, meeting->last = rank;
  return meeting->arrived == meeting->of;
}

void meeting_leave(Meetings *m, int group, Meeting *meeting) {
  if (++meeting->left < meeting->of) return;
  Meeting **at = &m->of_group[group];
  while (*at != meeting) at = &(*at)->next;
  *at = meeting->next;
  meeting->next = m->unused;
  m->unused = meeting;
}
