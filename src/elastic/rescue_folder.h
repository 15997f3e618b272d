// Where the supervisors of a round say what their dead workers have left in memory, and which step is saved: a folder
// of run.dir with a file for each machine, which is removed at the end.
#pragma once
#include "base/error.h"
#include "base/vec.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct RescueKept { int rank; int64_t step; } RescueKept; // a complete image, of an own rank or another one

// Of one machine.
typedef struct RescueNote {
  int first, count; // its ranks
  int mesh;         // ranks that write parts; 0: nothing here says so
  Vec(RescueKept) kept;
} RescueNote;

typedef Vec(RescueNote) RescueNotes;

void rescue_note_free(RescueNote *note);
void rescue_notes_free(RescueNotes *notes);
int rescue_ranks(const RescueNotes *notes); // of the machines that have said something
// The newest step of which there is a complete image of each rank; -1: there is none.
int64_t rescue_newest(const RescueNotes *notes);
// Whether the machine of the rank has said that it has that step of it.
bool rescue_is_home(const RescueNotes *notes, int rank, int64_t step);

// lost: machines, since each loss lets the others agree anew.
typedef struct RescueFolder { const char *run_folder, *job; int round, lost; } RescueFolder;

int rescue_folder_write(const RescueFolder *folder, const RescueNote *note, Error *error);
void rescue_folder_read(const RescueFolder *folder, RescueNotes *notes); // those that are there
int rescue_folder_decide(const RescueFolder *folder, int64_t step, Error *error); // by the machine of rank 0
// 1: *step is what it says; 0: it has said nothing yet; -1: it has given up.
int rescue_folder_decision(const RescueFolder *folder, int64_t *step);
void rescue_folder_fail(const RescueFolder *folder); // a machine cannot write its parts
bool rescue_folder_has_failed(const RescueFolder *folder);
void rescue_folder_remove(const RescueFolder *folder);
// Those of rounds that have ended: whose leader died before it could remove its own. By the machine of rank 0, when a
// round begins.
void rescue_folder_remove_left(const char *run_folder);
