// plait tokenize: text files → an indexed dataset of token ids, or a trained tokenizer.
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/units.h"
#include "cmd/cmd.h"
#include "cli/options.h"
#include "data/document_marks.h"
#include "data/indexed.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_corpus.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct Tokenize {
  const char *tokenizer, *out, *files_from, *bos, *eot;
  int64_t vocab_size, threads;
  bool train, vocab_size_given, force, jsonl, as_text, plain_control_tokens;
  Vec(char *) files; // owned
  int64_t bytes;     // of all files; -1: not known beforehand (pipes, packed files)
  int64_t characters; // of the texts, while a tokenizer is trained
  int complaints;    // files that do not look like text
  const char *key, *skip_bad;
  int64_t skip, skipped; // lines that may be skipped and were; most: INT64_MAX
  AtomicFile bad_lines;  // which these are, while skipped > 0
  int64_t no_text, halves, control_tokens; // as in TextCheck, of all files
  int64_t missed;    // bytes that the vocabulary lacks
  int missed_files;
  const char *found; // the first file whose contents say that it holds lines of JSON
  int found_files;
  // while it runs
  IndexedWriter writer;
  DocumentMarks marks;
  bool inside; // of a document
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

static int check_file(Tokenize *job, const char *path, Error *error) {
  struct stat st;
  if (stat(path, &st) < 0) return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  if (S_ISDIR(st.st_mode)) return error_set(error, PLAIT_BAD_INPUT, "%s: is a folder; name the files in it", path);
  if (access(path, R_OK) < 0)
    return error_set(error, PLAIT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  TextKindOptions how = {job->key, job->jsonl, job->as_text};
  int packed = S_ISREG(st.st_mode) ? text_kind_check(path, &how, error) : 1;
  if (packed) job->bytes = -1;
  else if (job->bytes >= 0) job->bytes += st.st_size;
  return packed < 0 ? packed : PLAIT_OK;
}

// Looks at every file before work begins: a wrong name at the end of a list should not cost an hour.
static int check_files(Tokenize *job, Error *error) {
  int from_stdin = job->files_from && !strcmp(job->files_from, "-"), refused = 0;
  Error first = {0};
  for (int i = 0; i < job->files.count; i++) {
    Error one = {0};
    int code = PLAIT_OK;
    if (strcmp(job->files.data[i], "-")) code = check_file(job, job->files.data[i], &one);
    else if (from_stdin++)
      code = error_set(&one, PLAIT_BAD_INPUT, "- (the standard input) is given twice, it can be read only once");
    else job->bytes = -1;
    if (code && !refused++) first = one;
  }
  if (refused == 1) *error = first;
  if (refused > 1)
    error_set(error, first.code, "%s; %d more of the FILES cannot be taken", first.message, refused - 1);
  if (refused || job->files.count) return refused ? error->code : PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "no FILES are given: name them (- is the standard input), or a list of them with --files-from");
}

static int check_vacant(const char *path, Error *error) {
  if (!file_exists(path)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--out: %s exists already; give another name, or --force to replace it",
                   path);
}

// Existing files are replaced only with --force.
static int check_out(const Tokenize *job, Error *error) {
  if (job->force) return PLAIT_OK;
  if (job->train) return check_vacant(job->out, error);
  char *bin = xformat("%s.bin", job->out), *idx = xformat("%s.idx", job->out);
  int code = check_vacant(bin, error);
  if (!code) code = check_vacant(idx, error);
  free(bin);
  free(idx);
  return code;
}

// --skip-bad N|all
static int read_skip(Tokenize *job, Error *error) {
  char *end = NULL;
  if (!job->skip_bad) return PLAIT_OK;
  job->skip = !strcmp(job->skip_bad, "all") ? INT64_MAX : strtoll(job->skip_bad, &end, 10);
  if (job->skip >= 0 && (!end || (end != job->skip_bad && !*end))) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--skip-bad is \"%s\"; allowed: a number of lines from 0, or all",
                   job->skip_bad);
}

static int check_options(const Tokenize *job, Error *error) {
  if (job->as_text && job->jsonl)
    return error_set(error, PLAIT_BAD_INPUT, "--as-text does not go with --jsonl: give one of them");
  if (job->train && job->tokenizer)
    return error_set(error, PLAIT_BAD_INPUT, "--train makes a tokenizer, so it takes no --tokenizer");
  if (job->train && (job->bos || job->eot))
    return error_set(error, PLAIT_BAD_INPUT, "--%s does not go with --train", job->bos ? "bos" : "eot");
  if (job->train && job->plain_control_tokens)
    return error_set(error, PLAIT_BAD_INPUT, "--plain-control-tokens does not go with --train");
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

// "" where the sizes of the files do not say how much text there is.
static UnitText rate_of(double bytes, double seconds) {
  UnitText text = {""};
  if (bytes >= 0) snprintf(text.s, sizeof text.s, ", %.1f MB/s", bytes / 1e6 / seconds);
  return text;
}

enum { COMPLAINTS = 10 }; // files that are named; of the others only their number is said

// Says it with the first file that has such bytes; how many all files have is said at the end.
static void complain_of_missed(Tokenize *job, const char *path, const TextCheck *check) {
  char place[60];
  if (!check->missed) return;
  job->missed += check->missed;
  if (job->missed_files++) return;
  text_check_place(check, place, sizeof place);
  if (job->shown > 0) fputs("\r\033[K", stderr);
  fprintf(stderr,
          "plait tokenize: warning: %s: the tokenizer's vocabulary lacks %lld byte%s of this text, the first %s; %s\n",
          path, (long long)check->missed, check->missed > 1 ? "s" : "", place,
          check->unknown ? "the unknown token stands for such bytes"
                         : "such bytes are left out, and decoding does not bring them back");
}

// Lines that --skip-bad skips are listed in a file beside the result.
static int skip_line(void *argument, const char *path, int64_t line, const char *why, Error *error) {
  Tokenize *job = argument;
  if (job->skipped == job->skip)
    return error_set(error, PLAIT_BAD_INPUT, "%s: line %lld: %s (and %lld lines were skipped, as --skip-bad allows)",
                     path, (long long)line, why, (long long)job->skipped);
  if (!job->skipped++) {
    char *list = xformat("%s.skipped", job->out);
    int code = file_begin(&job->bad_lines, list, error);
    free(list);
    if (code < 0) return job->skipped = 0, code;
  }
  fprintf(job->bad_lines.stream, "%s: line %lld: %s\n", path, (long long)line, why); // commit sees an error
  return PLAIT_OK;
}

static CorpusLines lines_of(const Tokenize *job) {
  return (CorpusLines){job->key, job->skip ? skip_line : NULL};
}

// After the result is complete.
static int keep_skipped(Tokenize *job, Error *error) {
  if (job->no_text)
    fprintf(stderr, "plait tokenize: note: %lld lines have no text (null) and were left out\n",
            (long long)job->no_text);
  if (job->halves)
    fprintf(stderr, "plait tokenize: note: %lld halves of surrogate pairs became U+FFFD\n", (long long)job->halves);
  char *list = xformat("%s.skipped", job->out);
  if (!job->skipped && job->force) unlink(list); // of what was replaced
  free(list);
  if (!job->skipped) return PLAIT_OK;
  int64_t skipped = job->skipped;
  job->skipped = 0;
  int code = file_commit(&job->bad_lines, error);
  if (!code)
    fprintf(stderr, "plait tokenize: note: %lld bad lines were skipped; %s.skipped lists them\n", (long long)skipped,
            job->out);
  return code;
}

// At the end of a file. Without --as-text, data that is not text ends the command.
static int complain(void *argument, const char *path, const TextCheck *check, Error *error) {
  Tokenize *job = argument;
  job->characters += check->characters;
  job->no_text += check->no_text;
  job->halves += check->halves;
  job->control_tokens += check->control_tokens;
  char why[300];
  if (check->lines_found && !job->found_files++) job->found = path;
  TextVerdict verdict = text_check_verdict(check, why, sizeof why);
  if (verdict == TEXT_IS_NONE && !job->as_text)
    return error_set(error, PLAIT_BAD_INPUT, "%s %s (--as-text takes FILES as text, whatever they are)", path, why);
  complain_of_missed(job, path, check);
  if (verdict == TEXT_IS_FINE || job->complaints++ >= COMPLAINTS) return PLAIT_OK;
  if (job->shown > 0) fputs("\r\033[K", stderr);
  fprintf(stderr, "plait tokenize: warning: %s %s\n", path, why);
  return PLAIT_OK;
}

static void complain_of_more(const Tokenize *job) {
  if (job->found_files == 1)
    fprintf(stderr,
            "plait tokenize: note: %s holds lines of JSON: each is a document (--as-text takes the file as one text)\n",
            job->found);
  if (job->found_files > 1)
    fprintf(stderr,
            "plait tokenize: note: %s and %d more files hold lines of JSON: each is a document (--as-text takes a file "
            "as one text)\n",
            job->found, job->found_files - 1);
  if (job->complaints > COMPLAINTS)
    fprintf(stderr, "plait tokenize: warning: %d more files do not look like text\n", job->complaints - COMPLAINTS);
}

static int train(Tokenize *job, Error *error) {
  Tokenizer *t;
  const CorpusFiles files = {.paths = (const char *const *)job->files.data,
                             .count = job->files.count,
                             .lines = job->jsonl,
                             .as_text = job->as_text,
                             .how = lines_of(job),
                             .checked = complain,
                             .argument = job};
  int code = make_folder(job->out, error);
  if (code >= 0) code = tokenizer_train_files(&files, (int)job->vocab_size, (int)job->threads, &t, error);
  if (code < 0) return code;
  if (!job->characters) {
    tokenizer_destroy(t);
    return error_set(error, PLAIT_BAD_INPUT, "%s%s: no text, only empty documents",
                     text_stream_name(job->files.data[0]),
                     job->files.count > 1 ? " …" : "");
  }
  signals_install(NULL); // until here no file was open, and a signal ended it at once
  code = tokenizer_save(t, job->out, error);
  int size = tokenizer_vocab_size(t);
  tokenizer_destroy(t);
  if (code < 0) return code;
  complain_of_more(job);
  if ((code = keep_skipped(job, error)) < 0) return code;
  if (size < job->vocab_size)
    fprintf(stderr, "plait tokenize: note: the text gives a vocabulary of %d only, no further pair occurs twice\n",
            size);
  double seconds = clock_seconds() - job->started, bytes = (double)job->bytes;
  printf("%s: vocabulary %d from %d file%s%s%s%s, %.1f s\n", job->out, size, job->files.count,
         job->files.count > 1 ? "s" : "", bytes >= 0 ? ", " : "", bytes >= 0 ? units_bytes(bytes).s : "",
         rate_of(bytes, seconds).s, seconds);
  return code;
}

// ---- tokenizing ----------------------------------------------------------------------------------------------------

static int write_ids(void *argument, const int32_t *ids, int64_t count, int ends, Error *error) {
  Tokenize *job = argument;
  const DocumentMarks *m = &job->marks;
  int code = PLAIT_OK;
  if (FAULT(begin_only_the_first_document, !job->inside, !job->writer.documents && !job->inside))
    code = indexed_writer_add_tokens(&job->writer, (const uint32_t *)m->begin, m->begins, error);
  if (code >= 0 && count) code = indexed_writer_add_tokens(&job->writer, (const uint32_t *)ids, count, error);
  if (code >= 0 && ends && m->end >= 0)
    code = indexed_writer_add_tokens(&job->writer, &(uint32_t){(uint32_t)m->end}, 1, error);
  if (code >= 0 && ends) code = indexed_writer_end_document(&job->writer, error);
  job->inside = !ends;
  return code;
}

static int show_progress(void *argument, const CorpusCounts *counts, Error *error) {
  Tokenize *job = argument;
  double t = clock_seconds();
  if (signals_stop())
    return error_set(error, PLAIT_INTERRUPTED, "stopped by %s, nothing was written", signals_name(signals_number()));
  if (!isatty(STDERR_FILENO) || t < job->shown + 0.5) return PLAIT_OK;
  job->shown = t;
  fprintf(stderr, "\r\033[K%s%s%s, %s tokens, %.1f MB/s", units_bytes((double)counts->bytes).s,
          job->bytes >= 0 ? " of " : "", job->bytes >= 0 ? units_bytes((double)job->bytes).s : "",
          units_count((double)counts->tokens).s, (double)counts->bytes / 1e6 / (t - job->started));
  return PLAIT_OK;
}

// --bos and --eot: a token, or none.
static int choose_mark(const Tokenize *job, const Tokenizer *t, const char *option, const char *word, int32_t *id,
                       char *from, Error *error) {
  snprintf(from, sizeof job->marks.end_from, "%s", option);
  *id = -1;
  if (!strcmp(word, "none") || (*id = tokenizer_id(t, word)) >= 0) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s %s: %s has no such token", option, word, job->tokenizer);
}

// The tokens that begin and end documents: those of the tokenizer's folder, but for those that are given.
static int choose_marks(Tokenize *job, const Tokenizer *t, Error *error) {
  DocumentMarks *m = &job->marks;
  int code = document_marks_of(t, job->tokenizer, m, error);
  if (code >= 0 && m->contradicts && !job->bos)
    fprintf(stderr,
            "plait tokenize: note: %s: tokenizer_config.json says add_bos_token: %s, and the post-processor of "
            "tokenizer.json does otherwise (transformers 5 asks it alone); --bos none or --bos TOKEN chooses\n",
            job->tokenizer, m->begins ? "true" : "false");
  if (code >= 0 && job->bos) {
    code = choose_mark(job, t, "--bos", job->bos, m->begin, m->begin_from, error);
    m->begins = m->begin[0] >= 0;
  }
  if (code >= 0 && job->eot) code = choose_mark(job, t, "--eot", job->eot, &m->end, m->end_from, error);
  if (code < 0 || m->end >= 0 || job->eot) return code;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%s: nothing says which token ends a text: name it with --eot TOKEN, or say --eot none",
                   job->tokenizer);
}

static void print_summary(const Tokenize *job, const Tokenizer *t, const CorpusCounts *counts, int64_t tokens) {
  double seconds = clock_seconds() - job->started, bytes = (double)counts->bytes;
  if (job->shown > 0) fputs("\r\033[K", stderr);
  complain_of_more(job);
  if (job->missed_files > 1)
    fprintf(stderr, "plait tokenize: warning: in all, %d files have %lld bytes that the vocabulary lacks\n",
            job->missed_files, (long long)job->missed);
  if (counts->empty)
    fprintf(stderr, "plait tokenize: note: %lld empty documents were left out\n", (long long)counts->empty);
  printf("%s: %lld document%s, %lld tokens, %lld bytes, %.3f bytes a token, %.1f MB/s, %.1f s\n", job->out,
         (long long)counts->documents, counts->documents == 1 ? "" : "s", (long long)tokens, (long long)counts->bytes,
         tokens ? bytes / (double)tokens : 0.0, bytes / 1e6 / seconds, seconds);
  printf("documents: %s\n", document_marks_text(&job->marks, t).s);
  if (job->control_tokens)
    printf("%lld control token%s stood in the texts themselves (--plain-control-tokens encodes them as plain text)\n",
           (long long)job->control_tokens, job->control_tokens > 1 ? "s" : "");
}

static int encode_files(Tokenize *job, const Tokenizer *t, Error *error) {
  CorpusOptions options = {.threads = (int)job->threads,
                           .write = write_ids,
                           .progress = show_progress,
                           .argument = job,
                           .lines = job->jsonl,
                           .as_text = job->as_text,
                           .plain = job->plain_control_tokens,
                           .how = lines_of(job),
                           .checked = complain};
  CorpusCounts counts;
  int code = choose_marks(job, t, error);
  if (code >= 0) code = make_folder(job->out, error);
  if (code >= 0) code = indexed_writer_begin(&job->writer, job->out, indexed_type_for(tokenizer_vocab_size(t)), error);
  if (code < 0) return code;
  code = corpus_encode(t, (const char *const *)job->files.data, job->files.count, &options, &counts, error);
  if (code >= 0 && !counts.documents)
    code = error_set(error, PLAIT_BAD_INPUT, "%s%s: no text, only empty documents",
                     text_stream_name(job->files.data[0]),
                     job->files.count > 1 ? " …" : "");
  if (code >= 0) {
    int64_t tokens = job->writer.tokens;
    job->writer.record = document_marks_record(&job->marks, t, job->writer.documents, tokens);
    code = indexed_writer_commit(&job->writer, error);
    if (code >= 0) print_summary(job, t, &counts, tokens);
    if (code >= 0) code = keep_skipped(job, error);
  }
  indexed_writer_abandon(&job->writer);
  return code;
}

static int tokenize(Tokenize *job, Error *error) {
  Tokenizer *t;
  int code = tokenizer_load(job->tokenizer, &t, error);
  if (code < 0) return code;
  if (t->moved)
    fprintf(stderr,
            "plait tokenize: note: %s declares id %d for %.60s, which gets %d (as in Hugging Face's tokenizers)\n",
            job->tokenizer, t->moved_from, t->moved, t->moved_to);
  code = encode_files(job, t, error);
  tokenizer_destroy(t);
  return code;
}

static int run(Tokenize *job, Operands operands, Error *error) {
  int code = check_options(job, error);
  if (code >= 0) code = read_skip(job, error);
  for (int i = 0; i < operands.count; i++) vec_push(&job->files, xstrdup(operands.words[i]));
  if (code >= 0 && job->files_from) code = read_list(job, error);
  if (code >= 0) code = check_files(job, error);
  if (code >= 0) code = check_out(job, error);
  if (code < 0) return code;
  if (!job->threads) job->threads = usable_cores();
  if (!job->train) signals_install(NULL); // train() does it later
  job->started = clock_seconds();
  return job->train ? train(job, error) : tokenize(job, error);
}

int cmd_tokenize(int argc, char **argv) {
  Tokenize job = {.vocab_size = 32768};
  const Option options[] = {
      {"tokenizer", OPTION_TEXT, &job.tokenizer, "FILE", "a tokenizer.json (Hugging Face), or a folder with one",
       .required = false},
      {"out", OPTION_TEXT, &job.out, "PREFIX", "write PREFIX.bin and PREFIX.idx; with --train, the tokenizer.json",
       .required = true},
      {"force", OPTION_FLAG, &job.force, NULL, "overwrite the files that --out names", .required = false},
      {"train", OPTION_FLAG, &job.train, NULL, "train a byte-level BPE tokenizer on FILES", .required = false},
      {"vocab-size", OPTION_INTEGER, &job.vocab_size, "N", "with --train: size of the vocabulary", .least = 257,
       .most = 1 << 20, .given = &job.vocab_size_given},
      {"files-from", OPTION_TEXT, &job.files_from, "FILE",
       "a file with more FILES, one path per line; - is standard input", .required = false},
      {"jsonl", OPTION_FLAG, &job.jsonl, NULL, "read all FILES as .jsonl, whatever their names and contents are",
       .required = false},
      {"as-text", OPTION_FLAG, &job.as_text, NULL,
       "take each file whose name does not say .jsonl as one text, whatever its contents are: binary data and packed "
       "files, too, which are refused otherwise",
       .required = false},
      {"key", OPTION_TEXT, &job.key, "NAME", "the key of a .jsonl under which the text is (default text)",
       .required = false},
      {"skip-bad", OPTION_TEXT, &job.skip_bad, "N|all",
       "skip up to N lines of .jsonl that cannot be read, and list them in a file beside the result (PREFIX.skipped); "
       "default 0: the first one ends the command",
       .required = false},
      {"bos", OPTION_TEXT, &job.bos, "TOKEN",
       "the token to put before each document, or none; without it, what the tokenizer's folder says",
       .required = false},
      {"eot", OPTION_TEXT, &job.eot, "TOKEN",
       "the token to put after each document, or none; without it, what the tokenizer's folder says",
       .required = false},
      {"plain-control-tokens", OPTION_FLAG, &job.plain_control_tokens, NULL,
       "encode control tokens (special tokens such as <|endoftext|>) that a text spells out as plain text; without it "
       "they become those tokens, and the last line counts them",
       .required = false},
      {"threads", OPTION_INTEGER, &job.threads, "N", "threads to use; 0: all cores. The ids do not depend on it",
       .least = 0, .most = 4096},
  };
  const CommandHelp help = {
      "tokenize", "[options] FILES…",
      "Turns text into token ids (a Megatron indexed dataset), or trains a tokenizer (--train).\n"
      "FILES are UTF-8 text, plain or compressed (.gz, .zst), pipes, or - for standard input. A file of JSON objects, "
      "one a line (.jsonl, .jsonlines, .ndjson, or whatever its name if its first line is one), has one document per "
      "line, with the text under the key \"text\" (--key); any other file is one document. Packed files of other "
      "kinds, "
      "binary files, text that is not UTF-8, JSON arrays and pointers of Git LFS are refused (--as-text). Each "
      "document begins and ends as the tokenizer's folder says (tokenizer_config.json, the post-processor of "
      "tokenizer.json, config.json; the line \"documents\" shows it), and empty documents are left out. If a text "
      "spells out a special token, it becomes that token, and the last line counts them; --plain-control-tokens "
      "prevents it. Bytes that are not UTF-8 are kept if there are few and the vocabulary has all 256 bytes; a warning "
      "tells when it lacks one.",
      "  plait tokenize --train --vocab-size 1024 --out data/tokenizer.json corpus/*.txt\n"
      "  plait tokenize --tokenizer data/tokenizer.json --out data/corpus corpus/*.txt more.jsonl.zst\n"
      "  find corpus -name '*.h' | sort | plait tokenize --tokenizer models/mine --out data/c --files-from -\n"
      "  unpack archive | plait tokenize --tokenizer data/tokenizer.json --out data/archive --jsonl -\n",
      .takes = TAKES_FILES};
  Operands operands;
  Error error = {0};
  int status = options_parse(&help, options, COUNT(options), 0, INT_MAX, argc, argv, &operands);
  if (status != OPTIONS_OK) return status;
  int code = run(&job, operands, &error);
  if (job.skipped) file_abandon(&job.bad_lines);
  for (int i = 0; i < job.files.count; i++) free(job.files.data[i]);
  vec_free(&job.files);
  if (code >= 0) return 0;
  if (job.shown > 0) fputs("\r\033[K", stderr);
  return command_fail("tokenize", &error);
}
