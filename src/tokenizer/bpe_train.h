// Learning merges: counted words → the pairs to merge, most frequent first.
#pragma once
#include "base/arena.h"
#include "tokenizer/bpe.h"

// Distinct words with their counts; texts lie back to back in `text`.
typedef struct CountedWord { int64_t start, count; int32_t bytes; uint32_t hash; } CountedWord;
typedef struct WordTable {
  CountedWord *words; // (count) in the order of their first add
  int32_t *slots;     // open addressing: index of a word, -1: empty
  uint32_t mask;      // slots - 1; zero-initialise the table
  int count, capacity;
  char *text;
  int64_t text_bytes, text_capacity;
} WordTable;
void word_table_add(WordTable *table, const char *word, int32_t bytes, int64_t count);
void word_table_clear(WordTable *table); // forgets the words, keeps the memory
void word_table_free(WordTable *table);
// Drops the rarest words, count by count, until at most `words` of them and half the text are left.
void word_table_prune(WordTable *table, int words);

typedef struct LearnedMerge { int32_t left, right, id; } LearnedMerge;
typedef struct LearnedToken { const char *text; int bytes; } LearnedToken; // raw bytes
typedef struct BpeLearned {
  Arena arena;
  Vec(LearnedToken) tokens; // by id - first_id; the first 256 are the bytes in the order of their letters
  Vec(LearnedMerge) merges; // in order; two merges may make the same token
} BpeLearned;

// Merges until there are `tokens` tokens (256 bytes included) or no pair occurs twice. Of pairs that occur equally
// often the smaller (left id, right id) is merged first. Each merge costs time in the words that hold its pair only.
void bpe_learn(const WordTable *table, int32_t first_id, int tokens, BpeLearned *learned);
void bpe_learned_free(BpeLearned *learned);
