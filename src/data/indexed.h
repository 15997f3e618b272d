// Megatron's indexed datasets, PREFIX.idx and PREFIX.bin: documents of token ids, mapped for reading, streamed for
// writing.
//
// PREFIX.bin holds the token ids of all sequences back to back. PREFIX.idx describes them (little endian):
//   9 bytes  "MMIDIDX\0\0"
//   u64      version, 1
//   u8       element type of PREFIX.bin (IndexedType)
//   u64      S, the number of sequences
//   u64      D, the number of document indices = documents + 1
//   i32[S]   tokens of each sequence
//   i64[S]   byte at which each sequence starts in PREFIX.bin
//   i64[D]   first sequence of each document; the last entry is S
// Megatron allows several sequences a document. plait needs only the token at each position of the stream, so sequences
// only serve to find where documents begin.
#pragma once
#include "base/error.h"
#include "base/file.h"
#include <stdint.h>

typedef enum IndexedType { // the codes that stand in the file
  INDEXED_UINT8 = 1,
  INDEXED_INT8 = 2,
  INDEXED_INT16 = 3,
  INDEXED_INT32 = 4,
  INDEXED_INT64 = 5,
  INDEXED_UINT16 = 8, // 6 and 7 are floats, refused
} IndexedType;

int indexed_type_bytes(int type); // 1, 2, 4 or 8; 0 for a code that holds no token ids
// uint16 where it holds every id, else int32. (Megatron's own tool turns to int32 at 65,500 already; it reads both.)
IndexedType indexed_type_for(int64_t vocab_size);

// ---- reading ----

typedef struct IndexedDataset {
  char *prefix;
  FileMap idx, bin;
  IndexedType type;
  int64_t tokens, sequences, documents;
  const uint8_t *lengths, *pointers, *document_indices; // inside idx, not aligned
} IndexedDataset;

// Maps both files and checks every field of the index against the file sizes, so that no later read can leave the map:
// sequences lie back to back and fill PREFIX.bin exactly, document indices ascend from 0 to S. PLAIT_BAD_INPUT
// otherwise, with nothing held. (Files that shrink while they are mapped are beyond protection.)
int indexed_open(IndexedDataset *dataset, const char *prefix, Error *error);
void indexed_close(IndexedDataset *dataset); // also safe after a failed open and twice

// Position in the token stream at which a document begins; document in [0, documents], the last one gives `tokens`.
int64_t indexed_document_begin(const IndexedDataset *dataset, int64_t document);

// The document that holds a position in [0, tokens); never an empty one. Binary search, O(log documents).
int64_t indexed_document_at(const IndexedDataset *dataset, int64_t position);

// Copies the ids of positions [position, position + count) to out (count). The range must lie in [0, tokens].
// An id outside [0, vocab_size) is PLAIT_BAD_INPUT naming file and position; vocab_size 0 allows all of int32.
int indexed_read(const IndexedDataset *dataset, int64_t position, int64_t count, int vocab_size, int32_t *out,
                 Error *error);

// ---- writing ----

typedef struct IndexedWriter {
  AtomicFile bin, idx;
  char *record;        // text of PREFIX.documents.json, how documents begin and end; owned; NULL: none is written
  IndexedType type;
  int32_t *lengths; // (documents)
  int64_t documents, capacity, tokens;
  int64_t open_tokens; // of the document not ended yet
  uint8_t *buffer;
} IndexedWriter;

// Starts PREFIX.bin and PREFIX.idx under temporary names. Memory: 4 bytes a document and a small buffer.
int indexed_writer_begin(IndexedWriter *writer, const char *prefix, IndexedType type, Error *error);

// Appends one document (n ids, 0 allowed). An id that the type cannot hold is PLAIT_BAD_INPUT.
int indexed_writer_add_document(IndexedWriter *writer, const uint32_t *ids, int64_t n, Error *error);

// The same in pieces, for documents that should not be held whole: tokens as often as wanted, then one end.
int indexed_writer_add_tokens(IndexedWriter *writer, const uint32_t *ids, int64_t n, Error *error);
int indexed_writer_end_document(IndexedWriter *writer, Error *error);

// Syncs and renames: PREFIX.bin first, PREFIX.idx last, an old PREFIX.idx is gone before; so a dataset is there whole
// or not at all. Between them the record takes the place of an old one. After a failure of any of these functions call
// indexed_writer_abandon, which leaves no temporary file.
int indexed_writer_commit(IndexedWriter *writer, Error *error);
void indexed_writer_abandon(IndexedWriter *writer); // also safe after a commit or a failed begin
