// XXH64 with seed 0: four independent lanes over 32-byte stripes, merged and mixed at the end.
#include "checkpoint/checksum.h"
#include <string.h>

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }
static uint64_t mix(uint64_t lane, uint64_t input) { return rotate(lane + input * P2, 31) * P1; }
static uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ mix(0, lane)) * P1 + P4; }

// Little-endian by definition, so that a checkpoint moves between machines.
static uint64_t read64(const uint8_t *p) {
  uint64_t x;
  memcpy(&x, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  x = __builtin_bswap64(x);
#endif
  return x;
}
static uint32_t read32(const uint8_t *p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const uint8_t *stripes(uint64_t lane[4], const uint8_t *p, size_t bytes) {
  uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
  for (; bytes >= 32; bytes -= 32, p += 32) {
    a = mix(a, read64(p));
    b = mix(b, read64(p + 8));
    c = mix(c, read64(p + 16));
    d = mix(d, read64(p + 24));
  }
  lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
  return p;
}

void checksum_begin(Checksum *checksum) {
  *checksum = (Checksum){.lane = {P1 + P2, P2, 0, 0u - P1}};
}

void checksum_feed(Checksum *checksum, const void *data, size_t bytes) {
  const uint8_t *p = data, *end = p + bytes;
  size_t held = checksum->total % 32;
  if (!bytes) return;
  checksum->total += bytes;
  if (held) {
    size_t take = bytes < 32 - held ? bytes : 32 - held;
    memcpy(checksum->pending + held, p, take);
    p += take;
    if (held + take < 32) return;
    stripes(checksum->lane, checksum->pending, 32);
  }
  p = stripes(checksum->lane, p, (size_t)(end - p));
  memcpy(checksum->pending, p, (size_t)(end - p));
}

uint64_t checksum_value(const Checksum *checksum) {
  const uint64_t *v = checksum->lane;
  uint64_t hash = P5;
  if (checksum->total >= 32) {
    hash = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
    for (int i = 0; i < 4; i++) hash = merge(hash, v[i]);
  }
  hash += checksum->total;
  const uint8_t *p = checksum->pending, *end = p + checksum->total % 32;
  for (; end - p >= 8; p += 8) hash = rotate(hash ^ mix(0, read64(p)), 27) * P1 + P4;
  if (end - p >= 4) {
    hash = rotate(hash ^ read32(p) * P1, 23) * P2 + P3;
    p += 4;
  }
  for (; p < end; p++) hash = rotate(hash ^ *p * P5, 11) * P1;
  hash = (hash ^ hash >> 33) * P2;
  hash = (hash ^ hash >> 29) * P3;
  return hash ^ hash >> 32;
}

uint64_t checksum_of(const void *data, size_t bytes) {
  Checksum checksum;
  checksum_begin(&checksum);
  checksum_feed(&checksum, data, bytes);
  return checksum_value(&checksum);
}
