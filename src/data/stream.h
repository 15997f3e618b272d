// The tokens of a dataset in a row: all its documents, or those that a split leaves for training or holds out for
// evaluation.
//
// Which documents are held out follows from their number in the dataset alone, by a hash: neither the seed nor the
// other datasets of a blend change it, and documents that are added at the end leave the earlier ones where they were.
// About the asked-for fraction is held out, but at least one document, and one stays at least: which one that is, where
// the fraction alone would hold out none or all, may change when documents are added.
#pragma once
#include "data/indexed.h"

typedef enum StreamPart { STREAM_ALL, STREAM_KEPT, STREAM_HELD_OUT } StreamPart;

typedef struct Stream {
  const IndexedDataset *dataset; // borrowed
  StreamPart part;
  uint64_t threshold; // documents whose hash is below it are held out
  int64_t tokens, documents; // of the part; without empty documents, but for STREAM_ALL
  int64_t all;               // documents of the dataset that are not empty
  int64_t *before;           // (blocks + 1) tokens of the part before each block of documents; NULL: STREAM_ALL
} Stream;

// split in (0, 1), or 0 with STREAM_ALL. A dataset with fewer than two documents cannot be split: PLAIT_BAD_INPUT.
// O(documents) once, with 8 bytes for 256 documents.
int stream_open(Stream *stream, const IndexedDataset *dataset, double split, StreamPart part, Error *error);
void stream_close(Stream *stream); // also safe after a failed open and twice

// A document of the part, in positions of the stream. Never an empty one.
typedef struct StreamDocument {
  int64_t number; // in the dataset
  int64_t begin, end;
} StreamDocument;
StreamDocument stream_document_at(const Stream *stream, int64_t position); // position in [0, tokens)
StreamDocument stream_document_after(const Stream *stream, StreamDocument document); // there must be one

// As indexed_read, of positions of the stream.
int stream_read(const Stream *stream, int64_t position, int64_t count, int vocab_size, int32_t *out, Error *error);
