// Traces for plait simulate --against: any bytes are read, or refused with a sentence.
#include "fuzz.h"
#include "foresight/against.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_file("t.json", data, size);
  Against against;
  Error error = {0};
  int code = against_read("t.json", &against, &error);
  fuzz_check(code, &error);
  CHECK(code || (against.ranks > 0 && against.steps > 0 && against.op.count > 0));
  for (int i = 0; i < against.op.count; i++)
    CHECK(against.op.data[i].measured >= 0 && against.op.data[i].runs >= 0 && isfinite(against.op.data[i].measured));
  against_free(&against);
  fuzz_files_clear();
  return 0;
}
