// tier 1; numbers
// Samples: every token of an epoch a target once, document masks, epochs, blends, evaluation, refusals.
#include "data/sampler.h"
#include "data/synthetic.h"
#include "scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char folder[64];
static char *first, *second;

static int setup(void **state) {
  scratch_create(folder);
  first = scratch_path(folder, "first");
  second = scratch_path(folder, "second");
  Error error = {0};
  return synthetic_corpus(first, 40, 1, 60, 500, 1, &error) | synthetic_corpus(second, 25, 5, 30, 500, 2, &error);
}
static int teardown(void **state) {
  free(first);
  free(second);
  scratch_remove(folder);
  return 0;
}

typedef struct Sample {
  int32_t tokens[64], targets[64], positions[64], documents[64];
} Sample;

static int read_sample(Sampler *s, int64_t i, Sample *out, Error *error) {
  memset(out, 0x55, sizeof *out);
  int code = sampler_read(s, i, out->tokens, out->targets, out->positions, out->documents, error);
  for (int j = s->config.seq_len; j < 64; j++) // nothing after the arrays
    assert_true(out->tokens[j] == 0x55555555 && out->documents[j] == 0x55555555);
  return code;
}

static void write_documents(const char *prefix, const int *lengths, int count) {
  Error error = {0};
  IndexedWriter w;
  uint32_t id = 10;
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_UINT16, &error), 0);
  for (int d = 0; d < count; d++) {
    uint32_t ids[100];
    for (int i = 0; i < lengths[d]; i++) ids[i] = id++;
    assert_int_equal(indexed_writer_add_document(&w, ids, lengths[d], &error), 0);
  }
  assert_int_equal(indexed_writer_commit(&w, &error), 0);
}

// In every epoch each window is drawn once, windows do not overlap, and the order and the offset change.
static void test_epochs(void **state) {
  Error error = {0};
  DataSource source = {first, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 13, .vocab_size = 500, .seed = 7};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  int64_t windows = s.windows[0], tokens = s.datasets[0].tokens;
  assert_int_equal(windows, (tokens - 1) / 13);
  assert_true((tokens - 1) % 13 != 0); // else the offset could not vary
  int offsets = 0, orders = 0;
  int64_t offset_before = -1, position_before = -1;
  for (int64_t epoch = 0; epoch < 20; epoch++) {
    int *target = xcalloc((size_t)tokens, sizeof *target);
    int64_t lowest = tokens;
    for (int64_t w = 0; w < windows; w++) {
      SampleSite site = sampler_locate(&s, epoch * windows + w);
      assert_int_equal(site.epoch, epoch);
      if (site.position < lowest) lowest = site.position;
      Sample sample;
      assert_int_equal(read_sample(&s, epoch * windows + w, &sample, &error), 0);
      int32_t truth[14];
      assert_int_equal(indexed_read(&s.datasets[0], site.position, 14, 500, truth, &error), 0);
      assert_memory_equal(sample.tokens, truth, 13 * 4);
      assert_memory_equal(sample.targets, truth + 1, 13 * 4);
      for (int j = 0; j < 13; j++) {
        target[site.position + 1 + j]++;
        assert_int_equal(sample.positions[j], j);
        assert_int_equal(sample.documents[j], 0);
      }
    }
    for (int64_t i = 0; i < tokens; i++) assert_int_equal(target[i], i > lowest && i <= lowest + windows * 13);
    free(target);
    offsets += lowest != offset_before;
    offset_before = lowest;
    int64_t start = sampler_locate(&s, epoch * windows).position;
    orders += start != position_before;
    position_before = start;
  }
  assert_true(offsets > 3 && orders > 15);
  sampler_close(&s);
  sampler_close(&s);
}

static void test_document_mask(void **state) {
  Error error = {0};
  char *prefix = scratch_path(folder, "mask");
  write_documents(prefix, (int[]){3, 0, 0, 1, 5, 4, 0}, 7); // ids 10 11 12 | 13 | 14 … 18 | 19 … 22
  DataSource source = {prefix, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 6, .document_mask = 1, .evaluation = 1};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  assert_int_equal(s.total, 2);
  Sample sample;
  assert_int_equal(read_sample(&s, 0, &sample, &error), 0);
  assert_memory_equal(sample.tokens, ((int32_t[]){10, 11, 12, 13, 14, 15}), 24);
  assert_memory_equal(sample.targets, ((int32_t[]){11, 12, -1, -1, 15, 16}), 24);
  assert_memory_equal(sample.positions, ((int32_t[]){0, 1, 2, 0, 0, 1}), 24);
  assert_memory_equal(sample.documents, ((int32_t[]){0, 0, 0, 1, 2, 2}), 24);
  assert_int_equal(read_sample(&s, 1, &sample, &error), 0); // begins within a document
  assert_memory_equal(sample.tokens, ((int32_t[]){16, 17, 18, 19, 20, 21}), 24);
  assert_memory_equal(sample.targets, ((int32_t[]){17, 18, -1, 20, 21, 22}), 24);
  assert_memory_equal(sample.positions, ((int32_t[]){0, 1, 2, 0, 1, 2}), 24);
  assert_memory_equal(sample.documents, ((int32_t[]){0, 0, 0, 1, 1, 1}), 24);
  assert_int_equal(read_sample(&s, 2, &sample, &error), 1); // after the end
  for (int j = 0; j < 6; j++) assert_true(sample.targets[j] == -1 && sample.tokens[j] == 0);
  sampler_close(&s);

  config.document_mask = 0;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  assert_int_equal(read_sample(&s, 0, &sample, &error), 0);
  assert_memory_equal(sample.targets, ((int32_t[]){11, 12, 13, 14, 15, 16}), 24);
  assert_memory_equal(sample.positions, ((int32_t[]){0, 1, 2, 3, 4, 5}), 24);
  assert_memory_equal(sample.documents, ((int32_t[]){0, 0, 0, 0, 0, 0}), 24);
  sampler_close(&s);

  config.document_mask = 1, config.seq_len = 7; // 12 targets: the second window has 5 and is filled up
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  assert_int_equal(s.total, 2);
  assert_int_equal(read_sample(&s, 1, &sample, &error), 0);
  assert_memory_equal(sample.tokens, ((int32_t[]){17, 18, 19, 20, 21, 0, 0}), 28);
  assert_memory_equal(sample.targets, ((int32_t[]){18, -1, 20, 21, 22, -1, -1}), 28);
  assert_memory_equal(sample.positions, ((int32_t[]){0, 1, 0, 1, 2, 0, 1}), 28);
  assert_memory_equal(sample.documents, ((int32_t[]){0, 0, 1, 1, 1, 2, 2}), 28);
  sampler_close(&s);
  free(prefix);
}

// On a ragged corpus, against the definition: position by position from the document table.
static void test_mask_against_definition(void **state) {
  Error error = {0};
  DataSource source = {first, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 29, .document_mask = 1, .seed = 3};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  const IndexedDataset *d = &s.datasets[0];
  for (int64_t i = 0; i < 3 * s.windows[0]; i++) {
    Sample sample;
    assert_int_equal(read_sample(&s, i, &sample, &error), 0);
    int64_t begin = sampler_locate(&s, i).position;
    for (int j = 0; j < 29; j++) {
      int64_t document = indexed_document_at(d, begin + j), start = indexed_document_begin(d, document);
      int last = begin + j + 1 == indexed_document_begin(d, document + 1);
      int32_t next;
      assert_int_equal(indexed_read(d, begin + j + 1, 1, 0, &next, &error), 0);
      assert_int_equal(sample.targets[j], last ? -1 : next);
      assert_int_equal(sample.tokens[j] == 499, last); // the corpus ends its documents so
      assert_int_equal(sample.positions[j], begin + j - (start > begin ? start : begin));
      int32_t before = j ? sample.documents[j - 1] : 0;
      assert_int_equal(sample.documents[j], before + (j && start == begin + j));
    }
  }
  sampler_close(&s);
}

// Of a part of the windows come the same tokens, targets, positions and documents as of all of each: at borders within
// documents, at their ends and after the end of an evaluation.
static void test_parts(void **state) {
  enum { SEQ = 24 };
  static const WindowPart parts[] = {{1, {{0, 24}}}, {1, {{7, 5}}}, {2, {{0, 6}, {18, 6}}}, {2, {{6, 6}, {12, 6}}},
                                     {2, {{5, 1}, {9, 15}}}};
  DataSource source = {first, 1};
  int filled = 0;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
    for (int way = 0; way < 4; way++) {
      Error error = {0};
      SamplerConfig config = {.sources = &source,
                              .source_count = 1,
                              .seq_len = SEQ,
                              .document_mask = way & 1,
                              .evaluation = way >> 1,
                              .seed = 3};
      Sampler whole, part;
      assert_int_equal(sampler_open(&whole, &config, &error), 0);
      config.part = parts[k];
      assert_int_equal(sampler_open(&part, &config, &error), 0);
      int length = window_part_length(&config.part, SEQ);
      for (int64_t i = 0; i < whole.windows[0] + 1; i++) {
        Sample a, b;
        int32_t of[64];
        int code = read_sample(&whole, i, &a, &error);
        memset(&b, 0x55, sizeof b);
        assert_int_equal(sampler_read(&part, i, b.tokens, b.targets, b.positions, b.documents, &error), code);
        const int32_t *const arrays[][2] = {
            {a.tokens, b.tokens}, {a.targets, b.targets}, {a.positions, b.positions}, {a.documents, b.documents}};
        for (int n = 0; n < 4; n++) {
          window_part_take(&config.part, SEQ, arrays[n][0], of);
          assert_memory_equal(arrays[n][1], of, (size_t)length * sizeof *of);
          assert_int_equal(arrays[n][1][length], 0x55555555);
        }
        filled += way >> 1 && !code && a.targets[SEQ - 1] < 0 && a.targets[SEQ - 2] < 0;
      }
      sampler_close(&whole);
      sampler_close(&part);
    }
  assert_true(filled > 0);
}

static void test_blend_of_two(void **state) {
  Error error = {0};
  DataSource sources[] = {{first, 3}, {second, 1}};
  SamplerConfig config = {.sources = sources, .source_count = 2, .seq_len = 8, .seed = 11};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  int64_t drawn[2] = {0};
  for (int64_t i = 0; i < 2000; i++) {
    SampleSite site = sampler_locate(&s, i);
    assert_int_equal(site.epoch, drawn[site.dataset]++ / s.windows[site.dataset]); // an epoch counter each
  }
  assert_in_range(drawn[0], 1490, 1510);
  sampler_close(&s);
}

static void test_seed(void **state) {
  Error error = {0};
  DataSource source = {first, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 8, .seed = 1};
  Sampler a, again, b;
  assert_int_equal(sampler_open(&a, &config, &error), 0);
  assert_int_equal(sampler_open(&again, &config, &error), 0);
  config.seed = 2;
  assert_int_equal(sampler_open(&b, &config, &error), 0);
  int different = 0;
  for (int64_t i = 0; i < 100; i++) {
    assert_int_equal(sampler_locate(&a, i).position, sampler_locate(&again, i).position);
    different += sampler_locate(&a, i).position != sampler_locate(&b, i).position;
  }
  assert_true(different > 80);
  sampler_close(&a);
  sampler_close(&again);
  sampler_close(&b);
}

// Every token but each dataset's first is a target exactly once, in order.
static void test_evaluation(void **state) {
  Error error = {0};
  DataSource sources[] = {{first, 0}, {second, 0}};
  SamplerConfig config = {.sources = sources, .source_count = 2, .seq_len = 17, .evaluation = 1, .seed = 5};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  int dataset = 0;
  int64_t at = 1;
  for (int64_t i = 0; i < s.total; i++) {
    Sample sample;
    assert_int_equal(read_sample(&s, i, &sample, &error), 0);
    for (int j = 0; j < 17; j++) {
      if (at == s.datasets[dataset].tokens) {
        assert_int_equal(sample.targets[j], -1);
        continue;
      }
      int32_t truth;
      assert_int_equal(indexed_read(&s.datasets[dataset], at++, 1, 0, &truth, &error), 0);
      assert_int_equal(sample.targets[j], truth);
    }
    if (at == s.datasets[dataset].tokens && dataset == 0) dataset = 1, at = 1;
  }
  assert_int_equal(at, s.datasets[1].tokens);
  sampler_close(&s);
}

// ---- data.split ----

enum { DOCUMENTS = 700 }; // more than a block of the stream's table

// Documents 0 … count-1 of ragged lengths, some empty; every token of one is its number.
static void write_numbered(const char *prefix, int count) {
  Error error = {0};
  IndexedWriter w;
  assert_int_equal(indexed_writer_begin(&w, prefix, INDEXED_UINT16, &error), 0);
  for (int d = 0; d < count; d++) {
    uint32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = (uint32_t)d;
    assert_int_equal(indexed_writer_add_document(&w, ids, d * 7 % 40, &error), 0);
  }
  assert_int_equal(indexed_writer_commit(&w, &error), 0);
}

// Which documents of dataset `which` the samples show, seen (DOCUMENTS); tokens must be those of the dataset in order.
static void see(SamplerConfig config, int which, int64_t samples, char *seen) {
  Error error = {0};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  memset(seen, 0, DOCUMENTS);
  if (config.evaluation) samples = s.total;
  for (int64_t i = 0; i < samples; i++) {
    Sample sample;
    assert_int_equal(read_sample(&s, i, &sample, &error), 0);
    if (sampler_locate(&s, i).dataset != which) continue;
    for (int j = 0; j < config.seq_len; j++) {
      if (sample.targets[j] < 0 && !config.document_mask) continue; // filled up
      if (sample.targets[j] >= 0 && config.document_mask) assert_int_equal(sample.targets[j], sample.tokens[j]);
      if (sample.targets[j] >= 0) seen[sample.tokens[j]] = seen[sample.targets[j]] = 1;
      if (j && sample.targets[j - 1] >= 0 && sample.targets[j] >= 0)
        assert_true(sample.tokens[j] >= sample.tokens[j - 1]);
    }
  }
  sampler_close(&s);
}

// Training and evaluation share no document and leave none out, whatever the seed, the blend and the documents after
// them.
static void test_split(void **state) {
  char *numbered = scratch_path(folder, "numbered"), *longer = scratch_path(folder, "longer");
  write_numbered(numbered, DOCUMENTS - 100);
  write_numbered(longer, DOCUMENTS);
  DataSource sources[] = {{numbered, 1}, {second, 1}}, other[] = {{second, 3}, {numbered, 1}}, more = {longer, 1};
  static char held[DOCUMENTS], kept[DOCUMENTS], again[DOCUMENTS];
  for (int mask = 0; mask < 2; mask++) {
    SamplerConfig config = {
        .sources = sources, .source_count = 1, .seq_len = 9, .document_mask = mask, .evaluation = 1, .split = 0.1};
    see(config, 0, 0, held);
    config.evaluation = 0, config.seed = 1;
    see(config, 0, 20000, kept); // several epochs
    int held_out = 0;
    for (int d = 0; d < DOCUMENTS - 100; d++) {
      if (held[d] && kept[d]) fail_msg("document %d is trained on and held out", d);
      if (!held[d] && !kept[d] && d * 7 % 40 > 1) fail_msg("document %d is nowhere", d);
      held_out += held[d];
    }
    assert_true(held_out > 30 && held_out < 90); // of 600
    config.seed = 2;
    see(config, 0, 20000, again);
    assert_memory_equal(kept, again, DOCUMENTS);
    config.sources = other, config.source_count = 2, config.evaluation = 1;
    see(config, 1, 0, again);
    assert_memory_equal(held, again, DOCUMENTS);
    config.sources = &more, config.source_count = 1;
    see(config, 0, 0, again);
    assert_memory_equal(held, again, DOCUMENTS - 100);
  }
  free(numbered);
  free(longer);
}

static void test_split_of_few(void **state) {
  Error error = {0};
  char *prefix = scratch_path(folder, "few");
  DataSource source = {prefix, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 4};
  Sampler s;
  write_documents(prefix, (int[]){20, 20}, 2); // one each, however small or large the fraction
  for (int i = 0; i < 4; i++) {
    config.split = i / 2 ? 0.5 : 1e-6, config.evaluation = i % 2;
    assert_int_equal(sampler_open(&s, &config, &error), 0);
    assert_int_equal(s.streams[0].documents, 1);
    assert_int_equal(s.streams[0].all, 2);
    sampler_close(&s);
  }
  write_documents(prefix, (int[]){20, 0}, 2);
  assert_int_equal(sampler_open(&s, &config, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "data.split holds out whole documents, but"));
  assert_non_null(strstr(error.message, "few has only 1, and each text file is one; cut the text into files"));
  error = (Error){0};
  write_documents(prefix, (int[]){3, 4}, 2);
  config.evaluation = 0;
  assert_int_equal(sampler_open(&s, &config, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "the part that data.split leaves for training has"));
  free(prefix);
}

// Held-out documents of the first `count` of a corpus that grows, held (DOCUMENTS).
static int hold_out(const char *prefix, int count, double split, char *held) {
  Error error = {0};
  IndexedDataset dataset;
  Stream s;
  int lengths[40];
  for (int d = 0; d < count; d++) lengths[d] = 5;
  write_documents(prefix, lengths, count);
  assert_int_equal(indexed_open(&dataset, prefix, &error), 0);
  assert_int_equal(stream_open(&s, &dataset, split, STREAM_HELD_OUT, &error), 0);
  memset(held, 0, DOCUMENTS);
  StreamDocument d = stream_document_at(&s, 0);
  for (int64_t i = 0;; d = stream_document_after(&s, d)) {
    held[d.number] = 1;
    if (++i == s.documents) break;
  }
  int documents = (int)s.documents;
  stream_close(&s);
  indexed_close(&dataset);
  return documents;
}

// One document at least is held out, and one stays. Appended documents change which one that is, and nothing else.
static void test_small_split_grows(void **state) {
  static char before[DOCUMENTS], held[DOCUMENTS];
  char *prefix = scratch_path(folder, "growing");
  int moved = 0;
  for (int i = 0; i < 4; i++) {
    double split = (const double[]){0.02, 0.1, 0.5, 0.98}[i];
    int had = hold_out(prefix, 2, split, before);
    for (int n = 3; n <= 40; n++) {
      int has = hold_out(prefix, n, split, held), same = !memcmp(before, held, (size_t)n - 1);
      assert_true(has >= 1 && has < n);
      if (!same && had > 1 && had < n - 2) fail_msg("document %d changes a split %g of %d documents", n, split, n - 1);
      moved += !same;
      had = has;
      memcpy(before, held, DOCUMENTS);
    }
  }
  assert_true(moved > 0);
  free(prefix);
}

static void test_refusals(void **state) {
  Error error = {0};
  char *prefix = scratch_path(folder, "short");
  write_documents(prefix, (int[]){8}, 1);
  DataSource source = {prefix, 1};
  SamplerConfig config = {.sources = &source, .source_count = 1, .seq_len = 8};
  Sampler s;
  assert_int_equal(sampler_open(&s, &config, &error), PLAIT_BAD_INPUT);
  assert_non_null(
      strstr(error.message, "short.bin: too short: one window needs 9 tokens (seq_len + 1), the dataset has 8"));
  config.seq_len = 7;
  error = (Error){0};
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  Sample sample;
  assert_int_equal(read_sample(&s, 123, &sample, &error), 0); // one window an epoch
  sampler_close(&s);
  config.vocab_size = 17; // the corpus has ids 10 … 17
  assert_int_equal(sampler_open(&s, &config, &error), 0);
  assert_int_equal(read_sample(&s, 0, &sample, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "short.bin: the token at position 7 has id 17"));
  sampler_close(&s);
  error = (Error){0};
  source.weight = 0;
  assert_int_equal(sampler_open(&s, &config, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "weight"));
  error = (Error){0};
  source.prefix = "/no/such/corpus";
  assert_int_equal(sampler_open(&s, &config, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "/no/such/corpus.idx"));
  free(prefix);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_epochs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_document_mask, setup, teardown),
      cmocka_unit_test_setup_teardown(test_mask_against_definition, setup, teardown),
      cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_blend_of_two, setup, teardown),
      cmocka_unit_test_setup_teardown(test_seed, setup, teardown),
      cmocka_unit_test_setup_teardown(test_evaluation, setup, teardown),
      cmocka_unit_test_setup_teardown(test_split, setup, teardown),
      cmocka_unit_test_setup_teardown(test_split_of_few, setup, teardown),
      cmocka_unit_test_setup_teardown(test_small_split_grows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
