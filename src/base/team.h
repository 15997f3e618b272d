// A rank's thread team: the caller and n-1 sleeping workers share out numbered tasks. No OpenMP, nothing spins for long.
#pragma once

typedef struct Team Team;

// threads >= 1; 1 makes a team that runs everything in the caller. Dies when threads cannot be started.
Team *team_create(int threads);
void team_destroy(Team *team); // NULL is fine
int team_size(const Team *team); // NULL counts as 1

// Calls task(argument, i) for i in [0, tasks) on the team's threads, in any order; returns when all are done.
// Which thread runs a task must not influence results. team may be NULL. Not reentrant.
void team_run(Team *team, int tasks, void (*task)(void *argument, int i), void *argument);
