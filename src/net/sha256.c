// SHA-256 as FIPS 180-4 writes it, and HMAC. Nothing in it depends on the data but the values.
#include "net/sha256.h"
#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void add_block(uint32_t state[8], const unsigned char block[SHA256_BLOCK]) {
  uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
                  h = state[7];
  for (int i = 0; i < 16; i++, block += 4)
    w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
  for (int i = 0; i < 64; i++) {
    uint32_t one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i];
    uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void sha256_begin(Sha256 *s) {
  *s = (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                          0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *data, size_t bytes) {
  for (const unsigned char *from = data; bytes;) {
    size_t have = s->bytes % SHA256_BLOCK, n = SHA256_BLOCK - have < bytes ? SHA256_BLOCK - have : bytes;
    memcpy(s->block + have, from, n);
    s->bytes += n, from += n, bytes -= n;
    if (s->bytes % SHA256_BLOCK == 0) add_block(s->state, s->block);
  }
}

void sha256_end(Sha256 *s, unsigned char digest[SHA256_BYTES]) {
  static const unsigned char padding[SHA256_BLOCK] = {0x80};
  unsigned char length[8];
  uint64_t bits = 8 * s->bytes;
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
  size_t have = s->bytes % SHA256_BLOCK;
  sha256_add(s, padding, (have < 56 ? 56 : 56 + SHA256_BLOCK) - have);
  sha256_add(s, length, sizeof length);
  for (int i = 0; i < SHA256_BYTES; i++) digest[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_begin(Hmac *h, const void *key, size_t bytes) {
  unsigned char pad[SHA256_BLOCK] = {0};
  if (bytes > sizeof pad) {
    sha256_begin(&h->inner);
    sha256_add(&h->inner, key, bytes);
    sha256_end(&h->inner, pad);
  } else memcpy(pad, key, bytes);
  for (int i = 0; i < SHA256_BLOCK; i++) pad[i] ^= 0x36;
  sha256_begin(&h->inner);
  sha256_add(&h->inner, pad, sizeof pad);
  for (int i = 0; i < SHA256_BLOCK; i++) pad[i] ^= 0x36 ^ 0x5c;
  sha256_begin(&h->outer);
  sha256_add(&h->outer, pad, sizeof pad);
  explicit_bzero(pad, sizeof pad);
}

void hmac_add(Hmac *h, const void *data, size_t bytes) { sha256_add(&h->inner, data, bytes); }

void hmac_end(Hmac *h, unsigned char code[SHA256_BYTES]) {
  unsigned char digest[SHA256_BYTES];
  sha256_end(&h->inner, digest);
  sha256_add(&h->outer, digest, sizeof digest);
  sha256_end(&h->outer, code);
  explicit_bzero(h, sizeof *h);
}
