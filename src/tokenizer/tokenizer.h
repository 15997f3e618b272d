// Tokenizers: Hugging Face tokenizer.json (BPE kinds) loaded, trained, saved; text → ids and ids → text.
#pragma once
#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer_normalize.h"
#include "tokenizer/tokenizer_split.h"
#include <stdint.h>

// Supported are: model BPE (byte-level, or characters with byte fallback); normalizers NFC, NFD, NFKC, NFKD, Lowercase,
// StripAccents, Strip, Prepend and Replace; pre-tokenizers ByteLevel, Split, Digits, Metaspace, Whitespace,
// WhitespaceSplit, Punctuation, BertPreTokenizer, CharDelimiterSplit; decoders ByteLevel, Metaspace, Replace,
// ByteFallback, Fuse, Strip; post-processors TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel;
// Sequences of them. All else is refused by name. Truncation and padding that a file asks for are ignored: a corpus
// must stay whole.
//
// Bytes that are not UTF-8 are taken one by one, as words of one byte, so every byte string round trips where the
// vocabulary has all 256 bytes and there is no normalizer; the valid text between them is pre-tokenized as if the text
// ended there. Bytes that a vocabulary lacks are left out, or the unknown token stands for them: tokenizer_missed.

// A token that is found in the text before the model sees it.
typedef struct AddedToken {
  int32_t id;
  const char *text; // as it is matched (normalized when `normalized`), bytes long
  int bytes;
  int special, lstrip, rstrip, normalized, single_word;
} AddedToken;

// Matches added tokens, leftmost and then longest; tokens sorted by first byte, longest first.
typedef struct AddedSet {
  const AddedToken **tokens; // (count)
  int count;
  int first[257];     // tokens that begin with byte b: [first[b], first[b + 1])
  int common[256];    // bytes that all tokens which begin with byte b share
  const UnicodeSet *word; // characters that are part of words
} AddedSet;

enum { TOKENIZER_STEPS = 16 }; // most steps of a normalizer, pre-tokenizer or decoder

typedef struct TokenizerDecoder {
  int byte_level, byte_fallback;
  int replaces;
  NormalizerStep replace[TOKENIZER_STEPS];
  char strip[8]; // this character is removed from the start of the text, up to strip_start times
  int strip_start;
  char metaspace[8]; // dropped in the first token when metaspace_drop, a space elsewhere; "" when not in use
  int metaspace_drop;
  int joins; // the file names no decoder: a space parts tokens
} TokenizerDecoder;

// Immutable after loading: any number of threads may use one, each with its own TokenizerScratch.
typedef struct Tokenizer {
  Arena arena;
  char *json;       // the tokenizer.json as read or trained; what tokenizer_save writes
  size_t json_bytes;
  Bpe bpe;          // vocabulary and merges
  int vocab_size;   // largest id + 1, added tokens included
  const char **token_text; // (vocab_size) as in the file; NULL: no such id
  int *token_bytes;        // (vocab_size)
  uint8_t *token_special;  // (vocab_size)
  struct { const char *text; int bytes; } *decoded; // (vocab_size) what a token that is not the first one decodes to

  AddedToken *added; // (added_count)
  int added_count;
  const char *moved; // the first added token that has another id (moved_to) than the file declares; NULL: none
  int moved_from, moved_to;
  UnicodeSet added_word; // characters that are part of words, for single_word
  AddedSet added_raw, added_normalized;
  int normalizer_count, split_count;
  NormalizerStep normalizer[TOKENIZER_STEPS];
  UnicodeNormal *unicode; // tables of normalizers, NULL where none has a form
  SplitStep split[TOKENIZER_STEPS];
  TokenizerDecoder decoder;
  IdVector before, after; // what the post-processor puts around a text
  char marker[8];   // "▁" where words may be cut before it without changing ids; "" else
  int cuttable;     // where tokenizer_cut may cut documents: CUT_SPACES | CUT_LINES
} Tokenizer;

// The memory with which one thread encodes: buffers, a word cache, PCRE2 match state. Reuse it from text to text: that
// is fast.
typedef struct TokenizerScratch TokenizerScratch;
TokenizerScratch *tokenizer_scratch_create(const Tokenizer *t);
void tokenizer_scratch_destroy(TokenizerScratch *scratch); // NULL is fine

// Reads a tokenizer.json, or FOLDER/tokenizer.json. On success *t is the caller's (tokenizer_destroy). A file that is
// no tokenizer.json, or holds a kind that is not supported, is PLAIT_BAD_INPUT with one sentence.
int tokenizer_load(const char *path, Tokenizer **t, Error *error);
// The same from memory; `name` stands for the file in messages.
int tokenizer_parse(const char *json, size_t bytes, const char *name, Tokenizer **t, Error *error);
void tokenizer_destroy(Tokenizer *t); // NULL is fine
// Writes a tokenizer.json, whole or not at all; a tokenizer that was loaded is written byte for byte as it was read.
int tokenizer_save(const Tokenizer *t, const char *path, Error *error);

// Trains byte-level BPE (Sennrich et al., "Neural machine translation of rare words with subword units", 2016) with
// GPT-2's pre-tokenization on files (.jsonl: key `text`; others: text). Ids: "<|endoftext|>" is 0, then the 256 bytes
// in the order of Hugging Face's alphabet, then merges. Ties: the smaller pair of ids. Stops early where no pair occurs
// twice. The same result for any `threads`. Memory: bounded by the distinct words (at most 4 million are kept).
int tokenizer_train(const char *const *files, int count, int vocab_size, int threads, Tokenizer **t, Error *error);

// Appends the ids of a text to *ids. add_special: also what the post-processor adds (BOS …). Special tokens in the
// text become their ids, as in Hugging Face. Fails (PLAIT_BAD_INPUT) only where a regular expression of the tokenizer
// exceeds its limits or a text has more than 256 MiB (cut it).
int tokenizer_encode(const Tokenizer *t, const char *text, size_t bytes, int add_special, IdVector *ids, Error *error);

// CONTINUES: the text continues from a tokenizer_cut. PLAIN: special tokens that the text spells out are encoded as any
// other text (encode_special_tokens of Hugging Face's tokenizers, split_special_tokens of transformers).
enum { ENCODE_ADD_SPECIAL = 1, ENCODE_CONTINUES = 2, ENCODE_PLAIN = 4 };
int tokenizer_encode_with(const Tokenizer *t, TokenizerScratch *scratch, const char *text, size_t bytes, int flags,
                          IdVector *ids, Error *error);

// The bytes [start, end) of a text.
typedef struct TextSpan { size_t start, end; } TextSpan;
// Special tokens are found only where they lie wholly in one of the spans (count; ascending, none touches another);
// elsewhere they are encoded as any other text. Added tokens that are not special are found everywhere. Nothing is put
// before or after the text. It is encoded as one, but for tokenizers that normalize a text before they look for special
// tokens: these see a cut at the ends of spans.
int tokenizer_encode_spans(const Tokenizer *t, TokenizerScratch *scratch, const char *text, size_t bytes,
                           const TextSpan *spans, int count, IdVector *ids, Error *error);

// Of the last text that was encoded with a scratch: its bytes that the vocabulary lacks, and where the first one is.
// Where the text was normalized before (exact 0), `first` is the end of the added token before it, or 0.
typedef struct TokenizerMissed { int64_t bytes; size_t first; int found, exact; } TokenizerMissed;
TokenizerMissed tokenizer_missed(const TokenizerScratch *scratch);
int64_t tokenizer_specials(const TokenizerScratch *scratch); // of the same text: special tokens that it spells out

// The first position >= from (and < bytes) where a document may be cut so that the ids of its parts (the later ones
// encoded with ENCODE_CONTINUES) are those of the whole; `bytes` where there is none or the tokenizer is not cuttable.
size_t tokenizer_cut(const Tokenizer *t, const char *text, size_t bytes, size_t from);

// Appends the bytes that ids stand for to *text (no terminating NUL). skip_special leaves special tokens out. An id
// that does not exist is PLAIT_BAD_INPUT. Byte-level and byte tokens give their exact bytes, UTF-8 or not.
int tokenizer_decode(const Tokenizer *t, const int32_t *ids, int64_t count, int skip_special, ByteVector *text,
                     Error *error);

// Decoding id by id, for generation: holds back the bytes of a character that is not complete yet.
typedef struct TokenizerStream {
  const Tokenizer *t;
  int skip_special, started, stripped, held_count;
  char held[4];
} TokenizerStream;
void tokenizer_stream_begin(TokenizerStream *stream, const Tokenizer *t, int skip_special);
void tokenizer_stream_push(TokenizerStream *stream, int32_t id,
                           ByteVector *text); // appends; an unknown id adds nothing
void tokenizer_stream_end(TokenizerStream *stream, ByteVector *text);              // appends what is held back

int tokenizer_vocab_size(const Tokenizer *t);                // largest id + 1
int32_t tokenizer_id(const Tokenizer *t, const char *token); // token as in the file → id, -1: none
const char *tokenizer_token(const Tokenizer *t, int32_t id); // id → token as in the file, NULL: none
