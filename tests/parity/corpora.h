// Corpora that parity is tried on. Made for one test program, in a folder of its own below TMPDIR (else /tmp). A
// program that is killed leaves it there: scripts that kill have a TMPDIR that they remove.
#pragma once

typedef enum CorpusKind {
  CORPUS_RAGGED, // documents of 1 … 45 tokens: several in most windows
  CORPUS_SPARSE, // long runs of single-token documents: whole windows, microbatches and ranks without any target
  CORPUS_EMPTY,  // only such: no step has a target
  CORPUS_WHOLE,  // documents far longer than a window: most windows are one document
  CORPUS_KINDS
} CorpusKind;

enum { GPT_VOCAB = 61, LLAMA_VOCAB = 53, PARITY_SEQ = 18 };

// Group fixtures of cmocka.
int corpora_make(void **state);
int corpora_remove(void **state);
// The prefix of a corpus for a model (its vocabulary).
const char *corpus_for(const char *model, CorpusKind kind);
