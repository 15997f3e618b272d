// safetensors: byte 0 chooses what the rest is: a whole file, a header (length and data are added), or a folder's
// index.
#include "checkpoint/safetensors.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

static void look(const Safetensors *t) {
  unsigned sum = 0;
  for (int i = 0; i < t->count; i++) {
    const SafetensorsEntry *e = &t->entries[i];
    for (size_t b = 0; b < e->bytes; b++) sum += ((const uint8_t *)e->data)[b];
    CHECK(safetensors_find(t, e->name) == e, "a tensor is not found by its name");
    CHECK(e->dtype < 0 || (uint64_t)safetensors_elements(e) * dtype_size((Dtype)e->dtype) == e->bytes);
  }
  CHECK(!safetensors_find(t, "no such tensor") || t->count);
  const char *format = safetensors_metadata(t, "format");
  sink = sum + (format ? (unsigned)strlen(format) : 0);
}

static void put_header(const char *path, const void *header, size_t size, size_t data_bytes) {
  uint8_t *file = xcalloc(8 + size + data_bytes, 1);
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)size >> 8 * i);
  if (size) memcpy(file + 8, header, size);
  fuzz_file(path, file, 8 + size + data_bytes);
  free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char shard_a[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":"
                                "\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}";
  static const char shard_b[] = "{\"v\":{\"dtype\":\"BF16\",\"shape\":[0,3],\"data_offsets\":[0,0]}}";
  Safetensors tensors;
  Error error = {0};
  int code;
  switch (fuzz_byte(&data, &size)) {
  case 'i':
    put_header("f/a.safetensors", shard_a, sizeof shard_a - 1, 9);
    put_header("f/b.safetensors", shard_b, sizeof shard_b - 1, 0);
    fuzz_file("f/model.safetensors.index.json", data, size);
    code = safetensors_open_folder(&tensors, "f", &error);
    break;
  case 'h': {
    size_t bytes = fuzz_byte(&data, &size);
    put_header("f/x.safetensors", data, size, bytes);
    code = safetensors_open(&tensors, "f/x.safetensors", &error);
    break;
  }
  default: fuzz_file("f/x.safetensors", data, size); code = safetensors_open(&tensors, "f/x.safetensors", &error);
  }
  fuzz_check(code, &error);
  if (!code) look(&tensors);
  safetensors_close(&tensors);
  fuzz_files_clear();
  return 0;
}
