// XXH64, a fast 64-bit checksum (Collet, "XXH64 algorithm description"), streamed: what guards checkpoint files against
// bit flips.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct Checksum {
  uint64_t lane[4], total; // total: bytes fed so far
  uint8_t pending[32];     // the last total % 32 bytes
} Checksum;

void checksum_begin(Checksum *checksum);
void checksum_feed(Checksum *checksum, const void *data, size_t bytes); // any chunking gives the same value
uint64_t checksum_value(const Checksum *checksum);                      // of all bytes fed so far; more may follow
uint64_t checksum_of(const void *data, size_t bytes);
