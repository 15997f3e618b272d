// plait tokenize: text files → an indexed dataset of token ids, or a trained tokenizer.
#include "base/signals.h"
#include "base/clock.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "data/indexed.h"
#include "data/tokenizer.h"
#include "data/tokenizer_corpus.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct Tokenize {
  const char *tokenizer, *out, *files_from, *eot;
  int64_t vocab_size, threads;
  bool train, vocab_size_given, eot_given;
  Vec(char *) files; // owned
  int64_t bytes;     // of all files
  // while it runs
  IndexedWriter writer;
  uint32_t end; // id after each document
  bool has_end;
  double started, shown;
} Tokenize;

static int usable_cores(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? n : 1;
}

// ---- which files ---------------------------------------------------------------------------------------------------

static int read_list(Tokenize *job, Error *error) {
  int from_stdin = !strcmp(job->files_from, "-");
  FILE *list = from_stdin ? stdin : fopen(job->files_from, "r");
  if (!list) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", job->files_from, strerror(errno));
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t n; (n = getline(&line, &capacity, list)) >= 0;) {
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
    if (n > 0) vec_push(&job->files, xstrdup(line));
  }
  int failed = ferror(list);
  free(line);
  if (!from_stdin) fclose(list);
  return failed ? error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read", job->files_from) : PLAIT_OK;
}

// Looks at every file before work begins: a wrong name at the end of a list should not cost an hour.
static int check_files(Tokenize *job, Error *error) {
  for (int i = 0; i < job->files.count; i++) {
    const char *path = job->files.data[i];
    struct stat st;
    if (stat(path, &st) < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return error_set(error, PLAIT_BAD_INPUT, "%s: not a regular file", path);
    if (access(path, R_OK) < 0)
      return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    job->bytes += st.st_size;
  }
  if (job->files.count) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "no FILES are given: name them, or a list of them with --files-from");
}

static int check_options(const Tokenize *job, Error *error) {
  if (job->train && job->tokenizer)
    return error_set(error, PLAIT_BAD_INPUT, "--train makes a tokenizer, so it takes no --tokenizer");
  if (job->train && job->eot_given) return error_set(error, PLAIT_BAD_INPUT, "--eot does not go with --train");
  if (!job->train && !job->tokenizer)
    return error_set(error, PLAIT_BAD_INPUT, "--tokenizer is missing (or --train, to make one)");
  if (!job->train && job->vocab_size_given)
    return error_set(error, PLAIT_BAD_INPUT, "--vocab-size goes with --train only");
  return PLAIT_OK;
}

// A first tokenizer is often to lie in a folder that nobody has made yet.
static int make_folder(const char *out, Error *error) {
  char *folder = xstrdup(out), *slash = strrchr(folder, '/');
  if (slash) *slash = 0;
  int code = slash && slash != folder ? folder_create(folder, error) : PLAIT_OK;
  free(folder);
  return code;
}

// ---- training ------------------------------------------------------------------------------------------------------

static int train(Tokenize *job, Error *error) {
  Tokenizer *t;
  int code = make_folder(job->out, error);
  if (code >= 0) code = tokenizer_train((const char *const *)job->files.data, job->files.count, (int)job->vocab_size,
                             (int)job->threads, &t, error);
  if (code < 0) return code;
  code = tokenizer_save(t, job->out, error);
  int size = tokenizer_vocab_size(t);
  tokenizer_destroy(t);
  if (code < 0) return code;
  if (size < job->vocab_size)
    fprintf(stderr, "plait tokenize: note: the text gives a vocabulary of %d only, no further pair occurs twice\n",
            size);
  double seconds = clock_seconds() - job->started;
  printf("%s: vocabulary %d from %d files, %s, %.1f MB/s, %.1f s\n", job->out, size, job->files.count,
         units_bytes((double)job->bytes).s, (double)job->bytes / 1e6 / seconds, seconds);
  return code;
}

// ---- tokenizing ----------------------------------------------------------------------------------------------------

static int write_ids(void *argument, const int32_t *ids, int64_t count, int ends, Error *error) {
  Tokenize *job = argument;
  int code = count ? indexed_writer_add_tokens(&job->writer, (const uint32_t *)ids, count, error) : PLAIT_OK;
  if (code >= 0 && ends && job->has_end) code = indexed_writer_add_tokens(&job->writer, &job->end, 1, error);
  if (code >= 0 && ends) code = indexed_writer_end_document(&job->writer, error);
  return code;
}

static int show_progress(void *argument, const CorpusCounts *counts, Error *error) {
  Tokenize *job = argument;
  double t = clock_seconds();
  if (signals_stop())
    return error_set(error, PLAIT_INTERRUPTED, "stopped by %s, nothing was written", signals_name(signals_number()));
  if (!isatty(STDERR_FILENO) || t < job->shown + 0.5) return PLAIT_OK;
  job->shown = t;
  fprintf(stderr, "\r\033[K%s of %s, %s tokens, %.1f MB/s", units_bytes((double)counts->bytes).s,
          units_bytes((double)job->bytes).s, units_count((double)counts->tokens).s,
          (double)counts->bytes / 1e6 / (t - job->started));
  return PLAIT_OK;
}

static int choose_end(Tokenize *job, const Tokenizer *t, Error *error) {
  int32_t id = tokenizer_eot(t);
  if (job->eot_given && !strcmp(job->eot, "none")) return PLAIT_OK;
  if (job->eot_given && (id = tokenizer_id(t, job->eot)) < 0)
    return error_set(error, PLAIT_BAD_INPUT, "--eot %s: %s has no such token", job->eot, job->tokenizer);
  if (id < 0)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s: has no end-of-text token that plait knows: name it with --eot TOKEN, or say --eot none",
                     job->tokenizer);
  job->end = (uint32_t)id;
  job->has_end = true;
  return PLAIT_OK;
}

static void print_summary(const Tokenize *job, const CorpusCounts *counts, int64_t tokens) {
  double seconds = clock_seconds() - job->started, bytes = (double)counts->bytes;
  if (job->shown > 0) fputs("\r\033[K", stderr);
  if (counts->empty)
    fprintf(stderr, "plait tokenize: note: %lld empty documents were left out\n", (long long)counts->empty);
  printf("%s: %lld documents, %lld tokens, %lld bytes, %.3f bytes a token, %.1f MB/s, %.1f s\n", job->out,
         (long long)counts->documents, (long long)tokens, (long long)counts->bytes,
         tokens ? bytes / (double)tokens : 0.0, bytes / 1e6 / seconds, seconds);
}

static int encode_files(Tokenize *job, const Tokenizer *t, Error *error) {
  CorpusOptions options = {
      .threads = (int)job->threads, .write = write_ids, .progress = show_progress, .argument = job};
  CorpusCounts counts;
  int code = choose_end(job, t, error);
  if (code >= 0) code = make_folder(job->out, error);
  if (code >= 0) code = indexed_writer_begin(&job->writer, job->out, indexed_type_for(tokenizer_vocab_size(t)), error);
  if (code < 0) return code;
  code = corpus_encode(t, (const char *const *)job->files.data, job->files.count, &options, &counts, error);
  if (code >= 0 && !counts.documents)
    code = error_set(error, PLAIT_BAD_INPUT, "%s%s: no text, only empty documents", job->files.data[0],
                     job->files.count > 1 ? " …" : "");
  if (code >= 0) {
    int64_t tokens = job->writer.tokens;
    code = indexed_writer_commit(&job->writer, error);
    if (code >= 0) print_summary(job, &counts, tokens);
  }
  indexed_writer_abandon(&job->writer);
  return code;
}

static int tokenize(Tokenize *job, Error *error) {
  Tokenizer *t;
  int code = tokenizer_load(job->tokenizer, &t, error);
  if (code < 0) return code;
  code = encode_files(job, t, error);
  tokenizer_destroy(t);
  return code;
}

static int run(Tokenize *job, Operands operands, Error *error) {
  int code = check_options(job, error);
  for (int i = 0; i < operands.count; i++) vec_push(&job->files, xstrdup(operands.words[i]));
  if (code >= 0 && job->files_from) code = read_list(job, error);
  if (code >= 0) code = check_files(job, error);
  if (code < 0) return code;
  if (!job->threads) job->threads = usable_cores();
  if (!job->train) signals_install(NULL); // training holds no file open: a signal may end it at once
  job->started = clock_seconds();
  return job->train ? train(job, error) : tokenize(job, error);
}

int cmd_tokenize(int argc, char **argv) {
  Tokenize job = {.vocab_size = 32768};
  const Option options[] = {
      {"tokenizer", OPTION_TEXT, &job.tokenizer, "FILE", "tokenizer.json (Hugging Face), or a folder that holds one",
       .required = false},
      {"out", OPTION_TEXT, &job.out, "PREFIX", "writes PREFIX.bin and PREFIX.idx; with --train the tokenizer.json",
       .required = true},
      {"train", OPTION_FLAG, &job.train, NULL, "train a byte-level BPE tokenizer on FILES", .required = false},
      {"vocab-size", OPTION_INTEGER, &job.vocab_size, "N", "entries of the vocabulary, with --train", .least = 257,
       .most = 1 << 20, .given = &job.vocab_size_given},
      {"files-from", OPTION_TEXT, &job.files_from, "LIST", "more FILES, one path a line; - is the standard input",
       .required = false},
      {"eot", OPTION_TEXT, &job.eot, "TOKEN",
       "the token after each document instead of the tokenizer's end-of-text, or none", .given = &job.eot_given},
      {"threads", OPTION_INTEGER, &job.threads, "N", "threads; 0: all cores. The ids are the same for any number",
       .least = 0, .most = 4096},
  };
  const CommandHelp help = {
      "tokenize", "[options] FILES…",
      "Turns text into token ids (a Megatron indexed dataset), or trains a tokenizer.\n"
      "A .jsonl holds a document a line, its text under the key \"text\"; any other file is one document. An "
      "end-of-text\n"
      "token follows each document. A special token that is spelled out in a text becomes that token. Bytes that are "
      "not\n"
      "UTF-8 are kept. Empty documents are left out.",
      "  plait tokenize --train --vocab-size 1024 --out data/tokenizer.json corpus/*.txt\n"
      "  plait tokenize --tokenizer data/tokenizer.json --out data/corpus corpus/*.txt more.jsonl\n"
      "  find corpus -name '*.h' | sort | plait tokenize --tokenizer models/mine --out data/c --files-from -\n"};
  Operands operands;
  Error error = {0};
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  int code = run(&job, operands, &error);
  for (int i = 0; i < job.files.count; i++) free(job.files.data[i]);
  vec_free(&job.files);
  if (code >= 0) return 0;
  if (job.shown > 0) fputs("\r\033[K", stderr);
  return command_fail("tokenize", &error);
}
