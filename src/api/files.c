// Tokenizers and checkpoints for other programs, by functions alone (include/plait/files.h).
#include "plait/files.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

// Errors --------------------------------------------------------------------------------------------------------------

PlaitError *plait_error_create(void) { return xcalloc(1, sizeof(PlaitError)); }
const char *plait_error_message(const PlaitError *error) { return error->message; }
void plait_error_clear(PlaitError *error) { *error = (PlaitError){0}; }
void plait_error_destroy(PlaitError *error) { free(error); }

// Tokenizers ----------------------------------------------------------------------------------------------------------

struct PlaitTokenizer {
  Tokenizer *tokenizer;
  TokenizerScratch *scratch;
  IdVector ids;    // of the last call
  ByteVector text; // of the last call
};

int plait_tokenizer_open(const char *path, PlaitTokenizer **tokenizer, PlaitError *error) {
  Tokenizer *t;
  Error unread = {0};
  *tokenizer = NULL;
  int code = tokenizer_load(path, &t, error ? error : &unread);
  if (code) return code;
  *tokenizer = xcalloc(1, sizeof **tokenizer);
  (*tokenizer)->tokenizer = t;
  (*tokenizer)->scratch = tokenizer_scratch_create(t);
  return PLAIT_OK;
}

void plait_tokenizer_close(PlaitTokenizer *t) {
  if (!t) return;
  tokenizer_scratch_destroy(t->scratch);
  tokenizer_destroy(t->tokenizer);
  vec_free(&t->ids);
  vec_free(&t->text);
  free(t);
}

int plait_tokenizer_size(const PlaitTokenizer *t) { return tokenizer_vocab_size(t->tokenizer); }

int plait_tokenizer_encode(PlaitTokenizer *t, const char *text, size_t bytes, int special, const int32_t **ids,
                           int64_t *count, PlaitError *error) {
  Error unread = {0};
  t->ids.count = 0;
  int code = tokenizer_encode_with(t->tokenizer, t->scratch, text, bytes, special ? ENCODE_ADD_SPECIAL : 0, &t->ids,
                                   error ? error : &unread);
  *ids = t->ids.data;
  *count = code ? 0 : t->ids.count;
  return code;
}

int plait_tokenizer_decode(PlaitTokenizer *t, const int32_t *ids, int64_t count, int special, const char **text,
                           size_t *bytes, PlaitError *error) {
  Error unread = {0};
  t->text.count = 0;
  int code = tokenizer_decode(t->tokenizer, ids, count, !special, &t->text, error ? error : &unread);
  *bytes = code ? 0 : (size_t)t->text.count;
  vec_push(&t->text, 0);
  *text = (const char *)t->text.data;
  return code;
}

// Checkpoints ---------------------------------------------------------------------------------------------------------

struct PlaitCheckpoint {
  Checkpoint *checkpoint;
  char *extra; // as text, once it was asked for
};

static int open_newest(const char *path, const char *folder, Checkpoint **c, Error *error) {
  int64_t step;
  int found = checkpoint_latest_valid(folder, &step, c, NULL, error);
  if (found) return found < 0 ? found : PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s has no valid checkpoint yet", path);
}

static int open_there(const char *path, Checkpoint **c, Error *error) {
  char *manifest = xformat("%s/checkpoint.json", path), *inside = xformat("%s/checkpoints", path);
  int code;
  if (file_exists(manifest)) code = checkpoint_open(c, path, error);
  else if (file_is_folder(inside)) code = open_newest(path, inside, c, error);
  else
    code =
        error_set(error, PLAIT_BAD_INPUT, "%s %s; give a checkpoint (runs/my/checkpoints/step-100) or a run (runs/my)",
                  path, file_exists(path) ? "is neither a checkpoint nor a run of plait" : "does not exist");
  free(manifest);
  free(inside);
  return code;
}

int plait_checkpoint_open(const char *path, PlaitCheckpoint **checkpoint, PlaitError *error) {
  Checkpoint *c = NULL;
  Error unread = {0};
  *checkpoint = NULL;
  int code = open_there(path, &c, error ? error : &unread);
  if (code) return code;
  *checkpoint = xcalloc(1, sizeof **checkpoint);
  (*checkpoint)->checkpoint = c;
  return PLAIT_OK;
}

void plait_checkpoint_close(PlaitCheckpoint *c) {
  if (!c) return;
  checkpoint_close(c->checkpoint);
  free(c->extra);
  free(c);
}

const char *plait_checkpoint_path(const PlaitCheckpoint *c) { return checkpoint_path(c->checkpoint); }
int64_t plait_checkpoint_step(const PlaitCheckpoint *c) { return checkpoint_step(c->checkpoint); }
int plait_checkpoint_count(const PlaitCheckpoint *c) { return checkpoint_count(c->checkpoint); }

const char *plait_checkpoint_extra(PlaitCheckpoint *c) {
  if (!c->extra) c->extra = json_dumps(checkpoint_extra(c->checkpoint), 0);
  return c->extra;
}

static const CheckpointEntry *entry_of(const PlaitCheckpoint *c, int tensor) {
  bool there = tensor >= 0 && tensor < checkpoint_count(c->checkpoint);
  return there ? checkpoint_entry(c->checkpoint, tensor) : NULL;
}

const char *plait_checkpoint_name(const PlaitCheckpoint *c, int tensor) {
  const CheckpointEntry *e = entry_of(c, tensor);
  return e ? e->name : NULL;
}

const char *plait_checkpoint_dtype(const PlaitCheckpoint *c, int tensor) {
  const CheckpointEntry *e = entry_of(c, tensor);
  return e ? dtype_name(e->dtype) : NULL;
}

int plait_checkpoint_dims(const PlaitCheckpoint *c, int tensor, int64_t dims[PLAIT_MOST_DIMS]) {
  const CheckpointEntry *e = entry_of(c, tensor);
  CHECK(!e || e->rank <= PLAIT_MOST_DIMS, "a tensor of %d dims", e->rank);
  for (int d = 0; e && d < e->rank; d++) dims[d] = e->global[d];
  return e ? e->rank : -1;
}

int plait_checkpoint_read(PlaitCheckpoint *c, int tensor, const char *dtype, void *out, size_t size,
                          PlaitError *error) {
  const CheckpointEntry *e = entry_of(c, tensor);
  int as = dtype_from_name(dtype);
  Error unread = {0};
  if (!error) error = &unread;
  if (!e)
    return error_set(error, PLAIT_BAD_INPUT, "%s has tensors 0 to %d, not %d", checkpoint_path(c->checkpoint),
                     checkpoint_count(c->checkpoint) - 1, tensor);
  if (as < 0 || (as != (int)e->dtype && !(dtype_is_float((Dtype)as) && dtype_is_float(e->dtype))))
    return error_set(error, PLAIT_BAD_INPUT, "%s of %s is stored as %s and cannot be read as \"%.20s\"", e->name,
                     checkpoint_path(c->checkpoint), dtype_name(e->dtype), dtype);
  size_t bytes = dtype_size((Dtype)as);
  for (int d = 0; d < e->rank; d++) bytes *= (size_t)e->global[d];
  if (bytes != size)
    return error_set(error, PLAIT_BAD_INPUT, "%s of %s has %zu bytes as %s, not %zu", e->name,
                     checkpoint_path(c->checkpoint), bytes, dtype, size);
  const int64_t none[BOX_MAX_RANK] = {0};
  return checkpoint_read_box(c->checkpoint, e->name, none, e->global, (Dtype)as, out, error);
}
