// Text that cannot be mapped: the standard input, pipes, and files packed with gzip or zstd; unpacked while it is read.
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct TextStream TextStream;

// "-" is the standard input. Packed files are known by their first bytes, whatever their names. 1: *stream is open; 0:
// the path is a plain file, which can be mapped; PLAIT_BAD_INPUT: it cannot be read, is a folder, or is not what its
// name (.gz, .zst) says.
int text_stream_open(TextStream **stream, const char *path, Error *error);
// Fills out[0, room); *got is less only at the end of the text. PLAIT_BAD_INPUT where packed data is damaged or ends
// too early, PLAIT_INTERRUPTED where a signal comes while it waits for a pipe.
int text_stream_read(TextStream *stream, char *out, size_t room, size_t *got, Error *error);
void text_stream_close(TextStream *stream); // NULL is fine

const char *text_stream_name(const char *path); // for messages: "-" is the standard input
bool text_stream_packed_name(const char *path); // ends in .gz or .zst (as all names here: large letters or small)
bool text_stream_holds_lines(const char *path); // .jsonl, .jsonlines or .ndjson, packed or not
