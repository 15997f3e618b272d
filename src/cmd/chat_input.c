// Reading messages from a terminal or a pipe. Ctrl-C at an empty prompt ends nothing: it says how to end.
#include "cmd/chat_input.h"
#include "base/signals.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void show(const ChatInput *in, const char *prompt) {
  if (!in->tells) return;
  fputs(prompt, stdout);
  fflush(stdout);
}

// Waits for bytes and takes them. false: a signal that ends the program. At the input's end, in->ended.
static bool read_more(ChatInput *in, const char *prompt) {
  for (;;) {
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = signals_stop() ? -1 : poll(&fd, 1, -1);
    if (ready < 0 && signals_take(SIGINT)) {
      fputs("\n(Ctrl-D or /exit ends the chat)\n", stderr);
      show(in, prompt);
      continue;
    }
    if (signals_stop()) return false;
    if (ready < 0) continue;
    char block[4096];
    ssize_t n = read(STDIN_FILENO, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) in->ended = true;
    else bytes_append(&in->read, block, (size_t)n);
    return true;
  }
}

static ChatInputEnd next_line(ChatInput *in, const char *prompt, ByteVector *line) {
  line->count = 0;
  show(in, prompt);
  char *end;
  while (!(end = in->read.count ? memchr(in->read.data, '\n', (size_t)in->read.count) : NULL) && !in->ended)
    if (!read_more(in, prompt)) return INPUT_STOPPED;
  int bytes = end ? (int)(end - in->read.data) : in->read.count;
  if (!end && !bytes) return INPUT_ENDED;
  if (bytes) bytes_append(line, in->read.data, (size_t)bytes);
  if (line->count && line->data[line->count - 1] == '\r') line->count--;
  bytes += end != NULL;
  in->read.count -= bytes;
  memmove(in->read.data, in->read.data + bytes, (size_t)in->read.count);
  return INPUT_MESSAGE;
}

static bool is_fence(const ByteVector *line) { return line->count == 3 && !memcmp(line->data, "\"\"\"", 3); }

static bool is_blank(const ByteVector *text) {
  for (int i = 0; i < text->count; i++)
    if (!strchr(" \t\n", text->data[i]) || !text->data[i]) return false;
  return true;
}

static ChatInputEnd read_message(ChatInput *in, ByteVector *message, ByteVector *line) {
  ChatInputEnd end = next_line(in, "> ", line);
  message->count = 0;
  if (end) return end;
  bool fenced = is_fence(line), more = true;
  if (fenced) end = next_line(in, ". ", line);
  for (; !end && more && !(fenced && is_fence(line)); end = more ? next_line(in, ". ", line) : end) {
    more = fenced || (line->count && line->data[line->count - 1] == '\\');
    if (!fenced && more) line->count--;
    if (line->count) bytes_append(message, line->data, (size_t)line->count);
    if (more) bytes_append(message, "\n", 1);
  }
  if (fenced && message->count) message->count--; // the end of its last line
  return end == INPUT_STOPPED ? end : INPUT_MESSAGE;
}

ChatInputEnd chat_input_next(ChatInput *in, ByteVector *message) {
  ByteVector line = {0};
  ChatInputEnd end;
  while (!(end = read_message(in, message, &line)) && is_blank(message) && !(in->ended && !in->read.count)) continue;
  vec_free(&line);
  return end == INPUT_MESSAGE && is_blank(message) ? INPUT_ENDED : end;
}
