// Sets of characters and tables by character, as Hugging Face's tokenizers has them, whatever Unicode the system knows.
#pragma once
#include "base/vec.h"
#include <stddef.h>
#include <stdint.h>

enum { UNICODE_END = 0x110000 };

typedef struct UnicodeRange { uint32_t first, end; } UnicodeRange; // first … end - 1
typedef Vec(UnicodeRange) UnicodeSet; // after unicode_set_tidy: in order, apart from each other; free with vec_free

void unicode_set_add(UnicodeSet *set, uint32_t first, uint32_t end); // in any order; then unicode_set_tidy
void unicode_set_tidy(UnicodeSet *set);
// These take and leave tidy sets.
void unicode_set_join(UnicodeSet *set, const UnicodeSet *other);
void unicode_set_meet(UnicodeSet *set, const UnicodeSet *other);
void unicode_set_invert(UnicodeSet *set);
int unicode_set_has(const UnicodeSet *set, uint32_t code);

// Joins a set that has a name: a property of a regular expression (\p{NAME}, in small letters without spaces, - and _),
// a bracket expression ("[NAME]"), a class (\w, \d, \s, \h), or one of Rust's ("*numeric", "*space", "*word", "*punct")
// and of the normalizers' ("*accent"). 0: there is none of that name.
int unicode_set_named(UnicodeSet *set, const char *name);

// A byte for each character, in two levels.
typedef struct UnicodeMap {
  uint16_t *index; // (UNICODE_END >> 7)
  uint8_t *blocks; // (.. , 128)
} UnicodeMap;
static inline uint8_t unicode_map_get(const UnicodeMap *map, uint32_t code) {
  return map->blocks[(size_t)map->index[code >> 7] << 7 | (code & 127)];
}
void unicode_map_build(UnicodeMap *map, const uint8_t *values); // (UNICODE_END)
void unicode_map_free(UnicodeMap *map);

// Characters that become others, by character; entry i becomes targets[start[i]] … targets[start[i + 1] - 1].
typedef struct UnicodeMapping {
  Vec(uint32_t) codes, start, targets; // codes in order; one start more than codes
} UnicodeMapping;
typedef enum UnicodeMappingName { UNICODE_LOWER, UNICODE_CANONICAL, UNICODE_COMPATIBLE } UnicodeMappingName;
void unicode_mapping_read(UnicodeMapping *mapping, UnicodeMappingName name);
void unicode_mapping_free(UnicodeMapping *mapping);
// The characters that replace a character: `*count` of them; NULL: it stays.
const uint32_t *unicode_mapping_find(const UnicodeMapping *mapping, uint32_t code, int *count);

void unicode_excluded(UnicodeSet *set);          // characters of several parts that are not put together again
void unicode_classes(uint8_t *values);           // (UNICODE_END) order of combining marks, 0: not a mark that moves
