// Notes in files, written whole or not at all.
#include "elastic/rescue_folder.h"
#include "base/fault.h"
#include "base/file.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void rescue_note_free(RescueNote *note) { vec_free(&note->kept); }

void rescue_notes_free(RescueNotes *notes) {
  for (int i = 0; i < notes->count; i++) rescue_note_free(&notes->data[i]);
  vec_free(notes);
}

int rescue_ranks(const RescueNotes *notes) {
  int ranks = 0;
  for (int i = 0; i < notes->count; i++) ranks += notes->data[i].count;
  return ranks;
}

static bool has(const RescueNotes *notes, int rank, int64_t step) {
  for (int i = 0; i < notes->count; i++)
    for (int k = 0; k < notes->data[i].kept.count; k++)
      if (notes->data[i].kept.data[k].rank == rank && notes->data[i].kept.data[k].step == step) return true;
  return false;
}

bool rescue_is_home(const RescueNotes *notes, int rank, int64_t step) {
  for (int i = 0; i < notes->count; i++) {
    const RescueNote *n = &notes->data[i];
    for (int k = 0; k < n->kept.count && rank >= n->first && rank < n->first + n->count; k++)
      if (n->kept.data[k].rank == rank && n->kept.data[k].step == step) return true;
  }
  return false;
}

int64_t rescue_newest(const RescueNotes *notes) {
  int64_t newest = -1;
  for (int i = 0; i < notes->count; i++)
    for (int k = 0; k < notes->data[i].kept.count; k++) {
      int64_t step = notes->data[i].kept.data[k].step;
      int rank = 0;
      while (rank < notes->data[i].mesh && FAULT(step_of_some_ranks_is_saved, has(notes, rank, step), 1)) rank++;
      if (rank == notes->data[i].mesh && step > newest) newest = step;
    }
  return newest;
}

// Files --------------------------------------------------------------------------------------------------------------

static char *folder_path(const RescueFolder *f) {
  return f->lost ? xformat("%s/memory-%s-%d-without-%d", f->run_folder, f->job, f->round, f->lost)
                 : xformat("%s/memory-%s-%d", f->run_folder, f->job, f->round);
}

static int write_file(const RescueFolder *f, const char *name, const char *text, Error *error) {
  char *folder = folder_path(f), *path = xformat("%s/%s", folder, name);
  AtomicFile file;
  int code = folder_create(folder, error);
  if (!code) code = file_begin(&file, path, error);
  if (!code) {
    fputs(text, file.stream); // commit sees an error
    code = file_commit(&file, error);
  }
  free(path);
  free(folder);
  return code;
}

int rescue_folder_write(const RescueFolder *f, const RescueNote *note, Error *error) {
  char *text = xformat("%d %d %d", note->first, note->count, note->mesh), *name = xformat("ranks-%d", note->first);
  for (int i = 0; i < note->kept.count; i++) {
    char *more = xformat("%s\n%d %" PRId64, text, note->kept.data[i].rank, note->kept.data[i].step);
    free(text);
    text = more;
  }
  int code = write_file(f, name, text, error);
  free(name);
  free(text);
  return code;
}

static void read_note(const char *path, RescueNotes *notes) {
  enum { MOST = 1 << 20 };
  char *text = NULL;
  int at = 0, n;
  RescueNote note = {0};
  RescueKept kept;
  Error ignored = {0};
  if (file_read(path, MOST, &text, NULL, &ignored)) return;
  if (sscanf(text, "%d %d %d%n", &note.first, &note.count, &note.mesh, &at) == 3) {
    for (; sscanf(text + at, "%d %" SCNd64 "%n", &kept.rank, &kept.step, &n) == 2; at += n) vec_push(&note.kept, kept);
    vec_push(notes, note);
  }
  free(text);
}

void rescue_folder_read(const RescueFolder *f, RescueNotes *notes) {
  char *folder = folder_path(f);
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    int first, end = 0;
    if (sscanf(e->d_name, "ranks-%d%n", &first, &end) != 1 || e->d_name[end]) continue;
    char *path = xformat("%s/%s", folder, e->d_name);
    read_note(path, notes);
    free(path);
  }
  if (d) closedir(d);
  free(folder);
}

int rescue_folder_decide(const RescueFolder *f, int64_t step, Error *error) {
  char *text = xformat("%" PRId64, step);
  int code = write_file(f, "step", text, error);
  free(text);
  return code;
}

int rescue_folder_decision(const RescueFolder *f, int64_t *step) {
  char *folder = folder_path(f), *path = xformat("%s/step", folder), text[64];
  file_peek(path, text, sizeof text);
  int found = sscanf(text, "%" SCNd64, step) == 1 ? 1 : file_exists(folder) ? 0 : -1;
  free(path);
  free(folder);
  return found;
}

void rescue_folder_fail(const RescueFolder *f) {
  Error ignored = {0};
  write_file(f, "failed", "", &ignored);
}

bool rescue_folder_has_failed(const RescueFolder *f) {
  char *folder = folder_path(f), *path = xformat("%s/failed", folder);
  bool failed = file_exists(path);
  free(path);
  free(folder);
  return failed;
}

void rescue_folder_remove(const RescueFolder *f) {
  char *folder = folder_path(f);
  folder_remove(folder, NULL);
  free(folder);
}

// "memory-JOB-ROUND", or with "-without-N" behind it.
static bool is_of_a_round(const char *name) {
  int end = 0, longer = 0;
  sscanf(name, "memory-%*39[^-]-%*d%n-without-%*d%n", &end, &longer);
  return end && (!name[end] || (longer && !name[longer]));
}

void rescue_folder_remove_left(const char *run_folder) {
  DIR *d = run_folder ? opendir(run_folder) : NULL;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (FAULT(left_notes_stay, !is_of_a_round(e->d_name), true)) continue;
    char *path = xformat("%s/%s", run_folder, e->d_name);
    folder_remove(path, NULL);
    free(path);
  }
  if (d) closedir(d);
}
