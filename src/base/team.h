// A rank's thread team: the caller and n-1 sleeping workers divide numbered units of work; teams of one process may
// help each other. No OpenMP, nothing spins for long.
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct Team Team;
typedef struct TeamGroup TeamGroup;
enum { TEAM_MOST_HELPERS = 32 }; // threads of other teams that work on one team's job

// threads >= 1; 1 makes a team that runs everything in the caller. PLAIT_FAILED where a limit refuses that many
// threads; *team is NULL then.
int team_create(int threads, Team **team, Error *error);
void team_destroy(Team *team); // NULL is fine
// The most threads that work on a job at once, helpers of other teams included; slots are numbered below it. NULL
// counts as 1.
int team_slots(const Team *team);
// How many would work on a job that began now: for how finely to cut it. Helpers come and go, so that it changes
// between calls.
int team_size(const Team *team);

// Calls task(argument, i) for i in [0, tasks) on the team's threads, in any order; returns when all are done.
// Which thread runs a task must not influence results. team may be NULL. Not reentrant.
void team_run(Team *team, int tasks, void (*task)(void *argument, int i), void *argument);
// The same with a slot in [0, team_slots): no slot is in two threads at once, so that it may own a part of some memory.
void team_each(Team *team, int64_t units, void (*body)(void *argument, int slot, int64_t unit), void *argument);

// Helping ------------------------------------------------------------------------------------------------------------
// Teams of a group take units of each other's jobs while their own caller has nothing to do but wait. A unit must not
// wait for anything, least of all for the helper.

// For `teams` teams; at most `helpers` (and at most TEAM_MOST_HELPERS) threads of others work on a team's job. Destroy
// it after its teams.
TeamGroup *team_group_create(int teams, int helpers);
void team_group_destroy(TeamGroup *group); // NULL is fine
int team_create_in(TeamGroup *group, int threads, Team **team, Error *error); // group NULL: as team_create
// Each thread of the team does one unit of another team's job, if there is one: 1, else 0. Not while the team runs a
// job.
int team_help(Team *team);
