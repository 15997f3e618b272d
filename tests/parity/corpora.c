// Writes the corpora of the parity tests.
#include "corpora.h"
#include "base/file.h"
#include "base/philox.h"
#include "data/indexed.h"
#include "data/synthetic.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int vocabs[] = {GPT_VOCAB, LLAMA_VOCAB};
static char *folder, *prefixes[2][CORPUS_KINDS]; // of this test program

// Groups of 60 single tokens, with one document of up to 50 tokens after each third group when `targets`.
static int write_singles(const char *prefix, int vocab, int targets, Error *error) {
  IndexedWriter writer;
  int code = indexed_writer_begin(&writer, prefix, indexed_type_for(vocab), error);
  if (code) return code;
  PhiloxKey key = philox_key(5, 0, philox_name("singles"));
  for (uint32_t group = 0; group < 90 && !code; group++) {
    uint32_t r[4], ids[50];
    for (uint32_t i = 0; i < 60 && !code; i++) {
      philox4x32(key, group, i, 0, 0, r);
      ids[0] = r[0] % (uint32_t)vocab;
      code = indexed_writer_add_document(&writer, ids, 1, error);
    }
    if (code || !targets || group % 3) continue;
    for (uint32_t i = 0; i < 50; i++) {
      philox4x32(key, group, i, 1, 0, r);
      ids[i] = r[0] % (uint32_t)vocab;
    }
    code = indexed_writer_add_document(&writer, ids, 2 + (int)(r[1] % 49), error);
  }
  if (!code) code = indexed_writer_commit(&writer, error);
  if (code) indexed_writer_abandon(&writer);
  return code;
}

int corpora_make(void **state) {
  Error error = {0};
  int code = 0;
  folder = xformat("%s/plait-parity-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  if (!mkdtemp(folder)) return perror(folder), 1;
  for (int v = 0; v < 2 && !code; v++)
    for (int k = 0; k < CORPUS_KINDS && !code; k++) {
      char *prefix = prefixes[v][k] = xformat("%s/%d-%d", folder, v, k);
      if (k == CORPUS_RAGGED) code = synthetic_corpus(prefix, 400, 1, 45, vocabs[v], 7, &error);
      if (k == CORPUS_WHOLE) code = synthetic_corpus(prefix, 30, 150, 400, vocabs[v], 8, &error);
      if (k == CORPUS_SPARSE || k == CORPUS_EMPTY) code = write_singles(prefix, vocabs[v], k == CORPUS_SPARSE, &error);
    }
  if (code) fprintf(stderr, "%s\n", error.message);
  return code != 0;
}

int corpora_remove(void **state) {
  Error error = {0};
  int code = folder_remove(folder, &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  for (int i = 0; i < 2 * CORPUS_KINDS; i++) free(prefixes[i / CORPUS_KINDS][i % CORPUS_KINDS]);
  free(folder);
  return code != 0;
}

const char *corpus_for(const char *model, CorpusKind kind) { return prefixes[strncmp(model, "gpt", 3) != 0][kind]; }
