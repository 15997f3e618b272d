// The BPE model: vocabulary, ranked merges, and word → ids by them (lowest rank first, leftmost first).
#pragma once
#include "base/vec.h"
#include <stddef.h>
#include <stdint.h>

typedef Vec(int32_t) IdVector;
typedef Vec(char) ByteVector;

typedef struct BpeMerge { int32_t left, right, id; uint32_t rank; } BpeMerge; // left -1: empty slot

typedef struct Bpe {
  const char *const *text; // (size) token by id, NULL: none; owned by the caller
  const int *bytes;        // (size)
  int size;
  int32_t *slots;          // token → id, open addressing; -1: empty
  uint32_t slot_mask;
  BpeMerge *merges;        // (left, right) → rank and id, open addressing
  uint32_t merge_mask;
  int byte_level;          // words are bytes, tokens are in the byte alphabet; else words are UTF-8 characters
  int32_t byte_id[256];    // byte_level: id of the byte's letter; byte_fallback: id of <0xXX>; -1: none
  int32_t ascii_id[128];   // not byte_level: id of the character
  int byte_fallback, fuse_unk, ignore_merges;
  int32_t unk;             // -1: unknown characters are dropped
} Bpe;

// The letter that stands for a byte in byte-level vocabularies, as a code point (printable bytes stand for themselves).
uint32_t bpe_byte_letter(uint8_t byte);
// The reverse: the byte of a letter, or -1.
int bpe_letter_byte(uint32_t letter);
// Writes a code point as UTF-8, returns the bytes written (1 to 4).
int utf8_put(uint32_t code, char *out);
// Reads one character: its bytes (1 to 4), code point in *code; 0 where the bytes are not valid UTF-8.
int utf8_get(const char *text, size_t bytes, uint32_t *code);
// Length of the longest prefix that is valid UTF-8.
size_t utf8_prefix(const char *text, size_t bytes);
void bytes_append(ByteVector *vector, const char *text, size_t bytes);
// The same as valid UTF-8: each byte that is none becomes U+FFFD.
void utf8_append(ByteVector *vector, const char *text, size_t bytes);

// Sets up an empty model for `merges` merges over the tokens, which must outlive it; in_model[id] says which of them
// are the model's (NULL: all that are not NULL). -2 when two of them are the same string.
int bpe_init(Bpe *bpe, const char *const *text, const int *bytes, int size, const uint8_t *in_model, int merges);
void bpe_add_merge(Bpe *bpe, int32_t left, int32_t right, int32_t id, uint32_t rank); // a later one wins
void bpe_finish(Bpe *bpe); // after byte_level … unk are set: fills byte_id and ascii_id
void bpe_free(Bpe *bpe);
int32_t bpe_find(const Bpe *bpe, const char *token, size_t bytes); // -1: none
const BpeMerge *bpe_find_merge(const Bpe *bpe, int32_t left, int32_t right); // NULL: none

// Work space and word cache of one thread; zero-initialise, bpe_scratch_free.
typedef struct BpeSymbol { int32_t id, previous, next; } BpeSymbol;
typedef struct BpeCandidate { uint32_t rank; int32_t position, id; } BpeCandidate;
typedef struct BpeCached { uint8_t bytes, count; char word[30]; int32_t ids[8]; } BpeCached; // bytes 0: empty
typedef struct BpeScratch {
  IdVector ids;
  Vec(BpeSymbol) symbols;
  Vec(BpeCandidate) heap;
  ByteVector letters;
  BpeCached *cache; // direct-mapped
  int64_t missed;   // bytes so far that the vocabulary lacks: left out, or the unknown token stands for them
  const char *first_missed; // the first of them; whoever reads it sets it back to NULL
} BpeScratch;
void bpe_scratch_free(BpeScratch *scratch);

// Appends the ids of one word (at most 256 MiB).
void bpe_encode_word(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t bytes, IdVector *ids);
// Appends the id of a byte that is not part of valid UTF-8.
void bpe_encode_byte(const Bpe *bpe, BpeScratch *scratch, const char *byte, IdVector *ids);
