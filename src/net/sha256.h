// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for proofs of having a secret: also where there is no GnuTLS.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t bytes;                     // that were added
  unsigned char block[SHA256_BLOCK];  // of which the last block has a part
} Sha256;

void sha256_begin(Sha256 *hash);
void sha256_add(Sha256 *hash, const void *data, size_t bytes);
void sha256_end(Sha256 *hash, unsigned char digest[SHA256_BYTES]);

typedef struct Hmac { Sha256 inner, outer; } Hmac;

// A message in pieces. A key of any length.
void hmac_begin(Hmac *hmac, const void *key, size_t bytes);
void hmac_add(Hmac *hmac, const void *data, size_t bytes);
void hmac_end(Hmac *hmac, unsigned char code[SHA256_BYTES]);
