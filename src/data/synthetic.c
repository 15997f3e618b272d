// Random ragged corpora for tests.
#include "data/synthetic.h"
#include "base/philox.h"
#include "data/indexed.h"
#include <stdlib.h>

int synthetic_corpus(const char *prefix, int documents, int min_len, int max_len, int vocab, uint64_t seed,
                     Error *error) {
  CHECK(documents >= 0 && min_len >= 1 && max_len >= min_len && vocab >= 2);
  IndexedWriter writer;
  int code = indexed_writer_begin(&writer, prefix, indexed_type_for(vocab), error);
  if (code != PLAIT_OK) return code;
  uint32_t *ids = xcalloc((size_t)max_len, sizeof *ids);
  uint32_t words = (uint32_t)vocab - 1; // all but the end-of-text
  PhiloxKey key = philox_key(seed, 0, philox_name("synthetic"));
  for (int d = 0; d < documents && code == PLAIT_OK; d++) {
    uint32_t r[4];
    philox4x32(key, (uint32_t)d, 0, 0, 1, r);
    int length = min_len + (int)(r[0] % (uint32_t)(max_len - min_len + 1));
    uint64_t id = r[1] % words;
    for (int i = 0; i < length; i++) {
      ids[i] = (uint32_t)id;
      philox4x32(key, (uint32_t)d, (uint32_t)i, 1, 1, r);
      id = r[0] % 4 ? (3 * id + 1) % words : r[1] % words; // three times of four the chain's next, else noise
    }
    ids[length - 1] = words;
    code = indexed_writer_add_document(&writer, ids, length, error);
  }
  free(ids);
  if (code == PLAIT_OK) code = indexed_writer_commit(&writer, error);
  if (code != PLAIT_OK) indexed_writer_abandon(&writer);
  return code;
}
