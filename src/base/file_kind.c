// A table of first bytes, and what they are the first bytes of.
#include "base/file_kind.h"
#include "base/vec.h"
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Magic {
  FileKind kind;
  int at, bytes; // where they stand, how many they are
  const char *magic;
  const char *words;
} Magic;

#define STARTS(kind, text, words) {FILE_KIND_##kind, 0, sizeof(text) - 1, text, words}
#define PACKED(text, name) STARTS(PACKED, text, "is packed (" name "): unpack it first")
#define LFS                                                                                                            \
  "is a Git LFS pointer and not the file itself: git lfs pull, in the folder of the clone, fetches the file"

static const Magic magics[] = {
    STARTS(POINTER, "version https://git-lfs.github.com/spec/", LFS),
    STARTS(POINTER, "version https://hawser.github.com/spec/", LFS),
    STARTS(POINTER, "# xet version ", "is a Xet pointer and not the file itself: git xet, or hf download, fetches it"),
    STARTS(POINTER, "/annex/objects/",
           "is a git-annex pointer and not the file itself: git annex get fetches the file"),
    PACKED("\x1f\x8b", "gzip"),
    PACKED("\x28\xb5\x2f\xfd", "zstd"),
    PACKED("\xfd"
           "7zXZ\0",
           "xz"),
    PACKED("BZh", "bzip2"),
    PACKED("\x04\x22\x4d\x18", "lz4"),
    PACKED("\x02\x21\x4c\x18", "lz4"),
    PACKED("7z\xbc\xaf\x27\x1c", "7z"),
    PACKED("PK\3\4", "zip, as PyTorch's own files are"),
    PACKED("PK\5\6", "zip"),
    PACKED("Rar!\x1a\7", "rar"),
    PACKED("\x1f\x9d", "compress"),
    PACKED("\x1f\xa0", "compress"),
    PACKED("LZIP\1", "lzip"),
    PACKED("\x89LZO\0", "lzop"),
    PACKED("\x5d\0\0", "lzma"),
    PACKED("\xff\6\0\0sNaPpY", "snappy"),
    PACKED("MSCF\0", "cab"),
    {FILE_KIND_PACKED, 257, 5, "ustar", "is packed (tar): unpack it first"},
    STARTS(OTHER, "GGUF", "is a GGUF file (llama.cpp), which plait does not read"),
    STARTS(OTHER, "tjgg", "is a GGML file (llama.cpp), which plait does not read"),
    STARTS(OTHER, "lmgg", "is a GGML file (llama.cpp), which plait does not read"),
    STARTS(OTHER, "\x89HDF", "is an HDF5 file, which plait does not read"),
    STARTS(OTHER, "\x93NUMPY", "is a file of NumPy, which plait does not read"),
    STARTS(OTHER, "PAR1", "is a Parquet file, which plait does not read"),
    STARTS(OTHER, "ARROW1", "is an Arrow file, which plait does not read"),
    STARTS(OTHER, "%PDF", "is a PDF"),
    STARTS(OTHER,
           "\x7f"
           "ELF",
           "is a program"),
    STARTS(OTHER, "SQLite format 3\0", "is a database of SQLite, which plait does not read"),
    STARTS(OTHER, "Obj\1", "is an Avro file, which plait does not read"),
    STARTS(OTHER, "ORC\n", "is an ORC file, which plait does not read"),
    STARTS(OTHER, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a document of an office program, which plait does not read"),
    STARTS(OTHER, "\x89PNG\r\n", "is a picture (PNG)"),
    STARTS(OTHER, "\xff\xd8\xff", "is a picture (JPEG)"),
    STARTS(OTHER, "GIF8", "is a picture (GIF)"),
    STARTS(OTHER, "\xff\xfe\0\0", "is UTF-32 text: convert it to UTF-8 (iconv -f UTF-32 -t UTF-8)"),
    STARTS(OTHER, "\0\0\xfe\xff", "is UTF-32 text: convert it to UTF-8 (iconv -f UTF-32 -t UTF-8)"),
    STARTS(OTHER, "\xff\xfe", "is UTF-16 text: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    STARTS(OTHER, "\xfe\xff", "is UTF-16 text: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"),
    STARTS(OTHER, "<!DOCTYPE html",
           "is a web page and not the file itself: download the file, not the page that shows it"),
    STARTS(OTHER, "<!doctype html",
           "is a web page and not the file itself: download the file, not the page that shows it"),
    STARTS(OTHER, "<html", "is a web page and not the file itself: download the file, not the page that shows it"),
};

// Python's pickle, from protocol 2 on.
static int is_pickle(const uint8_t *p, size_t n) { return n > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5; }

// A list of pieces in protocol buffers, the first of which is <unk> or another short word.
static int is_sentencepiece(const uint8_t *p, size_t n) {
  return n > 4 && p[0] == 0x0a && p[1] > 2 && p[1] < 64 && p[2] == 0x0a && p[3] < p[1] &&
         memmem(p, n, "<unk>", 5) != NULL;
}

static int is_safetensors(const uint8_t *p, size_t n) {
  uint64_t length = 0;
  if (n < 9) return 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | p[i];
  return length < 1u << 30 && p[8] == '{';
}

// "\0t\0e": many bytes of one parity are 0, hardly one of the other is, and there are no control characters. NULL: it
// is not UTF-16, or has its mark.
static const char *utf16_without_mark(const uint8_t *p, size_t n) {
  size_t nul[2] = {0, 0}, control = 0;
  for (size_t i = 0; i < n; i++) nul[i & 1] += !p[i], control += p[i] && p[i] < ' ' && !strchr("\t\n\f\r", p[i]);
  if (n < 4 || control * 50 > n) return NULL;
  if (nul[1] * 4 > n && nul[0] * 50 < n) return "is like UTF-16 text: convert it to UTF-8 (iconv -f UTF-16LE -t UTF-8)";
  if (nul[0] * 4 > n && nul[1] * 50 < n) return "is like UTF-16 text: convert it to UTF-8 (iconv -f UTF-16BE -t UTF-8)";
  return NULL;
}

FileKind file_kind_of(const void *head, size_t bytes, const char **words) {
  const uint8_t *p = head;
  const Magic *m = magics, *end = m + sizeof magics / sizeof *magics;
  *words = "is empty";
  if (!bytes) return FILE_KIND_EMPTY;
  *words = "is a file of safetensors"; // whose first bytes are a number, which may be like another format's
  if (is_safetensors(p, bytes)) return FILE_KIND_SAFETENSORS;
  for (; m < end; m++)
    if (bytes >= (size_t)(m->at + m->bytes) && !memcmp(p + m->at, m->magic, (size_t)m->bytes))
      return *words = m->words, m->kind;
  *words = "is a pickle of Python (PyTorch), which plait does not read";
  if (is_pickle(p, bytes)) return FILE_KIND_OTHER;
  *words = "is a model of SentencePiece (tokenizer.model), which plait does not read";
  if (is_sentencepiece(p, bytes)) return FILE_KIND_OTHER;
  if ((*words = utf16_without_mark(p, bytes))) return FILE_KIND_OTHER;
  size_t i = bytes > 2 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
  while (i < bytes && (p[i] == ' ' || p[i] == '\t' || p[i] == '\n' || p[i] == '\r')) i++;
  *words = "is JSON";
  if (i < bytes && (p[i] == '{' || p[i] == '[')) return FILE_KIND_JSON;
  *words = "is binary data";
  if (memchr(p, 0, bytes)) return FILE_KIND_OTHER;
  *words = "is text";
  return FILE_KIND_TEXT;
}

FileKind file_kind(const char *path, const char **words) {
  struct stat st;
  uint8_t head[FILE_KIND_HEAD];
  size_t n = 0;
  *words = "does not exist";
  if (stat(path, &st)) {
    if (!lstat(path, &st)) *words = "is a symbolic link that leads nowhere";
    return FILE_KIND_ABSENT;
  }
  *words = "is a folder";
  if (S_ISDIR(st.st_mode)) return FILE_KIND_FOLDER;
  *words = "is not a regular file";
  int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return FILE_KIND_UNKNOWN;
  for (ssize_t got; n < sizeof head && (got = read(fd, head + n, sizeof head - n)) > 0;) n += (size_t)got;
  close(fd);
  return file_kind_of(head, n, words);
}
